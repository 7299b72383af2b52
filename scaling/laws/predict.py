"""The predictions of a law for runs, with two intervals: of the law's mean, and of the loss of a new run.

The first includes only the error of the fit, as if the law's form were true. The second adds the noise of one run and
the error of the form at that run, so observed losses are compared with the second. The error of the form is estimated
from the residuals of the fit:

    observed(x) = law(x; θ) + slope(x) u(x) + ε

u is the form's error as an error of a run's effective size (0.1: the run behaves like one about 10% larger or smaller),
a Gaussian process over the logarithms of the law's axes; slope(x) is how much the law changes per unit of log size; ε
is the noise of one run. θ is fitted as if u were zero, so what the fit absorbs of u is taken off. Kennedy and O'Hagan
2001, J. Royal Statist. Soc. B 63(3), section 4; the kernel is in Rasmussen and Williams 2006, section 4.2.1.

The size of u carries over between studies: it is between 0.23 and 0.71 on seven published ones, whatever their
architecture, data and loss (docs/coverage.md). That is the prior of a study; its own residuals then weigh in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from scaling.laws.fit import STARTS, FittedLaw, bounds_of, fit, predict, refuse_fixed, table_of_columns
from scaling.laws.formula import numeric
from scaling.laws.intervals import EXACT, LEVEL, Interval, Method, is_wide, student
from scaling.laws.law import (
    EXAMPLES,
    PREFIX,
    PROPORTIONS,
    SIGNED,
    SIZE_EXPONENTS,
    VARIANT,
    Columns,
    Law,
    by_step,
    composed,
    with_compute,
)
from scaling.laws.points import Points
from scaling.laws.problem import Objective, prediction

# Decades beyond the points, along one axis, within which 95% intervals held 91% or more of the runs of published
# studies (docs/coverage.md); of N times D it is twice as many.
TESTED = 1.0
LENGTH = 1.5  # decades over which the form's error changes
SIZE, SPREAD = 0.4, 0.5  # of u: its median over published studies, and the standard deviation of its logarithm
SIZES = np.geomspace(1e-3, 20.0, 45)
NOISES = np.geomspace(0.02, 1.6, 40)  # relative to the residuals
LEARNED = 0.85  # weight of what the residuals show of u at a target; the rest is what is expected before seeing them
LARGEST = 400  # points that the process is conditioned on: more would change little, and cost their cube
STEP = 1e-4  # of log size or of the loss, for slopes


class Discrepancy:
    """The form's error and the noise of a run, from the residuals of a fit with a degree of freedom or more.

    `size` and `spread` are the median of u's size before they are seen, and the standard deviation of its logarithm.
    Arrays over points are scaled by the root of the points' weights, so that their noise is equal, and combined so that
    what errors points share do not correlate.
    """

    def __init__(self, fit: FittedLaw, size: float = SIZE, spread: float = SPREAD):
        count = len(fit.problem.observed)
        # The points are in the order of their columns, so that every n-th of them represents them all.
        chosen = fit.problem.at(np.unique(np.linspace(0, count - 1, min(count, LARGEST)).round().astype(int)))
        self.fit, self.seen, self.root = fit, _seen(fit, chosen.columns), np.sqrt(chosen.weights)
        self.whiten = (lambda values: values) if chosen.shared is None else chosen.shared.whiten
        self.jacobian = self.whiten(_jacobian(fit, chosen.columns).T * self.root).T
        residual = self.whiten(-self.root * chosen.errors(fit.u[None])[0])
        kernel = _covariance(self.seen, self.seen) * self.root[:, None] * self.root
        self.kernel = self.whiten(self.whiten(kernel).T)
        # Contrasts of the residuals that fitting leaves alone; the kernel is diagonal in them.
        left, singular, _ = np.linalg.svd(self.jacobian)
        rank = int((singular > singular[0] * len(self.root) * np.finfo(float).eps).sum())
        variances, rotation = np.linalg.eigh(left[:, rank:].T @ self.kernel @ left[:, rank:])
        self.basis, self.variances = left[:, rank:] @ rotation, np.maximum(variances, 0.0)
        self.contrasts = self.basis.T @ residual
        scale = float(np.sqrt(np.mean(self.contrasts**2))) if len(self.contrasts) else 0.0
        self.sizes, self.noises, self.weights = np.zeros(1), np.zeros(1), np.ones(1)
        if scale >= EXACT * max(1.0, abs(float(np.mean(fit.problem.observed)))):
            # The posterior of pairs of a size of u and a noise: the prior is log-normal in the first, flat in log noise
            sizes, noises = (grid.reshape(-1) for grid in np.meshgrid(SIZES, scale * NOISES, indexing="ij"))
            expected = sizes[:, None] ** 2 * self.variances + noises[:, None] ** 2
            density = -0.5 * (np.log(expected) + self.contrasts**2 / expected).sum(1)
            density -= 0.5 * (np.log(sizes / size) / spread) ** 2
            weights = np.exp(density - density.max())
            relevant = weights > 1e-4  # of the largest
            self.sizes, self.noises, weights = sizes[relevant], noises[relevant], weights[relevant]
            self.weights = weights / weights.sum()

    @property
    def noise(self) -> float:
        """The standard deviation of one run, in the objective's space."""
        return math.sqrt(float(self.weights @ self.noises**2))

    def half_widths(self, rows: Columns, level: float) -> np.ndarray:
        """Half of the interval in which a new run at each row lies around the law's mean there, were θ's noise zero."""
        if not self.noise:  # the points lie on the law
            return np.zeros(len(next(iter(rows.values()))))
        gain, here = _jacobian(self.fit, rows) @ np.linalg.pinv(self.jacobian), _seen(self.fit, rows)
        cross = self.whiten(_covariance(here, self.seen) * self.root)
        before = here.slope**2 - 2.0 * (gain * cross).sum(1) + ((gain @ self.kernel) * gain).sum(1)
        cross = (cross - gain @ self.kernel) @ self.basis
        size, noise = self.sizes[:, None] ** 2, self.noises[:, None] ** 2
        spread = size * self.variances + noise
        expected = size * (self.contrasts / spread) @ cross.T
        remaining = size * before - size**2 * (1.0 / spread) @ (cross**2).T
        learned = expected**2 + np.maximum(remaining, 0.0)
        # The expected square of new run minus fitted law, without the error of θ that comes from noise.
        variance = self.weights @ (LEARNED * learned + (1.0 - LEARNED) * size * before + noise)
        # Student's quantile; of many points more and more their residuals' own, whose tails are seldom normal.
        quantile, count = student(level, self.fit.degrees_of_freedom), len(self.root)
        rank = math.ceil((count + 1) * level)
        if rank <= count:
            standardised = np.abs(self.basis @ self.contrasts) / np.sqrt(self.basis**2 @ (self.weights @ spread))
            # At 50 points the study's own quantile counts half.
            quantile *= (float(np.sort(standardised)[rank - 1]) / quantile) ** (count / (count + 50.0))
        return quantile * np.sqrt(variance)


