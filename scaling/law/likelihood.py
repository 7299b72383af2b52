"""Intervals by the height of the objective: by its profile, or by Student's t where it is nearly a parabola."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scaling.law.noise import measure, student
from scaling.law.problem import Problem
from scaling.law.profile import profile, standard_error
from scaling.law.quantity import Each, Quantity
from scaling.law.robust import inflation

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
    clusters: np.ndarray | None = None,
    *,
    level: float = LEVEL,
    method: str = "profile",
) -> list[Ends]:
    """The interval of each quantity at the optimum `u`, all at once, by "profile" or "t".

    They widen by what the scores of points, or of clusters of them, show. There has to be a degree of freedom.
    """
    if not quantities:
        return []
    count = len(quantities)
    each, places, costs = Each(quantities, np.arange(count)), np.tile(u, (count, 1)), np.full(count, cost)
    noise = measure(problem.objective, costs, len(problem.observed), len(problem.free))
    factor, freedom = inflation(problem, each, places, noise, clusters)
    threshold = student(level, freedom) * np.sqrt(factor)
    value, error, _ = standard_error(problem, each, places, noise)
    if noise.scale[0] < EXACT * max(1.0, abs(float(np.mean(problem.observed)))):
        error = np.zeros(count)
    elif method == "profile":
        found = profile(problem, each, places, costs, noise, threshold)
        told = zip(found.low, found.high, found.open_below, found.open_above, strict=True)
        return [Ends(float(low), float(high), bool(below), bool(above)) for low, high, below, above in told]
    return [Ends(float(at - wide), float(at + wide)) for at, wide in zip(value, threshold * error, strict=True)]
