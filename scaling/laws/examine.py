"""Examine a fit: its intervals, its test on held-out runs, and its predictions.

The result is the document of `scaling fit --json` (docs/json.md), which `report` shows as tables.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from scaling.base.errors import ScalingError, nearest, plural, refuse
from scaling.base.json_lines import mapped
from scaling.laws.approaches import PowerLaw, bias, envelope, isoflop
from scaling.laws.fit import FittedLaw, check_columns, intervals
from scaling.laws.held_out import Choice, HeldOut, back_test, judge
from scaling.laws.intervals import Interval, Method, is_wide, is_wide_size
from scaling.laws.law import POSITIVE, PREFIX, Law, with_compute
from scaling.laws.optimum import SERVED, Budget, best_run, competitors, optimal, residual_scale
from scaling.laws.points import Points
from scaling.laws.predict import TwoStep, predict_runs
from scaling.laws.report import Report, disagreement, tried

if TYPE_CHECKING:
    import pandas

Document = dict[str, Any]
Drawn: TypeAlias = Callable[[Any], Mapping[str, Any]]  # pictures by name, of the module `scaling.laws.figures`


@dataclass(frozen=True, repr=False)
class Fit(Report):
    """A fitted law, or the growth of the optimal size and data by an IsoFLOP or envelope analysis.

    `scaling fit` prints it; a notebook shows the same as tables. `intervals` are the intervals of the parameters; an
    open end is infinite. `law` has the residuals, the weights and the diagnostics of the fit; it is None
    for an analysis without a law of the loss.
    """

    points: Points
    intervals: Mapping[str, Interval]
    law: FittedLaw | TwoStep | None = None
    test: HeldOut | None = None
    method: Method | None = None
    level: float = 0.95
    choice: Choice | None = None  # of the law, where it was chosen
    drawn: Drawn | None = None  # other pictures than those of its law

    @property
    def estimates(self) -> dict[str, float]:
        """The parameters by name."""
        return dict(self.document["estimates"])

    @property
    def doubts(self) -> list[str]:
        """Warnings about the fit, in sentences; empty if there is none."""
        return [*self.document.get("not_identified", ()), *self.document.get("unreliable", ())]

    @property
    def held_out(self) -> pandas.DataFrame:
        """The held-out runs, each with its prediction."""
        return _frame((self.document["held_out"] or {}).get("points", ()))

    @cached_property
    def back_test(self) -> pandas.DataFrame:
        """The largest of the fitted runs by each axis, predicted by fits to the smaller ones."""
        tests = self.document.get("back_test")
        return _frame(tests or (back_test(self.law, self.level, self.choice) if self.law is not None else ()))

    @property
    def minima(self) -> pandas.DataFrame:
        """The minimum of each budget of an IsoFLOP analysis, or why it has none (`refused`)."""
        return _frame(self.document.get("minima", ()))

    @property
    def predictions(self) -> pandas.DataFrame:
        """The predictions of the law for the targets."""
        return _frame(self.document.get("predictions", ()))

    def predict(self, **columns: Any) -> pandas.DataFrame:
        """The loss (or score) at rows of the law's columns, with the ends of both intervals.

        fit.predict(N=7e9, D=1.4e11)[["loss", "run_low", "run_high"]]

        For a law of a score, `examples` is the number of examples of the new score.
        """
        law = self._needs_law("predict")
        check_columns(law.form, columns, key="target")
        values = np.broadcast_arrays(*(np.atleast_1d(np.asarray(column, float)) for column in columns.values()))
        rows = [dict(zip(columns, row)) for row in zip(*(column.ravel().tolist() for column in values))]
        for row in rows:
            check_target(law.form, row)
        predicted = predict_runs(law, rows, self.level, self.method)
        return _frame({**one.row, law.form.target: one.estimate, **one.to_json()} for one in predicted)

    def optimum(self, C: float, served: float = 0.0) -> dict[str, float]:
        """The best size N and data D for C FLOPs, and the loss there. C includes 2 N FLOPs for each token that is
        `served` after training.

        An optimum that the points do not identify is refused. If competing laws disagree, a warning states it.
        """
        refuse(not 0 < C < np.inf, "must be positive", "write C=1e21", key="C", value=C)
        if self.law is None and not served:
            of = self.estimates
            return {"N": of["N_coefficient"] * C ** of["a"], "D": of["D_coefficient"] * C ** of["b"]}
        law, document = self._needs_law("optimise"), self.document
        if isinstance(law, TwoStep):
            law, document = law.loss, document["steps"][0]
        is_of_size = set(law.form.inputs) == {"N", "D"}
        refuse(not is_of_size, f"{law.form.name} is not a law of N and D alone", "fit chinchilla, for example")
        method = self.method if law.degrees_of_freedom > 0 else None
        best = budget_optimum(law, {"C": C, SERVED: served}, competitors(law), method, self.level)
        what = f"the optimum is not identified by {document['law']} of {tried(document)}"
        fix = "add runs nearer to it, or fit a law with fewer parameters"
        refuse(not best["identified"], what, fix, key="C", value=C)
        for line in disagreement(best):
            warnings.warn(line.removeprefix("! "), stacklevel=2)
        return {name: best[name]["estimate"] for name in ("N", "D", "loss")}

    @cached_property
    def pictures(self) -> dict[str, Any]:
        """All pictures of the fit by name; notebooks show them, and `save` draws them to files."""
        from scaling.laws import figures

        if self.drawn is not None:
            return dict(self.drawn(figures))
        return figures.figures_of_law(self._needs_law("draw"), self.test, level=self.level, method=self.method)

    def plot(self, name: str | None = None) -> Any:
        """One picture: the loss against compute, or else the first one; `pictures` has all of them."""
        against_compute = (title for title in self.pictures if title.endswith("_against_C"))
        name = name or next(against_compute, next(iter(self.pictures)))
        refuse(name not in self.pictures, f"there is no picture {name!r}", nearest(name, self.pictures))
        return self.pictures[name]

    def save(self, folder: str | Path) -> list[Path]:
        """Draw all pictures into a folder, each as PDF, SVG and PNG."""
        return [
            path
            for name, picture in self.pictures.items()
            for path in picture.save(*(f"{Path(folder, name)}{kind}" for kind in picture.formats))
        ]

    def to_json(self) -> dict[str, Any]:
        """The document of `scaling fit --json` (docs/json.md)."""
        return dict(self.document)

    def __repr__(self) -> str:
        estimates = ", ".join(f"{name} {value:.4g}" for name, value in self.estimates.items())
        return f"Fit({self.document['law']}, {plural(len(self.points), 'run')}: {estimates})"

    def _needs_law(self, action: str) -> FittedLaw | TwoStep:
        if self.law is None:
            what = f"{self.document['law']} has no law of the loss to {action} with"
            raise ScalingError(what, fix="fit a law such as chinchilla")
        return self.law


def examine(
    fit: FittedLaw | TwoStep,
    *,
    held_out: Points | None = None,
    targets: Sequence[Mapping[str, float]] = (),
    level: float = 0.95,
    method: Method | None = "profile",
    group: str | None = None,
    largest: bool = False,
    choice: Choice | None = None,
) -> Fit:
    """Bound a fit, test it on the runs `held_out`, and predict `targets`: rows of its columns, or budgets C.

    Without a `method` or a degree of freedom there are no intervals. Runs with equal values in the column `group` share
    errors. `largest` adds the back-test; `choice` is that of the law, where it was chosen.
    """
    form, method = fit.form, method if fit.degrees_of_freedom > 0 else None
    tested = None if held_out is None else judge(fit, held_out, level, method)
    budgets = [target for target in targets if _is_budget(form, target)]
    predicted = predict_runs(fit, [row for row in targets if row not in budgets], level, method)
    others, optima = {}, []
    if isinstance(fit, TwoStep):
        steps = [examine(step, method=method, level=level, group=group) for step in (fit.loss, fit.task)]
        document = _two_steps(fit, *(step.document for step in steps))
        bounds = dict(steps[0].intervals) | {PREFIX + name: each for name, each in steps[1].intervals.items()}
    else:
        bounds = {} if method is None else intervals(fit, method, level=level)
        bounds |= {name: bounds[other] for name, other in form.tied.items() if other in bounds}
        document = _law(fit, bounds, level, group)
        others = competitors(fit) if budgets or tested else {}
        optima = [budget_optimum(fit, budget, others, method, level) for budget in budgets]
    document |= {
        "held_out": tested and _test(form.target, tested, others),
        "predictions": [
            _answered(
                {**one.row, form.target: one.estimate, **one.to_json()}, [form.target], one.is_identified(form.target)
            )
            for one in predicted
        ],
        "back_test": back_test(fit, level, choice) if largest else [],
        "optima": optima,
        **({} if choice is None else {"choice": choice.to_json()}),
    }
    return Fit(mapped(document, plain), fit.points, bounds, fit, tested, method, level, choice)


def check_target(form: Law, target: Mapping[str, float]) -> None:
    """Refuse what is neither a row of the law's columns nor a budget."""
    if not _is_budget(form, target):
        check_columns(form, target, key="target")
    for name, value in with_compute(target).items():
        is_positive, key = value > 0 or name not in {*POSITIVE, SERVED}, f"target {name}"
        refuse(not is_positive, "must be positive", f"write {name}=1e9", key=key, value=value)
        refuse(not np.isfinite(value), "is too large", "write a smaller one", key=key, value=value)
    total = sum(value for name, value in target.items() if re.fullmatch(r"p_\d+", name))
    is_mixture, what = "p_1" in target, f"the proportions sum to {total:g}"
    refuse(is_mixture and abs(total - 1) > 1e-3, what, "write proportions that sum to 1", key="target")


