"""Leave runs out and predict them from the others: hold-outs, the back-test of a fit, and `auto`, the choice of a law.

A law that fits best need not extrapolate best. `choose` fits every candidate, under several weightings, without the
largest fifth of the runs by cost and by each of its columns, and predicts them; one more test leaves out every fourth
run, because a table of few large runs, as a design makes it, says little without them. The choice is the one with the
lowest error over these tests. Weights in proportion to a power of the cost let the runs near the target count more:
where a law's form is wrong at small runs, these would otherwise decide it (Choshen et al. 2024, arXiv 2410.11840, drop
them).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count as count_from
from itertools import product
from typing import Any

import numpy as np

from scaling.base.errors import ScalingError, plural
from scaling.laws.catalogue import laws, named
from scaling.laws.diagnostics import POINTS_A_PARAMETER
from scaling.laws.fit import FittedLaw, fit, problem_of
from scaling.laws.formula import matching
from scaling.laws.intervals import Method
from scaling.laws.law import Law, with_compute
from scaling.laws.points import Points
from scaling.laws.predict import Prediction, TwoStep, has_score, predict_runs, rows_of
from scaling.laws.problem import Objective, named_objective
from scaling.laws.solver import COMPARED
from scaling.laws.written import constrained_law

HELD_OUT = "held_out"  # The column that marks the held-out runs in the project's own tables
YES = {**dict.fromkeys(("1", "true", "yes"), True), **dict.fromkeys(("0", "false", "no", "", "nan"), False)}


POWERS = (0.0, 0.25, 0.5)  # Weights are in proportion to these powers of the cost
LARGEST = 0.2  # The fraction of the runs, the largest by cost or by one column, that each test of a choice leaves out
STARTS, FINAL_STARTS = 48, 256
SAME_TARGET = frozenset({"C", "M", "S"})  # columns that N and D already hold where a table has both
SHAPE = frozenset({"width", "depth"})


def largest(values: np.ndarray, fraction: float) -> np.ndarray:
    """Whether each run is among the largest fraction of all, by whole levels of `values`."""
    return values >= np.sort(values)[-max(1, round(fraction * len(values)))] * (1.0 - 1e-9)


def split_held_out(points: Points, text: str | None) -> tuple[Points, Points | None]:
    """The points to fit and those held out: `N>=1e9`, or `N` alone for the largest N, or `none`.

    By default, and under `largest`, those that the table's own column holds out.
    """
    if text in (None, "none", "largest"):
        mask = held_out_runs(points)
        if text == "none" or not mask.any():
            return points, None
    elif any(sign in text for sign in "<>="):
        mask = matching(text, points.columns, "hold-out", points.source)
    else:
        column = points.numbers(text.strip().strip("`"))
        mask = column == column.max()
    what = f"holds out {'every run' if mask.all() else 'no run'}"
    points.refuse(mask.all() or not mask.any(), what, "choose another bound", "hold-out", value=text or HELD_OUT)
    return points.hold_out(mask)


def held_out_runs(points: Points) -> np.ndarray:
    """Whether the table's own column holds out each run; none without the column."""
    words = [str(cell).strip().casefold().removesuffix(".0") for cell in points.columns.get(HELD_OUT, ())]
    for word in words:
        points.refuse(word not in YES, "is neither 0 nor 1", "write 1 for a held-out run", HELD_OUT, value=word)
    return np.array([YES[word] for word in words] or np.zeros(len(points)), bool)


