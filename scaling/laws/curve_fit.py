"""A law over the size, the tokens and the schedule, fitted to every logged loss of many runs.

The sizes and powers of the errors are those of the largest restricted likelihood (Patterson and Thompson 1971,
Biometrika 58(3)), learned in turn with the law, which is fitted by generalised least squares under them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from scaling.errors import ScalingError, nearest, plural
from scaling.laws.curves import Curve, CurveErrors, Sizes, columns_of, covariance, places_of, stacked
from scaling.laws.intervals import Interval, bound, student
from scaling.laws.law import Law
from scaling.laws.problem import OBJECTIVES, Problem, Quantity, least_squares, parameter
from scaling.laws.solver import Effort, choose, draw, minimise
from scaling.laws.special_laws import CURVE_LAWS
from scaling.printing import Table, TableResult, interval, percent

GROUPS = 12
"""Trunks from which the sizes of the errors are learned where there are more: the others would change little."""
BOUNDS = ((1e-5, 0.3), (1e-5, 0.3), (0.03, 5.0), (1e-6, 0.1), (1e-4, 1.0), (0.01, 1.0), (0.01, 1.0))
TYPICAL = Sizes(2e-3, 5e-4, 0.3, 8e-4, 2.5e-2, 0.5, 0.3)
"""Under which a law is fitted first: the errors of a fit without a covariance would show its own faults."""
STARTS, REFINED = 256, 8
SCREENED = 800
"""Losses on which starts are screened: enough to find the optimum near which that of all lies."""
GATHERED = 5000
"""Losses, about, from which an optimum and the sizes of the errors are learned: those of all move it little."""
ROUNDS = 3
"""Of learning the sizes of the errors and fitting under them."""
CLOSE = Effort(1e-9, 60)
NO_SIZES = {"A": 1e-100, "alpha": 0.0}
NO_FALLS = {"C": 1e-100}
DECAYS = (0.99, 0.995, 0.999, 0.9995)
"""λ of the annealing area, each of which is tried."""


def some_trunks(places: np.ndarray, losses: int = 0) -> np.ndarray:
    """The rows of GROUPS trunks, spread over all sizes, or of more where these have fewer losses than are wanted."""
    trunks, first = np.unique(places["group"], return_index=True)
    count = min(len(trunks), max(GROUPS, len(trunks) * losses // len(places)))
    order = np.argsort(places["log_size"][first], kind="stable")
    chosen = order[np.linspace(0, len(trunks) - 1, count).round().astype(int)]
    return np.flatnonzero(np.isin(places["group"], trunks[chosen]))


def _learned_sizes(places: np.ndarray, errors: np.ndarray, design: np.ndarray, begin: Sizes) -> Sizes:
    """The sizes that the errors of a fit `[losses]` show; `design` `[parameters, losses]` is its derivative."""
    from scipy.optimize import minimize

    rows = some_trunks(places)
    places, errors, design = places[rows], errors[rows], design[:, rows]
    unseen = {3} if not (places["kind"] == 1).any() else {4} if not (places["kind"] == 0).any() else set()
    free = [place for place in range(len(BOUNDS)) if place not in unseen]
    low, high = np.log(np.array(BOUNDS)).T
    start = np.log(astuple(begin)[: len(BOUNDS)])

    def sizes(x: np.ndarray) -> Sizes:
        logs = start.copy()
        logs[free] = x
        return Sizes(*np.exp(np.clip(logs, low, high)).tolist(), N=begin.N, D=begin.D)

    def negative(x: np.ndarray) -> float:
        fit = least_squares(CurveErrors(sizes(x), places), design, errors)
        outside = float(np.sum(np.maximum(low[free] - x, 0.0) + np.maximum(x - high[free], 0.0)))
        return 0.5 * (fit.square + fit.penalty) + 10.0 * outside

    best = minimize(negative, start[free], method="Nelder-Mead", options={"maxfev": 300, "xatol": 0.03, "fatol": 0.05})
    return sizes(best.x)


@dataclass(frozen=True, eq=False, repr=False)
class CurveFit(TableResult):
    """A law of whole curves, how its losses err, and the runs that it predicts. Printed, it is `scaling fit-curves`."""

    form: Law
    curves: tuple[Curve, ...]
    problem: Problem
    u: np.ndarray
    objective: float
    sizes: Sizes
    reference: float
    """The learning rate that counts as 1: the median peak."""
    decay: float
    """λ of the annealing area."""
    converged: bool
    held_out: tuple[Curve, ...] = ()
    unfinished: tuple[Curve, ...] = ()
    level: float = 0.95

    @property
    def theta(self) -> np.ndarray:
        return self.problem.theta(self.u)

    @property
    def estimates(self) -> dict[str, float]:
        return dict(zip(self.form.parameter_names, map(float, self.theta), strict=True))

    @cached_property
    def groups(self) -> np.ndarray:
        """The trunk of each loss."""
        assert isinstance(self.problem.shared, CurveErrors)
        return self.problem.shared.places["group"]

    @cached_property
    def parameter_covariance(self) -> np.ndarray:
        """The covariance of the coordinates, by the linearised law."""
        _, jacobian = self.problem.linearise(self.u[None])
        return np.linalg.pinv(jacobian[0] @ jacobian[0].T, hermitian=True)

    @property
    def observed(self) -> np.ndarray:
        """The losses that the law is fitted to."""
        return np.exp(self.problem.observed)

    @property
    def r_squared(self) -> float:
        """1 - Σ(loss - predicted)² / Σ(loss - mean)², over all losses."""
        residuals = self.observed - self.form.predict(self.theta, self.problem.columns)
        return float(1.0 - np.sum(residuals**2) / np.sum((self.observed - self.observed.mean()) ** 2))

    @property
    def mean_error(self) -> float:
        """The mean of |predicted / loss - 1|, over all losses."""
        return float(np.mean(np.abs(self.form.predict(self.theta, self.problem.columns) / self.observed - 1.0)))

    def columns(self, curve: Curve) -> dict[str, np.ndarray]:
        """What the law reads of a curve's steps."""
        return columns_of(curve, self.reference, self.decay)

    def predict(self, curve: Curve) -> np.ndarray:
        """The law at the steps of a curve, whatever its losses."""
        return self.form.predict(self.theta, self.columns(curve))

    def intervals(
        self, quantities: Sequence[str | Quantity] | None = None, level: float | None = None
    ) -> dict[str, Interval]:
        """Profile intervals, by default of E and the exponents of N and D.

        The scores of a trunk add up first, and Student's t has one degree of freedom less than there are trunks.
        """
        level = self.level if level is None else level
        if quantities is None:
            quantities = [name for name in ("E", "alpha", "beta") if name not in self.problem.fixed]
        each = [parameter(self.form, name) if isinstance(name, str) else name for name in quantities]
        none = np.empty((0, len(self.u)))
        bounds = bound(self.problem, self.u, self.objective, each, none, self.groups, level=level)
        return {interval.name: interval for interval in bounds}

    def complete(self, begun: Curve, steps: Sequence[int] | None = None, level: float | None = None) -> list[Interval]:
        """The losses of a run at `steps` (by default its end), given those that it has logged.

        The best linear prediction: what the run's errors so far show of its later ones (Rasmussen and Williams 2006,
        Gaussian Processes, section 2.2 with 2.7), with the error of the law, and the noise of one evaluation.
        """
        level = self.level if level is None else level
        goal = begun.at([len(begun.rates)] if steps is None else steps)
        seen = begun.thinned(0.0) if len(begun.steps) else begun
        seen = seen.where(seen.steps > 2 * begun.warmup)
        ahead, (law, design) = places_of([goal]), self._linearised(goal)
        variance = np.diag(covariance(self.sizes, ahead)).copy()
        if len(seen.steps):
            behind, (fitted, slopes) = places_of([seen]), self._linearised(seen)
            cross = covariance(self.sizes, ahead, behind)
            gain = np.linalg.solve(covariance(self.sizes, behind), cross.T).T
            law, design = law + gain @ (np.log(seen.losses) - fitted), design - gain @ slopes
            variance = variance - np.sum(gain * cross, axis=1)
        variance = variance + np.einsum("ij,jk,ik->i", design, self.parameter_covariance, design)
        half = student(level, max(len(set(self.groups.tolist())) - 1, 1)) * np.sqrt(np.maximum(variance, 0.0))
        ends = np.exp([law, law - half, law + half]).T.tolist()
        return [
            Interval(f"{begun.run} at step {step}", estimate, low, high, level, "t")
            for step, (estimate, low, high) in zip(goal.steps, ends, strict=True)
        ]

    def _linearised(self, curve: Curve) -> tuple[np.ndarray, np.ndarray]:
        """The log loss at the steps of a curve and its derivative by the coordinates."""
        value, *slopes = self.problem.derivative(self.u[None], self.columns(curve))[0]
        return value, np.array(slopes).T

    @cached_property
    def document(self) -> dict[str, Any]:
        """The document of `scaling fit-curves --json` (docs/json.md)."""
        seen = set(np.concatenate([curve.kinds for curve in self.curves]).tolist())
        errors: dict[str, float | None] = {part.name: getattr(self.sizes, part.name) for part in fields(Sizes)[:-2]}
        errors |= {name: None for name, kind in (("evaluation", 1), ("training", 0)) if kind not in seen}
        return {
            "law": self.form.name,
            "formula": self.form.formula,
            "citation": self.form.citation,
            "curves": len(self.curves),
            "losses": len(self.observed),
            "estimates": self.estimates,
            "intervals": {name: interval.to_json() for name, interval in self.intervals().items()},
            "errors": errors,
            "r_squared": self.r_squared,
            "mean_error": self.mean_error,
            "converged": self.converged,
            "held_out": [self._judged(curve) for curve in self.held_out],
            "completed": [
                {"run": curve.run, "at": curve.share, **self.complete(curve)[0].to_json()} for curve in self.unfinished
            ],
        }

    def _judged(self, curve: Curve) -> dict[str, Any]:
        """The last evaluation of a run that took no part in the fit, next to its prediction."""
        evaluated = curve.where(curve.kinds == 1)
        last = int(evaluated.steps.argmax())
        (predicted,), loss = self.complete(curve.at([]), [int(evaluated.steps[last])]), float(evaluated.losses[last])
        row = {"run": curve.run, "N": curve.N, "loss": loss, "predicted": predicted.estimate}
        row |= {"relative_error": predicted.estimate / loss - 1.0, "covered": predicted.covers(loss)}
        return row | {"interval_run": predicted.to_json()}

    def to_json(self) -> dict[str, Any]:
        return self.document

    def heading(self) -> Iterator[str]:
        errors = self.document["errors"]
        yield f"{self.form.name}: {self.form.formula}"
        yield self.form.citation
        fitted = f"{len(self.observed):,} losses of {plural(len(self.curves), 'curve')}"
        yield f"{fitted}, R² {self.r_squared:.4f}, mean error {self.mean_error:.2%}"
        titles = {"trunk": "trunk", "run": "along a run", "evaluation": "evaluation", "training": "training loss"}
        sizes = ", ".join(f"{title} {errors[name]:.2g}" for name, title in titles.items() if errors[name] is not None)
        powers = f"N^-{errors['by_size']:.2g} D^-{errors['by_tokens']:.2g}"
        yield f"errors of log loss: {sizes}; those of trunks and runs shrink as {powers}"
        if not self.converged:
            yield "! the fit did not converge: these curves do not identify the parameters of the schedule"

    def tables(self) -> Iterator[Table]:
        bounds, between = self.document["intervals"], f"{percent(self.level)} interval"
        values = self.estimates.items()
        rows = [[name, f"{value:.5g}", interval(bounds.get(name), ".5g")] for name, value in values]
        yield Table("Estimates.", ["", "estimate", between], rows)
        titles = ["held out", "loss", "predicted", "error", f"{between} of a new run", "inside"]
        rows = [
            [
                *(run["run"], f"{run['loss']:.4f}", f"{run['predicted']:.4f}", f"{run['relative_error']:+.2%}"),
                *(interval(run["interval_run"]), "yes" if run["covered"] else "no"),
            ]
            for run in self.document["held_out"]
        ]
        if rows:
            yield Table("Held-out runs.", titles, rows, words=(0, 5))
        rows = [
            [run["run"], f"{run['at']:.0%}", f"{run['estimate']:.4f}", interval(run)]
            for run in self.document["completed"]
        ]
        if rows:
            yield Table("Unfinished runs.", ["unfinished", "done", "predicted end", between], rows)

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {value:.4g}" for name, value in self.estimates.items())
        return f"{self.form.name}: {values} ({plural(len(self.curves), 'curve')}, {len(self.observed)} losses)"