class Seen(NamedTuple):
    """Runs as the process sees them."""

    places: np.ndarray  # `[runs, axes]`, in decades
    slope: np.ndarray  # of the law, in the objective's space, per unit of log size along its steepest direction
    kind: np.ndarray  # the code of each run's variant


def _seen(fit: FittedLaw, rows: Columns) -> Seen:
    """A loss counts as the size that it falls with; a proportion of 0 is a decade below the lowest of the fit; a column
    whose values have no logarithm is measured by their spread.
    """
    places, total = [], 0.0
    for name in fit.form.axes:
        fitted, values, power = fit.problem.columns[name], rows[name], SIZE_EXPONENTS.get(name, 1.0)
        if fitted.min() > 0:
            positive = np.where(values > 0, values, 0.1 * fitted.min())
            places.append(np.log(positive) / (math.log(10.0) * power))
            moved = [values * math.exp(step * power) for step in (STEP, -STEP)]
        else:
            unit = float(np.std(fitted)) or 1.0
            places.append(values / unit)
            moved = [values + step * unit for step in (STEP, -STEP)]
        more, less = (fit.problem.objective.transform(predict(fit.form, fit.theta, {**rows, name: m})) for m in moved)
        total = total + ((more - less) / (2.0 * STEP)) ** 2
    kind = np.asarray(rows.get(VARIANT, np.zeros(len(places[0]))))
    return Seen(np.column_stack(places), np.sqrt(total), kind)


def _covariance(one: Seen, other: Seen) -> np.ndarray:
    """The covariance of slope × u between two tables of runs: Matérn's, ν = 5/2 in decades, zero between runs of two
    kinds.
    """
    distance = np.sqrt(5.0 * ((one.places[:, None] - other.places) ** 2).sum(-1)) / LENGTH
    kernel = (1.0 + distance + distance**2 / 3.0) * np.exp(-distance)
    return kernel * (one.kind[:, None] == other.kind) * one.slope[:, None] * other.slope


