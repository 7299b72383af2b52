"""What a law predicts for runs, with two intervals: of the law's mean there, and of the loss of a new run.

The first holds the error of the fit alone. The second adds the noise of one run, so it is the one that observed losses
are compared with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scaling.law.fit import Fit
from scaling.law.interval import Interval, Method, intervals
from scaling.law.noise import measure, student
from scaling.law.points import Points
from scaling.law.quantity import prediction


@dataclass(frozen=True)
class Prediction:
    """The law at one row of its columns. Without a method, or a degree of freedom, there are no intervals."""

    row: Mapping[str, float]
    estimate: float
    mean: Interval | None
    run: Interval | None

    def to_json(self) -> dict[str, Any]:
        """`interval` is the older name of `interval_mean`."""
        mean, run = (None if interval is None else interval.to_json() for interval in (self.mean, self.run))
        return {"interval_mean": mean, "interval_run": run, "interval": mean}


def predict_runs(
    fit: Fit,
    rows: Sequence[Mapping[str, float]],
    level: float = 0.95,
    method: Method | None = "profile",
    *,
    seed: int = 0,
) -> list[Prediction]:
    """The law at each row of its columns, with both intervals at `level` by `method`; None asks for no intervals."""
    rows = [{name: float(row[name]) for name in fit.form.inputs} for row in rows]
    if not rows:
        return []
    estimates = fit.predict(**{name: np.array([row[name] for row in rows]) for name in fit.form.inputs})
    if method is None or fit.degrees_of_freedom < 1:
        return [Prediction(row, float(value), None, None) for row, value in zip(rows, estimates, strict=True)]
    quantities = [prediction(fit.form, row, f"row {place}") for place, row in enumerate(rows)]
    means = intervals(fit, method, level=level, quantities=quantities, seed=seed).values()
    noise = _noise(fit) * student(level, fit.degrees_of_freedom)
    means = [replace(mean, name=prediction(fit.form, row).name) for row, mean in zip(rows, means, strict=True)]
    return [
        Prediction(row, mean.estimate, mean, _of_a_run(fit, mean, noise)) for row, mean in zip(rows, means, strict=True)
    ]


def rows_of(points: Points, fit: Fit) -> list[dict[str, float]]:
    """The law's columns of each point, a row each."""
    columns = {name: points.numbers(name) for name in fit.form.inputs}
    return [{name: float(column[place]) for name, column in columns.items()} for place in range(len(points))]


def _noise(fit: Fit) -> float:
    """The standard deviation of one run about the law, in the objective's space."""
    problem = fit.problem
    measured = measure(problem.objective, np.array([fit.objective]), len(problem.observed), len(problem.free))
    return float(measured.scale[0])


def _of_a_run(fit: Fit, mean: Interval, noise: float) -> Interval:
    """The mean's interval with the half-width `noise` of one run added, as independent, on each side of the estimate.

    Where a bootstrap's interval does not hold the estimate, that side has the noise alone. An end that is open for the
    mean is open for a run.
    """
    objective = fit.problem.objective
    centre, low, high = map(float, objective.transform(np.array([mean.estimate, mean.low, mean.high])))
    low = centre - np.hypot(max(centre - low, 0.0), noise)
    high = centre + np.hypot(max(high - centre, 0.0), noise)
    if objective.space == "log":
        low, high = np.exp(low), np.exp(high)
    low, high = max(float(low), 0.0), float(high)  # no loss is negative
    # The transform and its inverse round: a run's interval is never the narrower one.
    low, high = min(low, mean.low), max(high, mean.high)
    return Interval(mean.name, mean.estimate, low, high, mean.level, mean.method, mean.open_below, mean.open_above)
