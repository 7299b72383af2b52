"""Fit a law of whole curves to every logged loss of many runs, by generalised least squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from scaling.errors import ScalingError, nearest, plural
from scaling.law.curves.curve import Curve, stacked
from scaling.law.curves.errors import CurveErrors, Places, Sizes, learned_sizes, places_of, some_trunks, typical_sizes
from scaling.law.forms.curve import CURVE_LAWS
from scaling.law.forms.form import Form
from scaling.law.interval import Interval
from scaling.law.likelihood import bound
from scaling.law.multi_start import choose, draw
from scaling.law.objective import LogSquared
from scaling.law.problem import Problem, thinned
from scaling.law.quantity import Quantity, parameter
from scaling.law.solver import Effort, minimise

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


@dataclass(frozen=True, eq=False, repr=False)
class CurveFit:
    """A law of whole curves, and how its losses err."""

    form: Form
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

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {value:.4g}" for name, value in self.estimates.items())
        return f"{self.form.name}: {values} ({plural(len(self.curves), 'curve')}, {len(self.problem.observed)} losses)"

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
        return self.problem.shared.places.group

    @cached_property
    def parameter_covariance(self) -> np.ndarray:
        """Of the coordinates, by the linearised law."""
        _, jacobian = self.problem.linearise(self.u[None])
        return np.linalg.pinv(jacobian[0] @ jacobian[0].T, hermitian=True)

    def has(self, kind: int) -> bool:
        """Whether there are losses of this kind: 1 for evaluations, 0 for those of training."""
        return any((curve.kinds == kind).any() for curve in self.curves)

    @property
    def r_squared(self) -> float:
        """1 - Σ(loss - predicted)² / Σ(loss - mean)², over all losses."""
        return r_squared(np.exp(self.problem.observed), self.form.predict(self.theta, self.problem.columns))

    def columns(self, curve: Curve) -> dict[str, np.ndarray]:
        """What the law reads of a curve's steps."""
        return stacked([curve], self.reference, self.decay)

    def predict(self, curve: Curve) -> np.ndarray:
        """The law at the steps of a curve, whatever its losses."""
        return self.form.predict(self.theta, self.columns(curve))

    def intervals(self, quantities: Sequence[str | Quantity] = ("E",), level: float = 0.95) -> dict[str, Interval]:
        """By profile; the scores of a trunk add up first, and Student's t has one degree less than there are trunks."""
        each = [parameter(self.form, name) if isinstance(name, str) else name for name in quantities]
        none = np.empty((0, len(self.u)))
        ends = bound(self.problem, self.u, self.objective, each, none, self.groups, level=level)
        found = {}
        for quantity, end in zip(each, ends, strict=True):
            low, high = (float(quantity.unscale(np.asarray(value))) for value in (end.low, end.high))
            estimate = float(quantity.of(self.form, self.theta))
            found[quantity.name] = Interval(
                quantity.name, estimate, low, high, level, "profile", end.open_below, end.open_above
            )
        return found

    def loss_at(self, curve: Curve, step: int) -> Quantity:
        """The law's loss at one step of a curve, to be bounded."""
        row = self.columns(curve.at([step]))
        return Quantity(f"{curve.run} at step {step}", lambda law, theta, seeds: law.evaluate(theta, row, seeds), "log")


def fit_curves(
    curves: Sequence[Curve],
    law: str | Form = "multi_power",
    *,
    after: float | None = None,
    thin: bool = True,
    seed: int = 0,
    starts: int = STARTS,
) -> CurveFit:
    """The law of every logged loss of `curves`. `after` are the tokens before which losses are left out.

    Refused are curves that measure different validation sets, and too few sizes for the term in N.
    """
    form = _law(law)
    _refuse(curves, form)
    kept = [curve.thinned(after) for curve in curves] if thin else list(curves)
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
    begun = [_optima(problem.at(few), starts, seed) for problem in problems]
    which = int(np.argmin([cost for _, cost in begun]))
    theta, sizes = _under_errors(problems[which].at(few), places.at(few), begun[which][0], typical_sizes(places))
    problem = replace(problems[which], shared=CurveErrors(sizes, places))
    ended = minimise(problem, problem.coordinates.of(theta)[None], effort=CLOSE)
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
        candidates[which],
        bool(ended.converged[0]),
    )