@dataclass(frozen=True)
class HeldOut:
    """Runs that took no part in a fit, next to what it predicts for them."""

    points: Points
    predictions: tuple[Prediction, ...]
    observed: np.ndarray

    @property
    def errors(self) -> np.ndarray:
        """Predicted less observed."""
        return np.array([prediction.estimate for prediction in self.predictions]) - self.observed

    @property
    @np.errstate(divide="ignore", invalid="ignore")
    def relative_errors(self) -> np.ndarray:
        """Infinite or not a number where a score is 0: `errors` are known there too."""
        return self.errors / self.observed

    @property
    def covered(self) -> np.ndarray:
        """Whether each loss is inside its interval of a new run; empty without intervals."""
        runs = [prediction.run for prediction in self.predictions if prediction.run is not None]
        return np.array([run.covers(loss) for run, loss in zip(runs, self.observed)], bool)

    def to_json(self) -> dict[str, Any]:
        run, document = self.predictions[0].run, dict[str, Any](n=len(self.observed))
        for name, errors in (("error", self.errors), ("relative_error", self.relative_errors)):
            document |= {f"mean_absolute_{name}": float(np.abs(errors).mean())}
            document |= {f"largest_{name}": float(np.abs(errors).max())}
        return document | {"covered": run and float(np.mean(self.covered)), "level": run and run.level}


def judge(
    fit: FittedLaw | TwoStep, held_out: Points, level: float = 0.95, method: Method | None = "profile"
) -> HeldOut:
    """What a fit predicts for points it has not seen; in two steps for those that have a score."""
    if isinstance(fit, TwoStep):
        held_out = held_out.where(has_score(fit.form, held_out))
    held_out = held_out.with_numbers(fit.form)
    predictions = predict_runs(fit, rows_of(held_out, fit), level, method)
    return HeldOut(held_out, tuple(predictions), held_out[fit.form.target])


def back_test(fit: FittedLaw | TwoStep, level: float = 0.95, choice: Choice | None = None) -> list[dict[str, Any]]:
    """For each axis of the law, and for compute, the largest fifth and the largest two fifths of the fitted points.

    The same law is fitted to the points that are left. A law of a `choice` is chosen again, and the choice has not seen
    the runs that are left out either. Refits that leave fewer than three points for each parameter, or that do not
    converge, are left out. The rows are those of docs/json.md.
    """
    columns = with_compute({name: fit.points.numbers(name) for name in fit.form.axes})
    tests: dict[tuple[str, int], dict[str, Any]] = {}
    for (axis, values), fraction in product(columns.items(), (0.2, 0.4)):
        mask = largest(values, fraction)
        key, few = (axis, int(mask.sum())), (~mask).sum() < POINTS_A_PARAMETER * fit.parameters_fitted
        if values.min() <= 0 or key in tests or few:
            continue
        with suppress(ScalingError):
            smaller = fit.without(mask, FINAL_STARTS) if choice is None else choice.without(fit, mask)
            judged = judge(smaller, fit.points.hold_out(mask)[1], level, "t")
            document = judged.to_json()
            tests[key] = {
                "axis": axis,
                "from": float(values[mask].min()),
                "runs": document["n"],
                "decades_outside": max(one.decades_outside.get(axis, 0.0) for one in judged.predictions),
                "mean_absolute_relative_error": document["mean_absolute_relative_error"],
                "bias": float(np.mean(judged.relative_errors)),
                "mean_absolute_error": document["mean_absolute_error"],
                "mean_error": float(np.mean(judged.errors)),
                "covered": float(judged.covered.sum()) / document["n"],
                "level": level,
                "law": smaller.form.name,
            }
    return [*tests.values()]


@dataclass(frozen=True)
class Trial:
    """One candidate: a law, an objective and a power of the cost as weight; its error in each test."""

    form: Law
    objective: Objective
    power: float
    # Root mean square error of the held-out runs, in the target's unit, by test; not a number where it was not fitted.
    errors: Mapping[str, float] = field(default_factory=dict)
    score: float = 1.0  # Geometric mean over the tests of its error over the lowest error there: 1 is best everywhere

    def fit(self, points: Points, starts: int = FINAL_STARTS, **choices: Any) -> FittedLaw:
        """The candidate fitted to points."""
        cost, (form, held) = cost_of(points), constrained_law(self.form, points)
        weights = None if cost is None or self.power == 0.0 else (cost / cost.max()) ** self.power
        return fit(form, points, objective=self.objective, weights=weights, fixed=held, starts=starts, **choices)


