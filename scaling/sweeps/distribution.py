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
from typing import Annotated, Any, Literal

from scaling.base.errors import ScalingError, refuse
from scaling.base.numbers import Range, is_number
from scaling.config.schema import check, check_keys

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
    """The quantile function of a parameter, the values that a check tries, and those that a grid takes (None: none)."""

    at: Callable[[float], Any]
    tried: Sequence[Any]
    grid: Sequence[Any] | None


def distribution(line: Mapping[str, Any]) -> Distribution:
    """The distribution of one parameter's line; a mistake is reported with the key of the line."""
    kind = check("distribution", line.get("distribution") or _meant(line), Literal[tuple(KINDS)])
    own, keys = {key: value for key, value in line.items() if key != "distribution"}, KINDS[kind]
    checked = check_keys(own, {key: WHOLE if kind == "int_uniform" else TYPES[key] for key in keys}, kind)
    fields = {**keys, **(checked if kind == "int_uniform" else own)}  # of others a whole number stays one
    absent = [key for key in keys if fields[key] is None and key not in line]
    refuse(absent, f"{kind} needs {' and '.join(absent)}", f"write {' and '.join(absent)}")
    if kind == "constant":
        return _choice([fields["value"]])
    if kind.startswith("categorical"):
        return _choice(**fields)
    low, high = fields.get("min", -math.inf), fields.get("max", math.inf)
    refuse(low >= high, f"min {low} is not below max {high}", "swap them")
    refuse(kind.endswith("_values") and low <= 0, "a logarithm needs a min above 0", key="min", value=low)
    if kind == "int_uniform":
        return _choice(range(low, high + 1))
    return _curve(kind, fields)


def _meant(line: Mapping[str, Any]) -> str:
    """The kind that the keys of a line mean to W&B."""
    if "value" in line:
        return "constant"
    if "values" in line:
        return "categorical_w_probabilities" if "probabilities" in line else "categorical"
    if "min" in line or "max" in line:
        return "int_uniform" if all(isinstance(line.get(end), int) for end in BOUNDS) else "uniform"
    check_keys(line, dict.fromkeys((*TYPES, "distribution", "parameters"), Any), "a parameter")
    raise ScalingError("the parameter has no values", fix="write value, values, or min and max")


def _choice(values: Sequence[Any], probabilities: Sequence[float] | None = None) -> Distribution:
    """One of some values, all equally likely without probabilities. Of a long row of numbers some are tried."""
    refuse(not values, "expected a list of values", "write [1, 2]", key="values")
    row, tried = values, values
    if not isinstance(values, range):  # which is never written out: it may be as long as memory
        is_double = len({(type(value), repr(value)) for value in values}) < len(values)  # 1 and True are two
        refuse(is_double, "a value appears twice", key="values")
        row = sorted(values) if all(map(is_number, values)) else ()
    if len(row) > SOME:
        tried = [row[round(index * (len(row) - 1) / (SOME - 1))] for index in range(SOME)]
    if probabilities is None:
        return Distribution(lambda place: values[min(int(place * len(values)), len(values) - 1)], tried, values)
    is_whole = len(probabilities) == len(values) and math.isclose(sum(probabilities), 1.0, abs_tol=1e-6)
    refuse(not is_whole, "expected a probability for each value, with sum 1", key="probabilities")
    ends = list(itertools.accumulate(probabilities))[:-1]
    return Distribution(lambda place: values[bisect.bisect_left(ends, place)], tried, None)


def _curve(kind: str, fields: Fields) -> Distribution:
    """A kind of number, whose ends are finite; its other values lie between them."""
    q, (_, unrounded) = fields.get("q"), CURVES[kind.removeprefix("q_")]

    def quantile(place: float) -> Any:
        value = unrounded(place, fields)
        return value if q is None else type(q)(round(value / q) * q)

    grid, edge = None, EDGE if "normal" in kind else 0.0
    if kind == "q_uniform" and q is not None:  # W&B's grid takes it from min in steps of q, max not among them
        count = (fields["max"] - fields["min"]) / q
        refuse(count > STEPS, f"more steps than {STEPS:,}", "take larger steps", key="q", value=q)
        grid = [fields["min"] + index * q for index in range(math.ceil(count))]
    try:
        tried = [quantile(place) for place in (edge, 0.5, 1.0 - edge)]
    except (OverflowError, ZeroDivisionError, ValueError):
        tried = [math.nan]
    what, fix = "its values are larger than numbers can be", "narrow min and max, or take a larger q"
    refuse(not all(map(math.isfinite, tried)), what, fix)
    return Distribution(quantile, tried, grid)