def _is_budget(form: Law, target: Mapping[str, float]) -> bool:
    """C without N and D, under a law of the loss in these, asks for the compute-optimal run."""
    is_alone = "C" in target and set(target) <= {"C", SERVED}
    return is_alone and set(form.inputs) == {"N", "D"} and form.target == "loss"


def _law(fit: FittedLaw, bounds: Mapping[str, Interval], level: float, group: str | None) -> Document:
    """The document of a law in one step, without its test and its predictions."""
    form, problem, points, target = fit.form, fit.problem, fit.points, fit.form.target
    per = "per byte" if points.definition("loss").startswith("nats per byte") else "per token"
    unidentified = [*fit.unidentified, *(name for name, other in form.tied.items() if other in fit.unidentified)]
    unidentified += [name for name in form.derived if name in bounds and is_wide(bounds[name])]
    correlation = None
    if group is not None and fit.correlation is not None:
        low, high = fit.correlation.interval(level)
        correlation = {"estimate": fit.correlation.mean, "low": low, "high": high, "level": level}
    columns = {name: points[name] for name in form.inputs}
    axes = with_compute({name: columns[name] for name in form.axes}) | {target: points[target]}
    observed, fitted, worst = points[target], fit.predict(**columns), int(np.argmax(np.abs(fit.residuals)))
    errors, scatter = fitted - observed, float(np.sum((observed - observed.mean()) ** 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = float(np.mean(np.abs(errors / observed)))
    row = {name: float(columns[name][worst]) for name in form.axes}
    row |= {target: float(observed[worst]), "fitted": float(fitted[worst])}
    return _stated(form) | {
        "estimates": fit.estimates,
        "units": {each.name: each.unit.replace("per token", per) for each in form.parameters},
        "fixed": problem.fixed,
        "tied": form.tied,
        "intervals": {name: interval.to_json() for name, interval in bounds.items()},
        "objective": fit.objective,
        "objective_kind": problem.objective.name,
        "starts_agreeing": fit.starts_agreeing,
        "n": len(problem.observed),
        "degrees_of_freedom": fit.degrees_of_freedom,
        "residual_scale": float(np.sqrt(np.sum(fit.linear[0] ** 2) / max(fit.degrees_of_freedom, 1))),
        "seed_noise": fit.seed_noise,
        "condition_number": fit.geometry[0],
        "r_squared": 1.0 - float(errors @ errors) / scatter if scatter else None,
        "mean_absolute_relative_error": relative,
        "mean_absolute_error": float(np.mean(np.abs(errors))),
        "largest_residual": {"run": str(points["run"][worst]) if "run" in points else None, **row},
        "not_identified": fit.not_identified,
        "unidentified": unidentified,
        "unreliable": fit.unreliable,
        "points": _counts(points),
        "ranges": {name: [float(column.min()), float(column.max())] for name, column in axes.items()},
        "clusters": group and {"column": group, "count": len(set(points.labels(group))), "correlation": correlation},
    }


def _stated(form: Law) -> Document:
    """The name, formula, citation and columns of a law."""
    return {
        "law": form.name,
        "formula": form.formula,
        "citation": form.citation,
        "inputs": form.axes,
        "target": form.target,
    }


def _two_steps(fit: TwoStep, loss: Document, task: Document) -> Document:
    """The document of a law in two steps, made of those of its steps, without its test and its predictions."""
    form, steps = fit.form, {"loss": loss, fit.form.target: task}
    document = {key: loss[key] for key in ("points", "ranges", "clusters")} | {"n": task["n"]}
    for key in ("estimates", "units", "fixed", "intervals", "tied"):
        prefixed = {PREFIX + name: PREFIX + of if key == "tied" else of for name, of in task[key].items()}
        document[key] = loss[key] | prefixed
    for key in ("not_identified", "unreliable"):
        document[key] = [f"{name}: {sentence}" for name, step in steps.items() for sentence in step[key]]
    return {
        **_stated(form),
        **document,
        "objective": None,
        "objective_kind": None,
        "starts_agreeing": min(step["starts_agreeing"] for step in steps.values()),
        "degrees_of_freedom": fit.degrees_of_freedom,
        "correlation": fit.correlation,
        "unidentified": [*loss["unidentified"], *(PREFIX + name for name in task["unidentified"])],
        "steps": [loss, task],
    }


def _test(target: str, held_out: HeldOut, others: Mapping[str, FittedLaw]) -> Document:
    """The test, each held-out run next to its prediction, and the errors of competing laws."""
    points, observed = held_out.points, held_out.observed
    names = map(str, points["run"]) if "run" in points else [None] * len(points)
    columns = zip(names, held_out.predictions, observed, held_out.relative_errors, held_out.errors)
    rows = [
        {
            "run": run,
            **prediction.row,
            target: value,
            "observed": value,
            "predicted": prediction.estimate,
            "relative_error": relative,
            "error": error,
            **prediction.to_json(),
            "covered": prediction.run and bool(prediction.run.covers(value)),
        }
        for run, prediction, value, relative, error in columns
    ]
    axes = {name: points.numbers(name) for name in ("N", "D")} if others else {}
    errors = {name: np.abs(other.predict(**axes) / observed - 1.0).mean() for name, other in others.items()}
    compared = [{"law": name, "mean_absolute_relative_error": error} for name, error in errors.items()]
    return held_out.to_json() | {"points": rows, "other_laws": compared}


def _answered(row: Document, answers: Sequence[str], identified: bool) -> Document:
    """A row of a target. If it is not identified, its `answers` and its intervals have no estimate."""
    for name in () if identified else (*answers, "interval_mean", "interval_run"):
        row[name] = {**row[name], "estimate": None} if isinstance(row[name], Mapping) else None
    return row | {"identified": identified}


def budget_optimum(
    fit: FittedLaw, target: Mapping[str, float], others: Mapping[str, FittedLaw], method: Method | None, level: float
) -> Document:
    """The best use of the budget C by the law, next to the optima of the `others`.

    `interval_mean` and `interval_run` are of the loss of a run of the best size.
    """
    compute, served = target["C"], target.get(SERVED, 0.0)
    best = None if method is None else optimal(fit, compute, served=served, method=method, level=level)
    row = best_run(fit, Budget(compute, served))
    (prediction,) = predict_runs(fit, [row], level, method)
    ends = {name: {"estimate": value} for name, value in (*row.items(), ("loss", prediction.estimate))}
    document = {"C": compute, **({SERVED: served} if served else {})}
    document |= (best.to_json() if best else ends) | prediction.to_json()
    scale = residual_scale(fit)
    optima = {name: optimal(other, compute, served=served, method="t", level=level) for name, other in others.items()}
    competing = [
        {
            "law": name,
            "residual_ratio": residual_scale(others[name]) / scale if scale else None,
            "agrees": best.N.covers(theirs.N.estimate) if best else theirs.N.covers(row["N"]),
            **theirs.to_json(),
        }
        for name, theirs in optima.items()
        if not is_wide_size(theirs.N)  # those that identify an optimum
    ]
    identified = (best is None or not is_wide_size(best.N)) and prediction.is_identified("loss")
    return _answered(document, ["N", "D", "loss"], identified) | {"competing": competing}


def of_isoflop(points: Points, kind: str, noise: float | None = None, seed: int = 0) -> Fit:
    """Approach 2: the growth of N* and D* with compute, and each budget's minimum or why it has none."""
    points.refuse_absent(("N", "D", "C", "loss"))
    both = [isoflop(points, along=name, kind=kind, noise=noise, seed=seed) for name in ("N", "D")]
    minima = [
        {
            "C": of_size.C,
            "N": of_size.position and of_size.position.estimate,
            "D": of_data.position and of_data.position.estimate,
            "loss": of_size.loss,
            "refused": of_size.refused or of_data.refused,
            "interval_N": of_size.position and of_size.position.to_json(),
            "interval_D": of_data.position and of_data.position.to_json(),
        }
        for of_size, of_data in zip(*(each.minima for each in both), strict=True)
    ]
    biases = {key: {"shifts": each.shifts, "bound": bias(each.shifts)} for key, each in zip("ab", both)}
    more = {"minima": minima, **({"bias": biases} if kind == "parabola" else {})}
    return _growth(
        f"isoflop_{kind}",
        points,
        [each.law for each in both],
        more,
        lambda figures: {f"isoflop_{each.along}": figures.isoflop_valleys(each, points) for each in both},
    )


def of_envelope(points: Points) -> Fit:
    """Approach 1: the growth of N* and D* with compute along the envelope of the learning curves."""
    points.refuse_absent(("N", "D", "C", "loss", "run"))
    closed = envelope(points)
    return _growth(
        "envelope",
        points,
        (closed.N_law, closed.D_law),
        {"budgets": {"accepted": len(closed.C), "refused": closed.refused}},
        lambda figures: {"envelope": figures.learning_curves(points, axis="C", envelope=closed)},
    )


def _growth(name: str, points: Points, laws: Sequence[PowerLaw], more: Document, drawn: Drawn) -> Fit:
    bounds = {key: replace(law.exponent, name=key) for key, law in zip("ab", laws)}
    coefficients = {f"{key}_coefficient": law.coefficient for key, law in zip("ND", laws)}
    document = {
        "law": name,
        "formula": "N* = N_coefficient C^a, D* = D_coefficient C^b",
        "citation": "Hoffmann et al. 2022, arXiv 2203.15556",
        "estimates": {**{key: interval.estimate for key, interval in bounds.items()}, **coefficients},
        "intervals": {key: interval.to_json() for key, interval in bounds.items()},
        "objective": None,
        "starts_agreeing": None,
        "held_out": None,
        "points": _counts(points),
        **more,
    }
    return Fit(mapped(document, plain), points, bounds, drawn=drawn)


def _counts(points: Points) -> Document:
    counts = {name: getattr(points, name) for name in ("source", "held_out", "used", "excluded", "failed")}
    return {
        "fitted": len(points),
        **counts,
        "planned": points.used + points.excluded + points.failed,  # these are all cases
        "count": points.count(),
        "definitions": points.definitions,
        "pooled": points.pooled(),
    }


def plain(leaf: Any) -> Any:
    """A value that JSON has: what is not finite is null."""
    if isinstance(leaf, float) and not math.isfinite(leaf):
        return None
    return leaf.item() if isinstance(leaf, np.generic) else leaf


def _frame(rows: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Records as a DataFrame, an interval as the two columns of its ends."""
    import pandas

    def cells(name: str, value: Any) -> dict[str, Any]:
        if name.startswith("interval_"):
            return {f"{name.removeprefix('interval_')}_{end}": value and value[end] for end in ("low", "high")}
        return {name: json.dumps(value) if isinstance(value, Mapping | list) else value}

    return pandas.DataFrame([{k: v for item in row.items() for k, v in cells(*item).items()} for row in rows])
