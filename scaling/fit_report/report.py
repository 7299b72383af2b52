"""The report of a fit: the estimates, and everything a reader needs to judge them. `to_json` is what fit.json holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from scaling.errors import ScalingError
from scaling.fit_report.checklist import FITTING, FORM, Answer, checklist, missing, tested
from scaling.law.back_test import BackTest, Refit, back_test
from scaling.law.competing import CompetingOptimum, Competitor, competing_optima, competitors, residual_scale
from scaling.law.fit import Fit, check_columns
from scaling.law.forms import Form
from scaling.law.forms.composed import PREFIX
from scaling.law.frontier import SERVED, data_left, optimal, optimal_size
from scaling.law.held_out import HeldOut, judge
from scaling.law.identification import is_wide, is_wide_size
from scaling.law.interval import Interval, Method, intervals
from scaling.law.loss_unit import unit_of_term
from scaling.law.points import POSITIVE, Points
from scaling.law.predictions import Prediction, is_identified, predict_runs
from scaling.law.two_step import TwoStep
from scaling.laws.approaches import Envelope, IsoFlop, Minimum, PowerLawFit

OF_EACH_STEP = (FORM, FITTING)
"""Sections of the checklist that are asked of the second step too: it is fitted to the same runs."""


@dataclass(frozen=True)
class BudgetOptimum:
    """The compute-optimal run of a budget. Its loss is of the law's mean; a new run of this size is `prediction`."""

    C: float
    N: Interval | float
    D: Interval | float
    loss: Interval | float
    prediction: Prediction
    served: float = 0.0
    """Tokens after training that the budget pays for too."""
    residual_scale: float | None = None
    """The root mean square residual of the law, to compare with those of the competing ones."""
    competing: tuple[CompetingOptimum, ...] = ()
    """What other laws that fit the points about as well make of the budget."""

    @property
    def is_identified(self) -> bool:
        """Whether its size and loss are an answer; without intervals that is not judged."""
        if not isinstance(self.N, Interval) or not isinstance(self.D, Interval):
            return True
        ends = [size for size in (self.N, self.D) if size.open_below or size.open_above]
        return not ends and not is_wide_size(self.N.low, self.N.high) and is_identified(self.prediction, "loss")

    @property
    def disagreeing(self) -> tuple[CompetingOptimum, ...]:
        """The competing laws whose size this law's interval does not hold."""
        return tuple(other for other in self.competing if not other.agrees(self.N))

    def to_json(self) -> dict[str, Any]:
        values = {"N": self.N, "D": self.D, "loss": self.loss}
        bounded = {
            name: value.to_json() if isinstance(value, Interval) else {"estimate": value}
            for name, value in values.items()
        }
        prediction = self.prediction.to_json()
        if not self.is_identified:
            bounded = {name: {**ends, "estimate": None} for name, ends in bounded.items()}
            prediction = _without_estimates(prediction)
        served = {"served": self.served} if self.served else {}
        document = {"C": self.C, **served, **bounded, **prediction, "identified": self.is_identified}
        return document | {"competing": [self._against(other) for other in self.competing], **self._over_laws()}

    def _against(self, other: CompetingOptimum) -> dict[str, Any]:
        values = {"N": other.best.N, "D": other.best.D, "loss": other.best.loss}
        bounded = {name: value.to_json() for name, value in values.items()}
        agrees = other.agrees(self.N)
        ratio = other.residual_scale / self.residual_scale if self.residual_scale else None
        return {"law": other.law, "residual_ratio": ratio, "agrees": agrees, **bounded}

    def _over_laws(self) -> dict[str, Any]:
        """The lowest and the highest end of all the laws' intervals."""
        if not self.is_identified or not isinstance(self.N, Interval) or not isinstance(self.D, Interval):
            return {"over_laws": None}
        sizes = [self.N, *(other.best.N for other in self.competing)]
        data = [self.D, *(other.best.D for other in self.competing)]
        ends = {name: (min(v.low for v in of), max(v.high for v in of)) for name, of in (("N", sizes), ("D", data))}
        return {"over_laws": {name: {"low": low, "high": high} for name, (low, high) in ends.items()}}


