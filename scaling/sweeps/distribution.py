"""Distributions: how a sweep's parameter is drawn, kind by kind as W&B's schema and server define them.

Each is a quantile function: the value at a place of the unit interval. Random search takes a uniform place for each
parameter; a grid takes the values of those that have finitely many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scaling.errors import ScalingError, nearest
from scaling.schema import is_number

# Of each kind: the keys it must have, and those it may have, with their defaults.
KINDS: dict[str, tuple[tuple[str, ...], dict[str, float]]] = {
    "constant": (("value",), {}),
    "categorical": (("values",), {}),
    "categorical_w_probabilities": (("values", "probabilities"), {}),
    "int_uniform": (("min", "max"), {}),
    "uniform": (("min", "max"), {}),
    "q_uniform": (("min", "max"), {"q": 1.0}),
    "log_uniform": (("min", "max"), {}),
    "q_log_uniform": (("min", "max"), {"q": 1.0}),
    "inv_log_uniform": (("min", "max"), {}),
    "log_uniform_values": (("min", "max"), {}),
    "q_log_uniform_values": (("min", "max"), {"q": 1.0}),
    "inv_log_uniform_values": (("min", "max"), {}),
    "normal": ((), {"mu": 0.0, "sigma": 1.0}),
    "q_normal": ((), {"mu": 0.0, "sigma": 1.0, "q": 1.0}),
    "log_normal": ((), {"mu": 0.0, "sigma": 1.0}),
    "q_log_normal": ((), {"mu": 0.0, "sigma": 1.0, "q": 1.0}),
    "beta": ((), {"a": 1.0, "b": 1.0}),
    "q_beta": ((), {"a": 1.0, "b": 1.0, "q": 1.0}),
}
LARGEST = 1 << 53  # of the numbers of a line: beyond it a float leaves whole numbers out
SOME = 16  # values of a long row of numbers that are tried
EDGE = 1e-3  # the place at which an open distribution is tried


@dataclass(frozen=True)
class Choice:
    """One of finitely many values; a constant is a choice of one. Without `chances` all are equally likely."""

    values: Sequence[Any]
    chances: tuple[float, ...] = ()

    def at(self, share: float) -> Any:
        if not self.chances:
            return self.values[min(int(share * len(self.values)), len(self.values) - 1)]
        passed = 0.0
        for value, chance in zip(self.values, self.chances, strict=True):
            passed += chance
            if share <= passed:
                return value
        return self.values[-1]

    @property
    def are_numbers(self) -> bool:
        return isinstance(self.values, range) or all(map(is_number, self.values))

    def tried(self) -> list[Any]:
        """The values that a check looks at: all, or of a long row of numbers the ends and some between."""
        if len(self.values) <= SOME or not self.are_numbers:
            return list(self.values)
        row = self.values if isinstance(self.values, range) else sorted(self.values)
        return [row[round(index * (len(row) - 1) / (SOME - 1))] for index in range(SOME)]


@dataclass(frozen=True)
class Curve:
    """A number by its quantile function, rounded to multiples of `q` where there is one."""

    quantile: Callable[[float], float]
    q: float | None = None
    values: Sequence[Any] | None = None  # what a grid takes, where W&B lets it
    closed: bool = True

    def at(self, share: float) -> Any:
        value = self.quantile(share)
        if self.q is None:
            return value
        value = round(value / self.q) * self.q
        return int(value) if isinstance(self.q, int) else float(value)

    def tried(self) -> list[Any]:
        edge = 0.0 if self.closed else EDGE
        return [self.at(edge), self.at(0.5), self.at(1.0 - edge)]


Distribution = Choice | Curve


def distribution(line: Mapping[str, Any]) -> Distribution:
    """What one parameter's line means; a mistake is reported with the key of the line."""
    kind = _kind(line)
    needed, optional = KINDS[kind]
    for key in line:
        if key not in (*needed, *optional, "distribution"):
            raise ScalingError(f"{kind} has no such key", key=key, fix=nearest(key, (*needed, *optional)))
    for key in needed:
        if key not in line:
            raise ScalingError(f"{kind} needs {' and '.join(needed)}", fix=f"write {key}")
    fields = {**optional, **line}
    if kind == "constant":
        return Choice((fields["value"],))
    if kind.startswith("categorical"):
        return _choice(fields)
    numbers = {key: fields[key] for key in (*needed, *optional)}
    _numbers(kind, numbers)
    if kind == "int_uniform":
        return Choice(range(numbers["min"], numbers["max"] + 1))  # never written out: it may be as long as memory
    return _finite(_curve(kind, numbers))


def _finite(curve: Curve) -> Curve:
    """The curve, whose ends are numbers; its other values lie between them."""
    try:
        if all(map(math.isfinite, curve.tried())):
            return curve
    except (OverflowError, ZeroDivisionError, ValueError):
        pass
    raise ScalingError("its values are larger than numbers can be", fix="narrow min and max, or take a larger q")


