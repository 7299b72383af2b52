"""Distributions: how a sweep's parameter is drawn, kind by kind as W&B's schema and server define them.

Each is a quantile function: the value at a place of the unit interval. Random search takes a uniform place for each
parameter; a grid takes the values of those that have finitely many.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from scaling.base.errors import ScalingError, nearest
from scaling.base.numbers import Range, is_number
from scaling.config.schema import check_keys

Fields = Mapping[str, Any]
LARGEST = 1 << 53  # of the numbers of a line: beyond it a float leaves whole numbers out
NUMBER = Annotated[float, Range(least=-LARGEST, most=LARGEST)]
WHOLE = Annotated[int, Range(least=-LARGEST, most=LARGEST)]
TYPES: dict[str, Any] = {
    "value": Any,
    "values": list[Any],
    "probabilities": list[Annotated[float, Range(least=0)]],
    **dict.fromkeys(("min", "max", "mu"), NUMBER),
    **dict.fromkeys(("sigma", "a", "b", "q"), Annotated[float, Range(above=0, most=LARGEST)]),
}


def _normal(place: float, f: Fields) -> float:
    from scipy.special import ndtri  # a tenth of a second, for sweeps that need it

    return f["mu"] + f["sigma"] * float(ndtri(place))


def _beta(place: float, f: Fields) -> float:
    from scipy.special import betaincinv

    return float(betaincinv(f["a"], f["b"], place))


def _between(place: float, low: float, high: float) -> float:
    return low + (high - low) * place


# Of each kind of number: its keys with their defaults (None: it must have the key), and its quantile function.
BOUNDS: Fields = {"min": None, "max": None}
MOMENTS: Fields = {"mu": 0.0, "sigma": 1.0}
CURVES: dict[str, tuple[Fields, Callable[[float, Fields], float]]] = {
    "uniform": (BOUNDS, lambda u, f: _between(u, f["min"], f["max"])),
    "log_uniform": (BOUNDS, lambda u, f: math.exp(_between(u, f["min"], f["max"]))),
    "log_uniform_values": (BOUNDS, lambda u, f: math.exp(_between(u, math.log(f["min"]), math.log(f["max"])))),
    "inv_log_uniform": (BOUNDS, lambda u, f: math.exp(-_between(1 - u, f["min"], f["max"]))),
    "inv_log_uniform_values": (
        BOUNDS,
        lambda u, f: math.exp(-_between(1 - u, math.log(1 / f["max"]), math.log(1 / f["min"]))),
    ),
    "normal": (MOMENTS, _normal),
    "log_normal": (MOMENTS, lambda u, f: math.exp(_normal(u, f))),
    "beta": ({"a": 1.0, "b": 1.0}, _beta),
}
# The keys of each kind, as above; one that begins with q_ is rounded to multiples of `q`.
KINDS: dict[str, Fields] = {
    "constant": {"value": None},
    "categorical": {"values": None},
    "categorical_w_probabilities": {"values": None, "probabilities": None},
    "int_uniform": BOUNDS,
    **{kind: fields for kind, (fields, _) in CURVES.items()},
    **{f"q_{kind}": {**fields, "q": 1.0} for kind, (fields, _) in CURVES.items() if not kind.startswith("inv_")},
}
STEPS = 1_000_000  # of a number that is rounded
SOME = 16  # values of a long row of numbers that are tried
EDGE = 1e-3  # the place at which an open distribution is tried


@dataclass(frozen=True)
class Distribution:
    """One of `values`, all equally likely without `chances`; or a number by its quantile function. A number has values
    too where a grid may take them.
    """

    values: Sequence[Any] | None
    chances: tuple[float, ...] = ()
    quantile: Callable[[float], Any] | None = None
    edge: float = 0.0  # the place near 0, and as near 1, at which a number is tried

    def at(self, place: float) -> Any:
        if self.quantile is not None:
            return self.quantile(place)
        assert self.values is not None
        last = len(self.values) - 1
        index = bisect.bisect_left(list(itertools.accumulate(self.chances)), place)
        return self.values[min(index if self.chances else int(place * len(self.values)), last)]

    @property
    def are_numbers(self) -> bool:
        return isinstance(self.values, range) or all(map(is_number, self.values or ()))

    def tried(self) -> list[Any]:
        """The values that a check looks at: all, or of numbers the ends and some between."""
        if self.quantile is not None:
            return [self.quantile(place) for place in (self.edge, 0.5, 1.0 - self.edge)]
        values = self.values or ()
        if len(values) <= SOME or not self.are_numbers:
            return list(values)
        row = values if isinstance(values, range) else sorted(values)
        return [row[round(index * (len(row) - 1) / (SOME - 1))] for index in range(SOME)]


def distribution(line: Mapping[str, Any]) -> Distribution:
    """The distribution of one parameter's line; a mistake is reported with the key of the line."""
    kind = _kind(line)
    keys = KINDS[kind]
    own = {key: value for key, value in line.items() if key != "distribution"}
    checked = check_keys(own, {key: WHOLE if kind == "int_uniform" else TYPES[key] for key in keys}, kind)
    fields = {**keys, **(checked if kind == "int_uniform" else own)}  # of others a whole number stays one
    needed = [key for key in keys if keys[key] is None]
    if absent := [key for key in needed if key not in line]:
        raise ScalingError(f"{kind} needs {' and '.join(needed)}", fix=f"write {absent[0]}")
    if kind == "constant":
        return Distribution((fields["value"],))
    if kind.startswith("categorical"):
        return _choice(**fields)
    if "min" in fields:
        low, high = fields["min"], fields["max"]
        if low >= high:
            raise ScalingError(f"min {low} is not below max {high}", fix="swap them")
        if kind.endswith("_values") and low <= 0:
            raise ScalingError("a logarithm needs a min above 0", key="min", value=low)
    if kind == "int_uniform":
        return Distribution(range(fields["min"], fields["max"] + 1))  # never written out: it may be as long as memory
    return _curve(kind, fields)