@dataclass(frozen=True)
class FitReport:
    """A fitted law with its intervals, its test on held-out runs, its predictions and its checklist."""

    fit: Fit
    level: float
    intervals: Mapping[str, Interval]
    """Of each free parameter and derived quantity; none without a method or a degree of freedom."""
    held_out: HeldOut | None
    predictions: tuple[Prediction, ...]
    optima: tuple[BudgetOptimum, ...]
    checklist: tuple[Answer, ...]
    back_tests: tuple[BackTest, ...] = ()
    cluster_column: str | None = None

    def with_back_test(self, refit: Refit | None = None) -> FitReport:
        """The same report with the largest runs of the fitted points predicted from the smaller ones."""
        return replace(self, back_tests=tuple(back_test(self.fit, self.level, refit)))

    def to_json(self) -> dict[str, Any]:
        fit = self.fit
        form, problem, points = fit.form, fit.problem, fit.points
        bounds = {name: interval.to_json() for name, interval in self.intervals.items()}
        bounds |= {name: bounds[other] for name, other in form.tied.items() if other in bounds}
        unit = points.definition("loss")
        document = {
            "law": form.name,
            "formula": form.formula,
            "citation": form.citation,
            "inputs": form.axes,
            "target": form.target,
            "estimates": fit.estimates,
            "units": {parameter.name: unit_of_term(parameter.unit, unit) for parameter in form.parameters},
            "fixed": problem.fixed,
            "tied": form.tied,
            "intervals": bounds,
            "objective": fit.objective,
            "objective_kind": problem.objective.name,
            "starts_agreeing": fit.starts_agreeing,
            "held_out": _tested(self.held_out, form.target),
            "converged": fit.converged,
            "n": len(problem.observed),
            "degrees_of_freedom": fit.degrees_of_freedom,
            "residual_scale": fit.diagnostics.residual_scale,
            "seed_noise": fit.seed_noise,
            "condition_number": fit.condition_number,
            "largest_leverage": float(fit.diagnostics.leverage.max()),
            "not_identified": fit.not_identified,
            "unidentified": self._unidentified(),
            "unreliable": fit.unreliable,
            "points": _counts(points),
            "ranges": _ranges(fit),
            "predictions": _predicted(self.predictions, form.target),
            "back_test": [test.to_json() for test in self.back_tests],
            "optima": [optimum.to_json() for optimum in self.optima],
            "checklist": {"answers": [asdict(answer) for answer in self.checklist], "missing": missing(self.checklist)},
            "clusters": self._clusters(),
        }
        return _finite(document)

    def _unidentified(self) -> list[str]:
        """The names of the parameters, and of the exponents that follow from them, whose estimate is no answer."""
        followed = [self.intervals[name] for name in self.fit.form.derived if name in self.intervals]
        wide = [
            bound.name
            for bound in followed
            if bound.open_below or bound.open_above or is_wide(bound.estimate, bound.low, bound.high)
        ]
        own = self.fit.unidentified
        return [*own, *(name for name, other in self.fit.form.tied.items() if other in own), *wide]

    def _clusters(self) -> dict[str, Any] | None:
        """Which points belong together, and how their errors correlate where that was estimated."""
        if self.cluster_column is None:
            return None
        document: dict[str, Any] = {
            "column": self.cluster_column,
            "count": len(set(self.fit.points[self.cluster_column])),
            "correlation": None,
        }
        correlation = self.fit.correlation
        if correlation is not None:
            low, high = correlation.interval(self.level)
            document["correlation"] = {"estimate": correlation.mean, "low": low, "high": high, "level": self.level}
        return document