def fit_curves(
    curves: Sequence[Curve],
    law: str | Law = "multi_power",
    *,
    after: float | None = None,
    level: float = 0.95,
    seed: int = 0,
    starts: int = STARTS,
) -> CurveFit:
    """The law of every logged loss of `curves`, which predicts those that are held out and the ends of the others.

    `after` are the tokens before which losses are left out. Curves that measure different validation sets are refused,
    and too few sizes for the term in N.
    """
    if isinstance(law, str) and law not in CURVE_LAWS:
        raise ScalingError("is no law of curves", key="law", value=law, fix=nearest(law, CURVE_LAWS))
    form = CURVE_LAWS[law] if isinstance(law, str) else law
    used = [curve for curve in curves if not curve.held_out]
    _refuse(used, form)
    kept = [curve.thinned(after) for curve in used]
    kept = sorted((curve for curve in kept if len(curve.steps)), key=lambda curve: curve.run)
    if not kept:
        raise ScalingError(
            "no loss is left after the start of the runs", key="curves", fix="log more often, or lower --after"
        )
    reference = float(np.median([curve.peak for curve in kept]))
    places = places_of(kept)
    few = some_trunks(places, GATHERED)
    candidates = DECAYS if "S2" in form.inputs else DECAYS[2:3]
    problems = [_problem(form, kept, reference, decay) for decay in candidates]
    optima = [_optima(problem.at(few), starts, seed) for problem in problems]
    best = int(np.argmin([cost for _, cost in optima]))
    middle = (float(np.exp(np.median(places[name]))) for name in ("log_size", "log_tokens"))
    sizes = replace(TYPICAL, **dict(zip(("N", "D"), middle)))
    theta, sizes = _under_errors(problems[best].at(few), places[few], optima[best][0], sizes)
    problem = replace(problems[best], shared=CurveErrors(sizes, places))
    ended = minimise(problem, problem.coordinates(theta)[None], effort=CLOSE)
    if not np.isfinite(ended.cost[0]):
        raise ScalingError(f"the fit of {form.name} did not converge", key="curves", fix="give more curves")
    return CurveFit(
        form,
        tuple(kept),
        problem,
        ended.u[0],
        float(ended.cost[0]),
        sizes,
        reference,
        candidates[best],
        bool(ended.converged[0]),
        tuple(curve for curve in curves if curve.held_out and (curve.kinds == 1).any()),
        tuple(curve for curve in used if curve.share < 1.0 and curve.run != curve.trunk),
        level,
    )