def _kind(line: Mapping[str, Any]) -> str:
    """The kind that is named, or the one that the keys mean to W&B."""
    if (kind := line.get("distribution")) is not None:
        if str(kind) not in KINDS:
            fix = nearest(str(kind), KINDS)
            raise ScalingError("there is no such distribution", key="distribution", value=kind, fix=fix)
        return kind
    if "value" in line:
        return "constant"
    if "values" in line:
        return "categorical_w_probabilities" if "probabilities" in line else "categorical"
    if "min" in line or "max" in line:
        is_whole = all(isinstance(line.get(end), int) for end in ("min", "max"))
        return "int_uniform" if is_whole else "uniform"
    if near := [key for key in line if key not in ("mu", "sigma", "q", "a", "b")]:
        fix = nearest(near[0], ("value", "values", "min", "max", "distribution", "parameters"))
        raise ScalingError("a parameter has no such key", key=near[0], fix=fix)
    raise ScalingError("the parameter has no values", fix="write value, values, or min and max")


def _choice(values: Sequence[Any], probabilities: Sequence[float] | None = None) -> Distribution:
    if not values:
        raise ScalingError("expected a list of values", key="values", fix="write [1, 2]")
    if len({(type(value), repr(value)) for value in values}) < len(values):  # 1 and True are two
        raise ScalingError("a value appears twice", key="values")
    if probabilities is None:
        return Distribution(tuple(values))
    if len(probabilities) != len(values) or not math.isclose(sum(probabilities), 1.0, abs_tol=1e-6):
        raise ScalingError("expected a probability for each value, with sum 1", key="probabilities")
    return Distribution(tuple(values), tuple(probabilities))


def _curve(kind: str, fields: Fields) -> Distribution:
    """A kind of number, whose ends are finite; its other values lie between them."""
    q, (_, unrounded) = fields.get("q"), CURVES[kind.removeprefix("q_")]

    def quantile(place: float) -> Any:
        value = unrounded(place, fields)
        return value if q is None else type(q)(round(value / q) * q)

    values = None
    if kind == "q_uniform" and q is not None:  # W&B's grid takes it from min in steps of q, max not among them
        if (count := (fields["max"] - fields["min"]) / q) > STEPS:
            raise ScalingError(f"more steps than {STEPS:,}", key="q", value=q, fix="take larger steps")
        values = tuple(fields["min"] + index * q for index in range(math.ceil(count)))
    curve = Distribution(values, quantile=quantile, edge=EDGE if "normal" in kind else 0.0)
    try:
        if all(map(math.isfinite, curve.tried())):
            return curve
    except (OverflowError, ZeroDivisionError, ValueError):
        pass
    raise ScalingError("its values are larger than numbers can be", fix="narrow min and max, or take a larger q")