@dataclass(frozen=True)
class Choice:
    """The candidates in the order of their scores."""

    trials: tuple[Trial, ...]
    rows: Mapping[str, int]  # How many runs each test held out
    objective: Objective | None  # of all candidates, where one was asked for

    def fit(self, points: Points, **choices: Any) -> FittedLaw:
        """The best candidate fitted to points; the next one where it does not converge on these."""
        for trial in self.trials[:-1]:
            with suppress(ScalingError):
                return trial.fit(points, **choices)
        return self.trials[-1].fit(points, **choices)

    def without(self, fit: FittedLaw | TwoStep, mask: np.ndarray) -> FittedLaw:
        """The law that is chosen for the points of a fit outside the mask, fitted to these."""
        assert isinstance(fit, FittedLaw)
        rest, groups = fit.points.hold_out(mask)[0], None if fit.groups is None else fit.groups[~mask]
        return choose(rest, objective=self.objective, seed=fit.seed).fit(rest, group=groups, seed=fit.seed)

    def to_json(self) -> dict[str, Any]:
        trials = [
            {
                "law": trial.form.name,
                "objective_kind": trial.objective.name,
                "cost_power": trial.power,
                "errors": trial.errors,
                "score": trial.score,
            }
            for trial in self.trials
        ]
        return {"tests": self.rows, "trials": trials}


def candidates(points: Points) -> list[Law]:
    """The laws whose columns the table has, but for those in fewer columns than another that it has.

    The target is the first of `loss`, `loss_u` and the scores that the table has.
    """
    names = set(points.columns)
    if {"N", "D"} <= names:
        # A law of the shape is a candidate where the table has both columns of it and they vary.
        varies = all(name in names and len(np.unique(points[name])) > 2 for name in SHAPE)
        names -= SAME_TARGET if varies else SAME_TARGET | SHAPE
    domains = next(count for count in count_from(0) if f"p_{count + 1}" not in names)
    forms = [form for form in laws().values() if not form.name.startswith("mixture_")]
    if domains >= 2:
        forms += [named(f"mixture_{kind}_{domains}") for kind in ("exponential", "joint")]
    applicable = [form for form in forms if {*form.inputs, form.target} <= names]
    targets = ["loss", "loss_u", *(form.target for form in applicable)]
    target = next((name for name in targets if any(form.target == name for form in applicable)), None)
    what = f"no law has its columns in the table ({', '.join(points.columns)})"
    fix = f"name yours by {points.map_option(('N', 'D', 'loss'))}; `scaling explain law` lists their columns"
    points.refuse(target is None, what, fix, "law", value="auto")

    def check(form: Law) -> None:  # a column may have gaps or one value, and the points may lie on one line
        law, held = constrained_law(form, points)
        problem_of(law, points, tolerant_objective(form), fixed=held)

    fitting = passing([form for form in applicable if form.target == target], check)
    return [form for form in fitting if not any(set(form.inputs) < set(other.inputs) for other in fitting)]


def passing(forms: Sequence[Law], check: Callable[[Law], Any]) -> list[Law]:
    """The laws that a check does not refuse; where it refuses all, its last refusal."""
    passed, refused = [], []
    for form in forms:
        try:
            check(form)
            passed.append(form)
        except ScalingError as error:
            refused.append(error)
    if not passed:
        raise refused[-1]
    return passed


def cost_of(points: Points) -> np.ndarray | None:
    """The cost of each run: the column `cost`, else C, else N (times K) times D or H, else N; None without any."""
    if name := next((name for name in ("cost", "C") if name in points), None):
        return points.numbers(name)
    if "N" not in points:
        return None
    factors = [name for name in ("N", "K", "D" if "D" in points else "H") if name in points]
    return np.prod([points.numbers(name) for name in factors], axis=0)


def tolerant_objective(form: Law) -> Objective:
    """The objective of candidates: a penalty that tolerates outliers, in the space of the law's own objective."""
    is_linear = form.objective in ("squared", "huber")
    return named_objective("squared") if is_linear else named_objective("log_huber", 1e-2)