def _law(law: str | Form) -> Form:
    if isinstance(law, Form):
        return law
    if law not in CURVE_LAWS:
        raise ScalingError("is no law of curves", key="law", value=law, fix=nearest(law, CURVE_LAWS))
    return CURVE_LAWS[law]


def _problem(form: Form, curves: Sequence[Curve], reference: float, decay: float) -> Problem:
    """Least squares of all losses, whatever their errors share."""
    columns = stacked(curves, reference, decay)
    losses = np.concatenate([curve.losses for curve in curves])
    if losses.min() <= 0:
        raise ScalingError("has no logarithm", key="loss", value=float(losses.min()), fix="give losses in nats")
    # One size says nothing of the term in N, which is then a part of E.
    fixed = dict(NO_SIZES) if len(set(columns["N"].tolist())) == 1 else {}
    # Where no rate falls E is the floor under that rate.
    if "falls" in form.inputs and not columns["falls"].any():
        fixed |= NO_FALLS
    return Problem(form, columns, np.log(losses), np.ones(len(losses)), LogSquared(), fixed)


def _optima(problem: Problem, starts: int, seed: int) -> tuple[np.ndarray, float]:
    """Where least squares end, the best first, and the least cost: for the fit of more losses to begin from."""
    some = thinned(problem, SCREENED)
    begin = choose(some, draw(some, starts, seed), REFINED)[0]
    ended = minimise(some, begin, effort=CLOSE)
    order = np.argsort(ended.cost)
    return problem.coordinates.of(some.theta(ended.u[order])), float(ended.cost[order[0]])


def _under_errors(problem: Problem, places: Places, optima: np.ndarray, sizes: Sizes) -> tuple[np.ndarray, Sizes]:
    """The parameters under the covariance that the errors show, and its sizes, which begin at `sizes`."""
    u = optima[0]
    for remaining in range(ROUNDS, -1, -1):
        correlated = replace(problem, shared=CurveErrors(sizes, places))
        # An optimum of least squares may lie in a corner that no step leaves: all are tried under each covariance.
        ended = minimise(correlated, np.concatenate([u[None], optima]), effort=CLOSE)
        u = ended.u[int(ended.cost.argmin())]
        if remaining:
            errors, jacobian = problem.linearise(u[None])
            sizes = learned_sizes(places, errors[0], jacobian[0], sizes)
    return problem.theta(u), sizes


def _refuse(curves: Sequence[Curve], form: Form) -> None:
    if not curves:
        raise ScalingError("there is no curve", key="curves", fix="give runs that have logged losses")
    sets = sorted({curve.validation for curve in curves if curve.validation})
    if len(sets) > 1:
        what = f"the losses are of {len(sets)} validation sets ({', '.join(sets[:3])})"
        raise ScalingError(what, key="validation", fix="fit the curves of one set: --where validation=…")
    sizes = {float(curve.N) for curve in curves}
    if len(sizes) == 2:
        what = f"{len(sizes)} sizes cannot determine the term in N of {form.name}"
        raise ScalingError(what, key="N", fix="add curves of other sizes, 3 or more in all, or fit one size alone")


def r_squared(observed: np.ndarray, predicted: np.ndarray) -> float:
    """1 - Σ(observed - predicted)² / Σ(observed - mean)²."""
    return float(1.0 - np.sum((observed - predicted) ** 2) / np.sum((observed - observed.mean()) ** 2))


def mean_error(observed: np.ndarray, predicted: np.ndarray) -> float:
    """The mean of |predicted / observed - 1|."""
    return float(np.mean(np.abs(predicted / observed - 1.0)))