def _jacobian(fit: FittedLaw, rows: Columns) -> np.ndarray:
    """The law's derivative by the solver's coordinates, in the objective's space, `[runs, parameters]`."""
    return fit.problem.derivative(fit.u[None], rows)[0, 1:].T


@dataclass(frozen=True)
class Prediction:
    """The law at one row of its columns. Without a method, or a degree of freedom, there are no intervals."""

    row: Mapping[str, float]
    estimate: float
    mean: Interval | None
    run: Interval | None
    # Decades beyond the points by axis: positive above the largest, negative below the smallest, none within.
    decades_outside: Mapping[str, float]

    @property
    def is_tested(self) -> bool:
        """Whether intervals were tested this far outside; a loss counts as the size that it falls with."""
        limits = {"C": 2.0 * TESTED} | {name: TESTED * power for name, power in SIZE_EXPONENTS.items()}
        return all(abs(far) <= limits.get(name, TESTED) for name, far in self.decades_outside.items())

    def is_identified(self, target: str) -> bool:
        """Whether both intervals are closed and narrow enough to state it; without them that is not judged."""
        # A score lies between 0 and 1 and a difference of losses may be 0: their intervals need only be closed.
        judged = target not in PROPORTIONS | SIGNED
        bounds = [bound for bound in (self.mean, self.run) if bound is not None]
        return not any(bound.open_below or bound.open_above or (judged and is_wide(bound)) for bound in bounds)

    def to_json(self) -> dict[str, Any]:
        mean, run = (None if interval is None else interval.to_json() for interval in (self.mean, self.run))
        outside = {"decades_outside": dict(self.decades_outside), "tested": self.is_tested}
        return {"interval_mean": mean, "interval_run": run, **outside}


def decades_outside(fit: FittedLaw, row: Mapping[str, float]) -> dict[str, float]:
    """The distance of the row from the points of the fit, in decades; an axis without a logarithm has none."""
    columns = with_compute({name: fit.problem.columns[name] for name in fit.form.axes})
    target = with_compute({name: float(row[name]) for name in fit.form.axes})
    far = {
        name: math.log10(target[name] / np.clip(target[name], values.min(), values.max()))
        for name, values in columns.items()
        if values.min() > 0 and target[name] > 0
    }
    return {name: float(np.round(distance, 4)) for name, distance in far.items() if abs(distance) > 1e-3}


@np.errstate(all="ignore")
def predict_runs(
    fit: FittedLaw | TwoStep,
    rows: Sequence[Mapping[str, float]],
    level: float = LEVEL,
    method: Method | None = "profile",
    form_error: Discrepancy | None = None,
) -> list[Prediction]:
    """The law at each row of its columns, with both intervals at `level`; the method None gives no intervals.

    `form_error` is the estimate of the form's error, by default from the residuals of this fit. A row may have
    `examples`, the number of examples of its score.
    """
    if not rows:
        return []
    if isinstance(fit, TwoStep):
        first = predict_runs(fit.loss, rows, level, method)
        losses = [{**row, "loss": one.estimate} for row, one in zip(rows, first, strict=True)]
        second = predict_runs(fit.task, losses, level, method)
        return [_of_both(fit, loss, task) for loss, task in zip(first, second, strict=True)]
    form, space = fit.form, fit.problem.objective
    inputs = [{name: float(row[name]) for name in form.inputs} for row in rows]
    columns = {name: np.array([row[name] for row in inputs]) for name in form.inputs}
    places = [decades_outside(fit, row) for row in inputs]
    if method is None or fit.degrees_of_freedom < 1:
        estimates = map(float, fit.predict(**columns))
        return [Prediction(row, at, None, None, place) for row, at, place in zip(inputs, estimates, places)]
    bounds = bounds_of(fit, [prediction(form, row) for row in inputs], method, level)
    process, predictions = form_error or Discrepancy(fit), []
    estimates = np.array([mean.estimate for mean in bounds])
    missing = _missing_noise(fit, rows, estimates, process.noise)
    halves = np.hypot(process.half_widths(columns, level), student(level, fit.degrees_of_freedom) * missing)
    for row, bound, half, place in zip(inputs, bounds, halves, places, strict=True):
        of_mean = _distances(space, bound)
        # A run's error adds to that of the mean as independent, on each side of the estimate. A bootstrap's interval
        # need not hold the estimate.
        of_run = np.hypot(np.maximum(of_mean, 0.0), half)
        mean, run = (_around(space, bound, distances, form.target) for distances in (of_mean, of_run))
        predictions.append(Prediction(row, bound.estimate, mean, run, place))
    return predictions