@dataclass(frozen=True)
class TwoStepReport:
    """A law of the loss and a law of a task's score given that loss: their reports, and what both together predict."""

    fit: TwoStep
    level: float
    loss: FitReport
    task: FitReport
    held_out: HeldOut | None
    predictions: tuple[Prediction, ...]
    back_tests: tuple[BackTest, ...] = ()

    def with_back_test(self, refit: Refit | None = None) -> TwoStepReport:
        """The same report with the largest runs of the fitted points predicted from the smaller ones."""
        return replace(self, back_tests=tuple(back_test(self.fit, self.level, refit)))

    def to_json(self) -> dict[str, Any]:
        form, points = self.fit.form, self.fit.points
        loss, task = (report.to_json() for report in (self.loss, self.task))
        steps = {"loss": loss, form.target: task}
        answers = self._answers()
        document = {
            "law": form.name,
            "formula": form.formula,
            "citation": form.citation,
            "inputs": form.axes,
            "target": form.target,
            **{
                key: loss[key] | {PREFIX + name: value for name, value in task[key].items()}
                for key in ("estimates", "units", "fixed", "intervals")
            },
            "tied": loss["tied"] | {PREFIX + name: PREFIX + other for name, other in task["tied"].items()},
            "objective": None,
            "objective_kind": None,
            "starts_agreeing": min(loss["starts_agreeing"], task["starts_agreeing"]),
            "held_out": _tested(self.held_out, form.target),
            "converged": loss["converged"] and task["converged"],
            "n": task["n"],
            "degrees_of_freedom": self.fit.degrees_of_freedom,
            "correlation": self.fit.correlation,
            **{
                key: [f"{step}: {sentence}" for step, document in steps.items() for sentence in document[key]]
                for key in ("not_identified", "unreliable")
            },
            "unidentified": [*loss["unidentified"], *(PREFIX + name for name in task["unidentified"])],
            "points": _counts(points),
            "ranges": loss["ranges"],
            "predictions": _predicted(self.predictions, form.target),
            "back_test": [test.to_json() for test in self.back_tests],
            "optima": [],
            "checklist": {"answers": [asdict(answer) for answer in answers], "missing": missing(answers)},
            "clusters": loss["clusters"],
            "steps": [loss, task],
        }
        return _finite(document)

    def _answers(self) -> tuple[Answer, ...]:
        """The checklist of the first step, what differs in the second, and the test of both."""
        first = {answer.question: answer for answer in self.loss.checklist}
        test = tested(self.held_out)
        later = (
            replace(answer, question=f"{self.fit.form.target}: {answer.question}")
            for answer in self.task.checklist
            if answer.section in OF_EACH_STEP and answer != first.get(answer.question)
        )
        return (*(answer for answer in self.loss.checklist if answer.question != test.question), *later, test)


def two_step_report(
    fit: TwoStep,
    *,
    method: Method | None = "profile",
    level: float = 0.95,
    held_out: Points | None = None,
    targets: Sequence[Mapping[str, float]] = (),
    stated: Mapping[str, str] | None = None,
    cluster_column: str | None = None,
    seed: int = 0,
) -> TwoStepReport:
    """The report of a law in two steps; what is held out and the targets are predicted through both."""
    if fit.degrees_of_freedom < 1:
        method = None
    loss, task = (
        fit_report(step, method=method, level=level, stated=stated, cluster_column=cluster_column, seed=seed)
        for step in (fit.loss, fit.task)
    )
    return TwoStepReport(
        fit,
        level,
        loss,
        task,
        None if held_out is None else judge(fit, held_out, level, method, seed=seed),
        tuple(predict_runs(fit, targets, level, method, seed=seed)),
    )