def _refuse(curves: Sequence[Curve], form: Law) -> None:
    if not curves:
        raise ScalingError("there is no curve", key="curves", fix="give runs that have logged losses")
    sets = sorted({curve.validation for curve in curves if curve.validation})
    if len(sets) > 1:
        what = f"the losses are of {len(sets)} validation sets ({', '.join(sets[:3])})"
        raise ScalingError(what, key="validation", fix="fit the curves of one set: --where validation=…")
    if len({float(curve.N) for curve in curves}) == 2:
        what = f"2 sizes cannot determine the term in N of {form.name}"
        raise ScalingError(what, key="N", fix="add curves of other sizes, 3 or more in all, or fit one size alone")


def _problem(form: Law, curves: Sequence[Curve], reference: float, decay: float) -> Problem:
    """Least squares of all losses, whatever their errors share."""
    inputs = stacked(curves, reference, decay)
    losses = np.concatenate([curve.losses for curve in curves])
    if losses.min() <= 0:
        raise ScalingError("has no logarithm", key="loss", value=float(losses.min()), fix="give losses in nats")
    # One size says nothing of the term in N, which is then a part of E.
    fixed = dict(NO_SIZES) if len(set(inputs["N"].tolist())) == 1 else {}
    # Where no rate falls E is the floor under that rate.
    if "falls" in form.inputs and not inputs["falls"].any():
        fixed |= NO_FALLS
    return Problem(form, inputs, np.log(losses), np.ones(len(losses)), OBJECTIVES["log_squared"], fixed)