def _missing_noise(fit: FittedLaw, rows: Sequence[Mapping[str, float]], scores: np.ndarray, noise: float) -> np.ndarray:
    """The part of the binomial noise of a score, over a row's examples, that the scatter of the points does not hold.

    Without a number of its own a row has that of the points, where the table states it.
    """
    if fit.form.target not in PROPORTIONS:
        return np.zeros(len(rows))
    usual = float(np.median(fit.points.numbers(EXAMPLES))) if EXAMPLES in fit.points else math.inf
    examples = np.array([row.get(EXAMPLES) or usual for row in rows])
    variance = np.maximum(scores * (1.0 - scores), 0.0) / examples
    variance = variance / scores**2 if fit.problem.objective.space == "log" else variance
    return np.where(np.isfinite(examples), np.sqrt(np.maximum(variance - noise**2, 0.0)), 0.0)


def _distances(space: Objective, interval: Interval) -> np.ndarray:
    """The distance of both ends from the estimate, in the objective's space: infinite where one is open."""
    centre = space.transform(interval.estimate)
    ends = np.array([centre - space.transform(interval.low), space.transform(interval.high) - centre])
    return np.where(np.isfinite(ends), ends, np.inf)


def _around(space: Objective, interval: Interval, distances: np.ndarray, target: str) -> Interval:
    """The interval with its ends at these distances from the estimate; one at an infinite distance is open.

    No loss and no score is negative, and no score above 1; a difference of losses may be negative.
    """
    ends = space.inverse(space.transform(interval.estimate) + np.array([-1.0, 1.0]) * distances)
    if target not in SIGNED:
        ends = np.clip(ends, 0.0, 1.0 if target in PROPORTIONS else np.inf)
    low, high = np.where(np.isinf(distances), [-np.inf, np.inf], ends).tolist()
    return replace(interval, low=low, high=high)


