"""What a law predicts for runs, with two intervals: of the law's mean there, and of the loss of a new run.

The first holds the error of the fit alone, as if the law's form were true. The second adds the noise of one run and
the error of the form at that run, so it is the one that observed losses are compared with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scaling.law.discrepancy import Discrepancy, discrepancy
from scaling.law.extrapolation import Extrapolation, extrapolation
from scaling.law.fit import Fit
from scaling.law.identification import is_wide_prediction
from scaling.law.interval import Interval, Method, intervals
from scaling.law.noise import student
from scaling.law.points import EXAMPLES, PROPORTIONS, SIGNED, Points
from scaling.law.quantity import prediction
from scaling.law.two_step import TwoStep

STEP = 1e-4  # of the loss, for the sign of the slope of a law of a task


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
    fit: Fit | TwoStep,
    rows: Sequence[Mapping[str, float]],
    level: float = 0.95,
    method: Method | None = "profile",
    *,
    seed: int = 0,
    form_error: Discrepancy | None = None,
) -> list[Prediction]:
    """The law at each row of its columns, with both intervals at `level` by `method`; None asks for no intervals.

    `form_error` is what is known of the form's error, by default what the residuals of this fit show. A row may have
    `examples`, the number of examples that its score will be the mean of.
    """
    if isinstance(fit, TwoStep):
        return _of_two_steps(fit, rows, level, method, seed)
    examples = [row.get(EXAMPLES) or _examples(fit) for row in rows]
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
    means = [
        _possible(replace(mean, name=prediction(fit.form, row).name), fit.form.target)
        for row, mean in zip(
            rows, intervals(fit, method, level=level, quantities=quantities, seed=seed).values(), strict=True
        )
    ]
    process = form_error or discrepancy(fit)
    halves = process.half_widths(columns, level)
    missing = [
        _missing_noise(fit, mean.estimate, count, process.noise) for mean, count in zip(means, examples, strict=True)
    ]
    halves = np.hypot(halves, student(level, fit.degrees_of_freedom) * np.array(missing))
    runs = [_of_a_run(fit, mean, half) for mean, half in zip(means, halves, strict=True)]
    return [
        Prediction(row, mean.estimate, mean, run, place)
        for row, mean, run, place in zip(rows, means, runs, places, strict=True)
    ]


def is_identified(prediction: Prediction, target: str) -> bool:
    """Whether both intervals are closed and narrow enough to state the prediction; without them that is not judged."""
    return not any(
        bound.open_below or bound.open_above or is_wide_prediction(target, bound.estimate, bound.low, bound.high)
        for bound in (prediction.mean, prediction.run)
        if bound is not None
    )


def titles(level: float) -> list[str]:
    """What the two intervals are called wherever they are shown: of the mean, then of a run."""
    return [f"{percent(level)} interval of the mean", f"{percent(level)} interval of a new run"]


def percent(level: float) -> str:
    """A level as people write it: 95%, 99.9%."""
    return f"{100 * level:.10g}%"


def rows_of(table: Points | Mapping[str, np.ndarray], fit: Fit | TwoStep) -> list[dict[str, float]]:
    """The law's columns of each row of a table, and the number of examples of its score where it states it."""
    more = [EXAMPLES] if fit.form.target in PROPORTIONS and isinstance(table, Points) and EXAMPLES in table else []
    names = [*fit.form.inputs, *more]
    columns = {name: table.numbers(name) if isinstance(table, Points) else table[name] for name in names}
    return [dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True)]


def _examples(fit: Fit) -> float | None:
    """How many examples the scores of the points are means of, where the table states it."""
    if fit.form.target not in PROPORTIONS or EXAMPLES not in fit.points:
        return None
    return float(np.median(fit.points.numbers(EXAMPLES)))


def _missing_noise(fit: Fit, score: float, examples: float | None, noise: float) -> float:
    """What the scatter of the points lacks of the binomial noise of a score of that many examples."""
    if fit.form.target not in PROPORTIONS or not examples:
        return 0.0
    variance = max(score * (1.0 - score), 0.0) / examples
    if fit.problem.objective.space == "log":
        variance /= score**2
    return math.sqrt(max(variance - noise**2, 0.0))