def fit_report(
    fit: Fit,
    *,
    method: Method | None = "profile",
    level: float = 0.95,
    held_out: Points | None = None,
    targets: Sequence[Mapping[str, float]] = (),
    stated: Mapping[str, str] | None = None,
    cluster_column: str | None = None,
    seed: int = 0,
) -> FitReport:
    """The report of a fitted law. `method` is that of the intervals; without a degree of freedom there are none."""
    if fit.degrees_of_freedom < 1:
        method = None
    bounds = {} if method is None else intervals(fit, method, level=level, seed=seed)
    tested = None if held_out is None else judge(fit, held_out, level, method, seed=seed)
    budgets = [target for target in targets if _is_budget(fit.form, target)]
    others = competitors(fit) if budgets else ()
    rows = [target for target in targets if target not in budgets]
    return FitReport(
        fit,
        level,
        bounds,
        tested,
        tuple(predict_runs(fit, rows, level, method, seed=seed)),
        tuple(budget_optimum(fit, budget, others, method, level, seed) for budget in budgets),
        checklist(fit, intervals=bounds, held_out=tested, stated=stated),
        cluster_column=cluster_column,
    )


def _tested(held_out: HeldOut | None, target: str) -> dict[str, Any] | None:
    """The test, with each held-out run next to its prediction."""
    if held_out is None:
        return None
    runs = zip(
        held_out.runs,
        held_out.predictions,
        map(float, held_out.observed),
        map(float, held_out.relative_errors),
        map(float, held_out.errors),
        strict=True,
    )
    points = [
        {
            "run": run,
            **prediction.row,
            target: loss,
            "predicted": prediction.estimate,
            "relative_error": relative,
            "error": error,
            **prediction.to_json(),
            "covered": None if prediction.run is None else bool(prediction.run.covers(loss)),
        }
        for run, prediction, loss, relative, error in runs
    ]
    return held_out.to_json() | {"points": points}


def _predicted(predictions: Sequence[Prediction], target: str) -> list[dict[str, Any]]:
    rows = []
    for prediction in predictions:
        identified, document = is_identified(prediction, target), prediction.to_json()
        if not identified:
            document = _without_estimates(document)
        estimate = prediction.estimate if identified else None
        rows.append({**prediction.row, target: estimate, **document, "identified": identified})
    return rows


def _without_estimates(document: Mapping[str, Any]) -> dict[str, Any]:
    """The intervals of a prediction that is no answer."""
    return {
        name: {**value, "estimate": None} if isinstance(value, Mapping) and "estimate" in value else value
        for name, value in document.items()
    }


def _ranges(fit: Fit) -> dict[str, list[float]]:
    """The smallest and the largest value of each column of the fitted points."""
    columns = {name: fit.problem.columns[name] for name in fit.form.axes}
    return {name: [float(column.min()), float(column.max())] for name, column in columns.items()}


def check_target(form: Form, target: Mapping[str, float]) -> None:
    """Refuse what is neither a row of the law's columns nor a budget."""
    if not _is_budget(form, target):
        check_columns(form, target, key="target")
    for name in POSITIVE & target.keys():
        if target[name] <= 0:
            what, fix = "must be positive", f"write {name}=1e9"
            raise ScalingError(what, key=f"target {name}", value=target[name], fix=fix)


def _is_budget(form: Form, target: Mapping[str, float]) -> bool:
    """C without N and D, under a law of the loss in these, asks for the compute-optimal run."""
    is_alone = "C" in target and set(target) <= {"C", SERVED}
    return is_alone and set(form.inputs) == {"N", "D"} and form.target == "loss"