def _optima(problem: Problem, starts: int, seed: int) -> tuple[np.ndarray, float]:
    """Where least squares end, the best first, and the least cost: for the fit of more losses to begin from."""
    some = problem.thinned(SCREENED)
    begin = choose(some, draw(some, starts, seed), REFINED)[0]
    ended = minimise(some, begin, effort=CLOSE)
    order = np.argsort(ended.cost)
    return problem.coordinates(some.theta(ended.u[order])), float(ended.cost[order[0]])


def _under_errors(problem: Problem, places: np.ndarray, optima: np.ndarray, sizes: Sizes) -> tuple[np.ndarray, Sizes]:
    """The parameters under the covariance that the errors show, and its sizes, which begin at `sizes`."""
    u = optima[0]
    for remaining in range(ROUNDS, -1, -1):
        correlated = replace(problem, shared=CurveErrors(sizes, places))
        # An optimum of least squares may lie in a corner that no step leaves: all are tried under each covariance.
        ended = minimise(correlated, np.concatenate([u[None], optima]), effort=CLOSE)
        u = ended.u[int(ended.cost.argmin())]
        if remaining:
            errors, jacobian = problem.linearise(u[None])
            sizes = _learned_sizes(places, errors[0], jacobian[0], sizes)
    return problem.theta(u), sizes