def choose(
    points: Points,
    forms: Sequence[Law | str] | None = None,
    *,
    objective: Objective | None = None,
    powers: Sequence[float] | None = None,
    seed: int = 0,
) -> Choice:
    """The candidates judged by what they predict for the largest runs, the best first.

    Deterministic: the tests are fixed fractions of the table, and the starts are drawn from `seed`.
    """
    chosen = [named(form) if isinstance(form, str) else form for form in forms or candidates(points)]
    cost = cost_of(points)
    powers = powers if powers is not None else POWERS if cost is not None else (0.0,)
    tests = _tests(points, chosen, cost)
    trials = [Trial(form, objective or tolerant_objective(form), power) for form, power in product(chosen, powers)]
    errors = np.array([[_error(trial, points, mask, seed) for mask in tests.values()] for trial in trials])
    seen = errors[:, ~np.isnan(errors).all(0)]
    what = f"{plural(len(points), 'run')} are too few to test a law on the largest of them"
    points.refuse(not seen.size, what, "name a law", "law", value="auto")
    # A candidate that cannot be fitted in a test counts as three times the worst error there.
    low, failed = np.maximum(np.nanmin(seen, axis=0), 1e-300), 3.0 * np.nanmax(seen, axis=0)
    logs = np.log(np.maximum(np.where(np.isnan(seen), failed, seen), 1e-300) / low)
    scores = np.exp(logs.sum(1) / len(tests))  # the geometric mean of the error over the lowest of each test
    judged = (
        replace(trial, errors=dict(zip(tests, row)), score=score)
        for trial, row, score in zip(trials, errors.tolist(), scores.tolist())
    )
    ranked = sorted(judged, key=lambda trial: trial.score)  # ties keep their order
    return Choice(tuple(ranked), {name: int(mask.sum()) for name, mask in tests.items()}, objective)


def _tests(points: Points, forms: Sequence[Law], cost: np.ndarray | None) -> dict[str, np.ndarray]:
    """The runs that each test leaves out: the largest by cost and by each column, by whole levels."""
    fewest = min(len(form.parameters) for form in forms) + 1
    columns = {} if cost is None else {"cost": cost}
    shared = dict.fromkeys(name for form in forms for name in form.axes if not name.startswith("p_"))
    columns |= {name: points.numbers(name) for name in shared if name not in ("lr", "B")}
    if not columns:  # proportions alone: the mixtures furthest from their mean
        table = np.column_stack([points.numbers(name) for name in forms[0].inputs])
        columns["mixture"] = np.linalg.norm(table - table.mean(0), axis=1)
    masks = {name: largest(values, LARGEST) for name, values in columns.items()}
    order = np.lexsort([points.numbers(name) for name in reversed(forms[0].inputs)])
    masks["spread"] = np.isin(np.arange(len(points)), order[1::4])
    tests: dict[str, np.ndarray] = {}
    for name, mask in masks.items():
        is_new = not any(np.array_equal(mask, other) for other in tests.values())
        # By whole levels the largest may be more than half of the runs.
        if mask.mean() <= 0.5 and (~mask).sum() >= fewest and mask.sum() >= 2 and is_new:
            tests[name] = mask
    return tests


def _error(trial: Trial, points: Points, mask: np.ndarray, seed: int) -> float:
    """Root mean square error of the runs of a mask, predicted from the others, in the target's own unit.

    Not a number where these cannot be fitted.
    """
    rows = np.flatnonzero(~mask)
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), 500)).astype(int)]
    try:
        fitted = trial.fit(points.take(rows), STARTS, effort=COMPARED, seed=seed)
    except ScalingError:
        return np.nan
    predicted = fitted.predict(**{name: points.numbers(name)[mask] for name in trial.form.inputs})
    error = float(np.sqrt(np.mean((predicted - points.numbers(trial.form.target)[mask]) ** 2)))
    return error if np.isfinite(error) else np.nan
