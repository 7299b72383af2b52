"""Intervals by the height of the objective: by its profile, or by Student's t where it is nearly a parabola."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scaling.law.noise import measure, student
from scaling.law.problem import Problem
from scaling.law.profile import profile, standard_error
from scaling.law.quantity import Each, Quantity
from scaling.law.robust import inflation, widening

LEVEL = 0.95
EXACT = 1e-12  # errors below this are rounding: the points lie on the law


@dataclass(frozen=True)
class Ends:
    """Both ends of an interval in its quantity's scale, and whether the points leave that end open."""

    low: float
    high: float
    open_below: bool = False
    open_above: bool = False


def bound(
    problem: Problem,
    u: np.ndarray,
    cost: float,
    quantities: Sequence[Quantity],
    refits: np.ndarray,
    clusters: np.ndarray | None = None,
    *,
    level: float = LEVEL,
    method: str = "profile",
) -> list[Ends]:
    """The interval of each quantity at the optimum `u`, all at once, by "profile" or "t".

    They widen by what the scores of points, or of clusters of them, show, and by the spread of `refits` under random
    weights (robust.reweighted). There has to be a degree of freedom.
    """
    if not quantities:
        return []
    count = len(quantities)
    each, places, costs = Each(quantities, np.arange(count)), np.tile(u, (count, 1)), np.full(count, cost)
    noise = measure(problem.objective, costs, len(problem.observed), len(problem.free))
    factor, freedom = inflation(problem, each, places, noise, clusters)
    quantile = student(level, freedom)
    threshold = quantile * np.sqrt(factor)
    value, error, _ = standard_error(problem, each, places, noise)
    if noise.scale[0] < EXACT * max(1.0, abs(float(np.mean(problem.observed)))):
        return [Ends(float(at), float(at)) for at in value]
    low, high, open_below, open_above = (
        value - threshold * error,
        value + threshold * error,
        *np.zeros((2, count), bool),
    )
    if method == "profile":
        ends = profile(problem, each, places, costs, noise, threshold)
        low, high, open_below, open_above = ends.low, ends.high, ends.open_below, ends.open_above
    correlation = problem.correlation(u)
    if correlation is not None:
        slopes = each.along(problem, places)[1]
        factors = np.array([correlation.widening(slope, level) for slope in slopes]).T
        lowest, highest = each.limits
        low = np.where(open_below, low, np.maximum(value - factors[0] * (value - low), lowest))
        high = np.where(open_above, high, np.minimum(value + factors[1] * (high - value), highest))
    if len(refits):
        refitted = np.array([quantity.along(problem, refits)[0] for quantity in quantities])
        outwards = widening(refitted, value, value - low, high - value, quantile, len(problem.observed))
        lowest, highest = each.limits
        low = np.where(open_below, low, np.maximum(value - outwards[0] * (value - low), lowest))
        high = np.where(open_above, high, np.minimum(value + outwards[1] * (high - value), highest))
    return [
        Ends(float(low[row]), float(high[row]), bool(open_below[row]), bool(open_above[row])) for row in range(count)
    ]
