"""What a law predicts for runs, with two intervals: of the law's mean there, and of the loss of a new run.

The first holds the error of the fit alone, as if the law's form were true. The second adds the noise of one run and
the error of the form at that run, so it is the one that observed losses are compared with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from scaling.law.discrepancy import Discrepancy, discrepancy
from scaling.law.extrapolation import Extrapolation, extrapolation
from scaling.law.fit import Fit
from scaling.law.interval import Interval, Method, intervals
from scaling.law.points import Points
from scaling.law.quantity import prediction


@dataclass(frozen=True)
class Prediction:
    """The law at one row of its columns. Without a method, or a degree of freedom, there are no intervals."""

    row: Mapping[str, float]
    estimate: float
    mean: Interval | None
    run: Interval | None
    extrapolation: Extrapolation

    def to_json(self) -> dict[str, Any]:
        """`interval` is the older name of `interval_mean`."""
        mean, run = (None if interval is None else interval.to_json() for interval in (self.mean, self.run))
        return {"interval_mean": mean, "interval_run": run, "interval": mean, **self.extrapolation.to_json()}


def predict_runs(
    fit: Fit,
    rows: Sequence[Mapping[str, float]],
    level: float = 0.95,
    method: Method | None = "profile",
    *,
    seed: int = 0,
    form_error: Discrepancy | None = None,
) -> list[Prediction]:
    """The law at each row of its columns, with both intervals at `level` by `method`; None asks for no intervals.

    `form_error` is what is known of the form's error, by default what the residuals of this fit show.
    """
    rows = [{name: float(row[name]) for name in fit.form.inputs} for row in rows]
    if not rows:
        return []
    columns = {name: np.array([row[name] for row in rows]) for name in fit.form.inputs}
    places = [extrapolation(fit, row) for row in rows]
    if method is None or fit.degrees_of_freedom < 1:
        estimates = map(float, fit.predict(**columns))
        return [
            Prediction(row, estimate, None, None, place)
            for row, estimate, place in zip(rows, estimates, places, strict=True)
        ]
    quantities = [prediction(fit.form, row, f"row {place}") for place, row in enumerate(rows)]
    means = intervals(fit, method, level=level, quantities=quantities, seed=seed).values()
    means = [replace(mean, name=prediction(fit.form, row).name) for row, mean in zip(rows, means, strict=True)]
    halves = (form_error or discrepancy(fit)).half_widths(columns, level)
    runs = map(partial(_of_a_run, fit), means, halves)
    return [
        Prediction(row, mean.estimate, mean, run, place)
        for row, mean, run, place in zip(rows, means, runs, places, strict=True)
    ]


def titles(level: float) -> list[str]:
    """What the two intervals are called wherever they are shown: of the mean, then of a run."""
    return [f"{percent(level)} interval of the mean", f"{percent(level)} interval of a new run"]


def percent(level: float) -> str:
    """A level as people write it: 95%, 99.9%."""
    return f"{100 * level:.10g}%"


def rows_of(table: Points | Mapping[str, np.ndarray], fit: Fit) -> list[dict[str, float]]:
    """The law's columns of each row of a table."""
    columns = {name: table.numbers(name) if isinstance(table, Points) else table[name] for name in fit.form.inputs}
    return [dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True)]


def _of_a_run(fit: Fit, mean: Interval, half: float) -> Interval:
    """The mean's interval with the half-width of a run about it added, as independent, on each side of the estimate.

    Where a bootstrap's interval does not hold the estimate, that side has the run's alone. An end that is open for the
    mean is open for a run.
    """
    objective = fit.problem.objective
    centre, low, high = map(float, objective.transform(np.array([mean.estimate, mean.low, mean.high])))
    low = centre - np.hypot(max(centre - low, 0.0), half)
    high = centre + np.hypot(max(high - centre, 0.0), half)
    if objective.space == "log":
        low, high = np.exp(low), np.exp(high)
    low, high = max(float(low), 0.0), float(high)  # no loss is negative
    # The transform and its inverse round: a run's interval is never the narrower one.
    low, high = min(low, mean.low), max(high, mean.high)
    return Interval(mean.name, mean.estimate, low, high, mean.level, mean.method, mean.open_below, mean.open_above)