def budget_optimum(
    fit: Fit,
    target: Mapping[str, float],
    others: tuple[Competitor, ...],
    method: Method | None,
    level: float,
    seed: int,
) -> BudgetOptimum:
    """The best use of the budget C by the law, next to what the `others` make of it."""
    compute, served = target["C"], target.get(SERVED, 0.0)
    scale, competing = residual_scale(fit), competing_optima(others, compute, served, level)
    if method is not None:
        best = optimal(fit, compute, served=served, method=method, level=level)
        row = {"N": best.N.estimate, "D": best.D.estimate}
        (prediction,) = predict_runs(fit, [row], level, method, seed=seed)
        return BudgetOptimum(compute, best.N, best.D, best.loss, prediction, served, scale, competing)
    size = float(optimal_size(fit.form, compute, served=served).of(fit.form, fit.theta))
    data = data_left(compute, size, served=served)
    (prediction,) = predict_runs(fit, [{"N": size, "D": data}], level, None)
    return BudgetOptimum(compute, size, data, prediction.estimate, prediction, served, scale, competing)


@dataclass(frozen=True)
class MinimaReport:
    """Approach 2: the growth of N* and D* with compute, and each budget's minimum or why it has none."""

    points: Points
    size: IsoFlop
    data: IsoFlop

    def to_json(self) -> dict[str, Any]:
        minima = [
            {
                "C": size.C,
                "N": size.position,
                "D": data.position,
                "loss": size.loss,
                "refused": size.refused or data.refused,
                "interval_N": _bounds(size),
                "interval_D": _bounds(data),
            }
            for size, data in zip(self.size.minima, self.data.minima, strict=True)
        ]
        bounds = {"a": self.size.interval(), "b": self.data.interval()}
        growth = _growth(f"isoflop_{self.size.kind}", self.size.law, self.data.law, bounds, "t")
        bias = {
            name: {"shifts": along.shifts, "bound": along.bias} for name, along in (("a", self.size), ("b", self.data))
        }
        biased = {"bias": bias} if self.size.kind == "parabola" else {}
        return _finite({**growth, **biased, "points": _counts(self.points), "minima": minima})


def _bounds(minimum: Minimum) -> dict[str, Any] | None:
    """The 95% interval of the position of a minimum."""
    if minimum.refused is not None:
        return None
    low, high = minimum.interval()
    return {"estimate": minimum.position, "low": low, "high": high, "level": 0.95}


@dataclass(frozen=True)
class EnvelopeReport:
    """Approach 1: the growth of N* and D* with compute along the envelope of the learning curves."""

    points: Points
    envelope: Envelope

    def to_json(self) -> dict[str, Any]:
        size, data = self.envelope.N_law, self.envelope.D_law
        growth = _growth("envelope", size, data, {"a": size.interval(), "b": data.interval()}, "jackknife")
        budgets = {"accepted": len(self.envelope.C), "refused": self.envelope.refused}
        return _finite({**growth, "points": _counts(self.points), "budgets": budgets})


def _growth(
    name: str, size: PowerLawFit, data: PowerLawFit, bounds: Mapping[str, tuple[float, float]], method: str
) -> dict[str, Any]:
    estimates = {
        "a": size.exponent,
        "b": data.exponent,
        "N_coefficient": size.coefficient,
        "D_coefficient": data.coefficient,
    }
    return {
        "law": name,
        "formula": "N* = N_coefficient C^a, D* = D_coefficient C^b",
        "citation": "Hoffmann et al. 2022, arXiv 2203.15556",
        "estimates": estimates,
        "intervals": {
            key: {"estimate": estimates[key], "low": low, "high": high, "level": 0.95, "method": method}
            for key, (low, high) in bounds.items()
        },
        "objective": None,
        "starts_agreeing": None,
        "held_out": None,
    }


def _counts(points: Points) -> dict[str, Any]:
    return {
        "source": points.source,
        "fitted": len(points),
        "held_out": points.held_out,
        "used": points.used,
        "excluded": points.excluded,
        "failed": points.failed,
        "planned": points.planned,
        "count": points.count(),
        "definitions": points.definitions,
        "pooled": points.pooled(),
    }


def _finite(value: Any) -> Any:
    """Plain dicts, lists and numbers. JSON has no infinity and no nan: what is not finite is null."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.item() if isinstance(value, np.generic) else value