def rows_of(table: Points, fit: FittedLaw | TwoStep) -> list[dict[str, float]]:
    """The law's columns of each row of a table, and the number of examples of its score where it states it."""
    form = fit.form
    names = [*form.inputs, *([EXAMPLES] if form.target in PROPORTIONS and EXAMPLES in table else [])]
    columns = [table.numbers(name).tolist() for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


@dataclass(frozen=True, eq=False)
class TwoStep:
    """A law of loss and a law of a task's score from that loss.

    Bhagia et al. 2024, arXiv 2412.04403, section 3; Gadre et al. 2024, arXiv 2403.08540, section 2. `predict_runs` and
    all that uses it take it as they take a `Fit`.
    """

    loss: FittedLaw
    task: FittedLaw
    rows: np.ndarray  # for each point of the second step the same run's point of the first

    @cached_property
    def form(self) -> Law:
        return composed(self.loss.form, self.task.form)

    @property
    def points(self) -> Points:
        return self.loss.points

    @property
    def degrees_of_freedom(self) -> int:
        """The number of the step that has fewer."""
        return min(self.loss.degrees_of_freedom, self.task.degrees_of_freedom)

    @property
    def parameters_fitted(self) -> int:
        """The number of the step that has more."""
        return max(self.loss.parameters_fitted, self.task.parameters_fitted)

    @property
    def estimates(self) -> dict[str, float]:
        """The parameters of the first step under their names, those of the second with `task_` before them."""
        return self.loss.estimates | {PREFIX + name: value for name, value in self.task.estimates.items()}

    def predict(self, **inputs: Any) -> np.ndarray:
        """The score at these columns of the law of loss."""
        return self.task.predict(loss=self.loss.predict(**inputs))

    @cached_property
    def correlation(self) -> float:
        """The correlation of a run's errors in the two steps, log of the loss and score from the loss."""
        # Ten runs without a correlation count with those of the fit: few runs show little of one.
        doubted = len(self.rows) / (len(self.rows) + 10.0)
        return doubted * _cosine(self.loss.residuals[self.rows], self.task.residuals)

    def correlation_of_means(self, inputs: Mapping[str, float]) -> float:
        """The correlation of the errors of the two laws at this row, the second at the loss that the first predicts."""
        row = {name: np.array([inputs[name]]) for name in self.loss.form.inputs}
        moved = []  # how far an error of each point moves each law there, in the order of its table
        for law, place in ((self.loss, row), (self.task, {"loss": self.loss.predict(**row)})):
            problem, root = law.problem, np.sqrt(law.problem.weights)
            gain = _jacobian(law, place) @ np.linalg.pinv(law.linear[1].T)
            # V^-½ is symmetric, so that it acts on the errors as it does on the rows.
            moved.append(law.in_table_order(problem.whitened(gain * root))[0])
        second = np.zeros(len(self.points))
        second[self.rows] = moved[1]
        return self.correlation * _cosine(moved[0], second)

    def without(self, mask: np.ndarray, starts: int = STARTS) -> TwoStep:
        """The same steps fitted to the points outside the mask."""
        first, second = self.loss.without(mask, starts), self.task.without(mask[self.rows], starts)
        return TwoStep(first, second, np.searchsorted(np.flatnonzero(~mask), self.rows[~mask[self.rows]]))


def _cosine(first: np.ndarray, second: np.ndarray) -> float:
    size = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / size if size > 0 else 0.0


def fit_two_steps(
    form: Law,
    points: Points | Mapping[str, Any],
    *,
    weights: np.ndarray | None = None,
    group: str | np.ndarray | None = None,
    fixed: Mapping[str, float] | None = None,
    **choices: Any,
) -> TwoStep:
    """Fit both steps to the same runs, with the arguments of `fit`; a run without a score enters only the first.

    In `fixed`, parameters of the second step have the prefix `task_`.
    """
    points = table_of_columns(points)
    refuse_fixed(form, fixed or {})
    labels, scored = points.labels(group) if isinstance(group, str) else group, has_score(form, points)
    first, second = (
        fit(
            law,
            points if mask.all() else points.where(mask),
            weights=None if weights is None else weights[mask],
            group=None if labels is None else labels[mask],
            fixed=constants,
            **choices,
        )
        for law, mask, constants in zip(form.steps, (np.ones(len(points), bool), scored), by_step(fixed or {}))
    )
    return TwoStep(first, second, np.flatnonzero(scored))


def has_score(form: Law, points: Points) -> np.ndarray:
    """Whether each run has a score; refused where none has."""
    scored = np.isfinite(numeric(form.target, points[form.target], points.source))
    points.refuse(not scored.any(), "no run has a score", "evaluate some", form.target)
    return scored


def _of_both(fit: TwoStep, loss: Prediction, task: Prediction) -> Prediction:
    """The errors of both steps added, with their correlation, on each side of the score.

    The ends of the loss's intervals are carried through the law of the task, whatever its curvature; the half-widths of
    the task's intervals are those at the predicted loss. The errors of the means and what a run adds to them have each
    their own correlation.
    """
    place = {**loss.decades_outside, **task.decades_outside}
    if loss.mean is None or loss.run is None or task.mean is None or task.run is None:
        return Prediction(loss.row, task.estimate, None, None, place)
    space, predict_score = fit.task.problem.objective, fit.task.predict
    below, above = predict_score(loss=loss.estimate * np.array([1 - STEP, 1 + STEP]))
    sign, bounds = (1 if above > below else -1), []
    for interval in (loss.mean, loss.run):
        losses = np.array([interval.low, interval.high])[::sign]
        low, high = np.where(np.isfinite(losses), predict_score(loss=losses), np.nan).tolist()
        bounds.append(replace(interval, estimate=task.estimate, low=low, high=high))
    of_loss, of_task = (
        [np.maximum(_distances(space, bound), 0.0) for bound in step] for step in (bounds, (task.mean, task.run))
    )
    more = [np.sqrt(np.maximum(run**2 - mean**2, 0.0)) for mean, run in (of_loss, of_task)]

    def added(parts: Sequence[np.ndarray], correlation: float) -> np.ndarray:
        """The half-widths of a sum of two errors."""
        first, second = parts
        return np.sqrt(np.maximum(first**2 + second**2 + 2.0 * sign * correlation * first * second, 0.0))

    half = added((of_loss[0], of_task[0]), fit.correlation_of_means(loss.row))
    halves = half, np.hypot(half, added(more, fit.correlation))
    is_open = ~np.isfinite([*of_loss, *of_task]).all(axis=0)
    bound = replace(task.run, name=prediction(fit.form, loss.row).name)
    mean, run = (_around(space, bound, np.where(is_open, np.inf, each), fit.form.target) for each in halves)
    return Prediction(loss.row, task.estimate, mean, run, place)