def _of_a_run(fit: Fit, mean: Interval, half: float) -> Interval:
    """The mean's interval with the half-width of a run about it added, as independent, on each side of the estimate.

    Where a bootstrap's interval does not hold the estimate, that side has the run's alone. An end that is open for the
    mean is open for a run.
    """
    space = fit.problem.objective
    centre, low, high = map(float, space.transform(np.array([mean.estimate, mean.low, mean.high])))
    low = centre - math.hypot(max(centre - low, 0.0), half)
    high = centre + math.hypot(max(high - centre, 0.0), half)
    # The transform and its inverse round: a run's interval is never the narrower one.
    low, high = min(float(space.inverse(low)), mean.low), max(float(space.inverse(high)), mean.high)
    return _possible(replace(mean, low=low, high=high), fit.form.target)


def _possible(interval: Interval, target: str) -> Interval:
    """No loss and no score is negative, and no score above 1; a difference of losses may be."""
    if target in SIGNED:
        return interval
    high = min(interval.high, 1.0) if target in PROPORTIONS else interval.high
    return replace(interval, low=max(interval.low, 0.0), high=high)


def _of_two_steps(
    fit: TwoStep, rows: Sequence[Mapping[str, float]], level: float, method: Method | None, seed: int
) -> list[Prediction]:
    """The score at each row by way of the loss, with the errors of both steps."""
    if not rows:
        return []
    first = predict_runs(fit.loss, rows, level, method, seed=seed)
    losses = [
        {"loss": prediction.estimate, **({EXAMPLES: row[EXAMPLES]} if EXAMPLES in row else {})}
        for row, prediction in zip(rows, first, strict=True)
    ]
    second = predict_runs(fit.task, losses, level, method, seed=seed)
    return [_of_both(fit, loss, task) for loss, task in zip(first, second, strict=True)]


def _of_both(fit: TwoStep, loss: Prediction, task: Prediction) -> Prediction:
    """The errors of both steps added, with their correlation, on each side of the score.

    The ends of the loss's intervals are carried through the law of the task, whatever its curvature; the half-widths of
    the task's intervals are those at the predicted loss. The errors of the means and what a run adds to them have each
    their own correlation.
    """
    place = replace(loss.extrapolation, decades={**loss.extrapolation.decades, **task.extrapolation.decades})
    if loss.mean is None or loss.run is None or task.mean is None or task.run is None:
        return Prediction(loss.row, task.estimate, None, None, place)
    space = fit.task.problem.objective
    around = loss.estimate * np.array([1 - STEP, 1 + STEP])
    rises = bool(np.diff(fit.task.predict(loss=around))[0] > 0)
    sign = 1.0 if rises else -1.0
    centre = float(space.transform(np.array(task.estimate)))
    bounds = ((loss.mean, loss.run, True), (task.mean, task.run, False))
    level, method = task.run.level, task.run.method
    of_means, of_runs = sign * fit.correlation_of_means(loss.row), sign * fit.correlation

    def half(interval: Interval, upper: bool, *, through: bool) -> float:
        """Of one end: of the task's own interval, or of the loss's carried through the law of the task."""
        above = upper == rises if through else upper
        end = interval.high if above else interval.low
        if interval.open_above if above else interval.open_below:
            return math.inf
        value = float(fit.task.predict(loss=end)) if through else end
        distance = float(space.transform(np.array(value))) - centre
        return max(distance if upper else -distance, 0.0) if math.isfinite(distance) else math.inf

    def ends(upper: bool) -> tuple[float, float]:
        (loss_mean, loss_run), (task_mean, task_run) = (
            (half(mean, upper, through=through), half(run, upper, through=through)) for mean, run, through in bounds
        )
        if not all(map(math.isfinite, (loss_mean, loss_run, task_mean, task_run))):
            return math.inf, math.inf
        mean = _correlated(loss_mean, task_mean, of_means)
        return mean, math.hypot(mean, _correlated(_added(loss_mean, loss_run), _added(task_mean, task_run), of_runs))

    (mean_below, run_below), (mean_above, run_above) = ends(False), ends(True)
    name = prediction(fit.form, loss.row).name

    def bounded(below: float, above: float) -> Interval:
        low = 0.0 if math.isinf(below) else float(space.inverse(centre - below))
        high = math.inf if math.isinf(above) else float(space.inverse(centre + above))
        interval = Interval(name, task.estimate, low, high, level, method, math.isinf(below), math.isinf(above))
        return _possible(interval, fit.form.target)

    return Prediction(loss.row, task.estimate, bounded(mean_below, mean_above), bounded(run_below, run_above), place)


def _added(mean: float, run: float) -> float:
    """What a run adds to the error of the mean."""
    return math.sqrt(max(run**2 - mean**2, 0.0))


def _correlated(first: float, second: float, correlation: float) -> float:
    """The half-width of a sum of two errors."""
    return math.sqrt(max(first**2 + second**2 + 2.0 * correlation * first * second, 0.0))