def _kind(line: Mapping[str, Any]) -> str:
    """The kind that is named, or the one that the keys mean to W&B."""
    if (named := line.get("distribution")) is not None:
        if not isinstance(named, str) or named not in KINDS:
            raise ScalingError(
                "there is no such distribution", key="distribution", value=named, fix=nearest(str(named), KINDS)
            )
        return named
    if "value" in line:
        return "constant"
    if "values" in line:
        return "categorical_w_probabilities" if "probabilities" in line else "categorical"
    if "min" in line or "max" in line:
        whole = all(isinstance(line.get(end), int) for end in ("min", "max"))
        return "int_uniform" if whole else "uniform"
    if near := [key for key in line if key not in ("mu", "sigma", "q", "a", "b")]:
        raise ScalingError(
            "a parameter has no such key",
            key=near[0],
            fix=nearest(near[0], ("value", "values", "min", "max", "distribution", "parameters")),
        )
    raise ScalingError("the parameter has no values", fix="write value, values, or min and max")


def _choice(line: Mapping[str, Any]) -> Choice:
    values = line["values"]
    if not isinstance(values, list) or not values:
        raise ScalingError("expected a list of values", key="values", fix="write [1, 2]")
    if len({_typed(value) for value in values}) < len(values):
        raise ScalingError("a value is there twice", key="values")
    chances = line.get("probabilities")
    if chances is None:
        return Choice(tuple(values))
    right = isinstance(chances, list) and len(chances) == len(values) and all(map(is_number, chances))
    if not right or min(chances) < 0 or not math.isclose(sum(chances), 1.0, abs_tol=1e-6):
        raise ScalingError("expected a chance for each value, in sum 1", key="probabilities")
    return Choice(tuple(values), tuple(chances))


def _typed(value: Any) -> str:
    """Equal for equal values; 1 and True are two."""
    return f"{type(value).__name__}:{value!r}"


def _numbers(kind: str, numbers: Mapping[str, Any]) -> None:
    for key, value in numbers.items():
        if not is_number(value) or abs(value) > LARGEST:
            # PyYAML, which reads the file for `wandb sweep`, needs a point in the mantissa and a sign in the exponent.
            raise ScalingError(
                "expected a number", key=key, value=value, fix="W&B reads 1.0e-4 as one, and 1e-4 as text"
            )
    low, high = numbers.get("min"), numbers.get("max")
    if low is not None and high is not None:
        if kind == "int_uniform" and not (isinstance(low, int) and isinstance(high, int)):
            raise ScalingError("int_uniform needs whole numbers", key="min", value=low)
        if low >= high:
            raise ScalingError(f"min {low} is not below max {high}", fix="swap them")
        if kind.endswith("_values") and low <= 0:
            raise ScalingError("a logarithm needs a min above 0", key="min", value=low)
    for key in ("q", "sigma", "a", "b"):
        if key in numbers and not numbers[key] > 0:
            raise ScalingError("expected a number above 0", key=key, value=numbers[key])


def _curve(kind: str, fields: Mapping[str, float]) -> Curve:
    from scipy.special import betaincinv, ndtri  # a tenth of a second, for sweeps that have curves

    low, high = fields.get("min", 0.0), fields.get("max", 1.0)
    mu, sigma = fields.get("mu", 0.0), fields.get("sigma", 1.0)
    a, b = fields.get("a", 1.0), fields.get("b", 1.0)
    quantiles: dict[str, Callable[[float], float]] = {
        "uniform": lambda share: low + (high - low) * share,
        "log_uniform": lambda share: math.exp(low + (high - low) * share),
        "log_uniform_values": lambda share: math.exp(math.log(low) + (math.log(high) - math.log(low)) * share),
        "inv_log_uniform": lambda share: math.exp(-(low + (high - low) * (1 - share))),
        "inv_log_uniform_values": lambda share: math.exp(
            -(math.log(1 / high) + (math.log(1 / low) - math.log(1 / high)) * (1 - share))
        ),
        "normal": lambda share: mu + sigma * float(ndtri(share)),
        "log_normal": lambda share: math.exp(mu + sigma * float(ndtri(share))),
        "beta": lambda share: float(betaincinv(a, b, share)),
    }
    shape = kind.removeprefix("q_")
    values = _steps(low, high, fields["q"]) if kind == "q_uniform" else None
    return Curve(quantiles[shape], fields.get("q"), values, closed=shape not in ("normal", "log_normal"))


def _steps(low: float, high: float, q: float) -> Sequence[float]:
    """The grid's values of q_uniform: from min in steps of q, max not among them."""
    if (count := (high - low) / q) > LARGEST:
        raise ScalingError("more steps than can be counted", key="q", value=q, fix="take larger steps")
    return _Steps(low, q, math.ceil(count))


@dataclass(frozen=True)
class _Steps(Sequence[float]):
    """`low + index * q`, never written out: it may be as long as memory."""

    low: float
    q: float
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return self.low + index * self.q
