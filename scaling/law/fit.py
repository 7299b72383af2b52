"""Fit a law to points: every start screened at once, the best refined together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from scaling.errors import ScalingError, nearest
from scaling.law.diagnostics import Diagnostics, diagnose, not_identified, unidentified, unreliable
from scaling.law.forms import Form, named
from scaling.law.likelihood import Ends, bound
from scaling.law.multi_start import draw, prepare, search
from scaling.law.objective import Objective, named_objective
from scaling.law.points import EXAMPLES, PROPORTIONS, Points
from scaling.law.problem import Problem, thinned
from scaling.law.quantity import parameter
from scaling.law.residual_tests import seed_scatter
from scaling.law.robust import reweighted
from scaling.law.shared_errors import Correlation, SharedErrors
from scaling.law.solver import PATIENT, minimise
from scaling.law.validate import validated_problem

STARTS = 1024
REFINED = 64
SCREENED = 10_000
"""Points that are enough to find the optimum near which that of all points lies."""


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """The best optimum found, and what is known about it."""

    form: Form
    points: Points
    problem: Problem
    """The law and its points in the solver's order, which does not depend on that of the table's rows."""
    order: np.ndarray
    """Row of the table behind each row of the problem."""
    u: np.ndarray
    objective: float
    starts_agreeing: float
    converged: bool
    diagnostics: Diagnostics
    clusters: np.ndarray | None
    seed: int

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {value:.5g}" for name, value in self.estimates.items())
        agree = f"{100 * self.starts_agreeing:.0f}% of starts agree"
        return (
            f"{self.form.name}: {values} ({len(self.problem.observed)} points, objective {self.objective:.6g}, {agree})"
        )

    @property
    def theta(self) -> np.ndarray:
        """All parameters, in the form's order."""
        return self.problem.theta(self.u)

    @property
    def estimates(self) -> dict[str, float]:
        values = dict(zip(self.form.parameter_names, map(float, self.theta)))
        return values | {name: values[other] for name, other in self.form.tied.items()}

    @property
    def condition_number(self) -> float:
        return self.diagnostics.condition_number

    @cached_property
    def bounds(self) -> Mapping[str, Ends]:
        """The profile interval of each free parameter, in its scale; none without a degree of freedom."""
        names = [self.form.parameter_names[index] for index in self.problem.free]
        if self.degrees_of_freedom < 1:
            return {}
        quantities = [parameter(self.form, name) for name in names]
        ends = bound(self.problem, self.u, self.objective, quantities, self.refits, self.clusters)
        return dict(zip(names, ends, strict=True))

    @cached_property
    def refits(self) -> np.ndarray:
        """Optima `[refits, parameters]` under random weights; what they add to the intervals is in `robust`."""
        return reweighted(self.problem, self.u[None], self.clusters)[0]

    @cached_property
    def not_identified(self) -> tuple[str, ...]:
        """What these points do not identify, a sentence each; empty where every parameter is identified."""
        return not_identified(self.problem, self.u, self.bounds, self.diagnostics)

    @cached_property
    def unidentified(self) -> tuple[str, ...]:
        """The names of the free parameters whose estimate is no answer (`scaling.law.identification`)."""
        return unidentified(self.problem, self.u, self.bounds, self.diagnostics)

    @cached_property
    def unreliable(self) -> tuple[str, ...]:
        """Why the intervals may not cover what they claim, a sentence each."""
        return unreliable(self.problem, self.u, self.clusters)

    @property
    def residuals(self) -> np.ndarray:
        """Predicted minus observed in the objective's space, in the order of the table's rows."""
        return self._in_table_order(self.problem.errors(self.u[None])[0])

    @property
    def leverage(self) -> np.ndarray:
        """How much each point holds the law, 0 to 1, in the order of the table's rows."""
        return self._in_table_order(self.diagnostics.leverage)

    @property
    def weights(self) -> np.ndarray:
        """The weight of each point, in the order of the table's rows."""
        return self._in_table_order(self.problem.weights)

    @property
    def labels(self) -> np.ndarray | None:
        """The cluster of each point, in the order of the table's rows."""
        return None if self.clusters is None else self._in_table_order(self.clusters)

    @property
    def groups(self) -> np.ndarray | None:
        """The group of each point that shares errors, in the order of the table's rows."""
        shared = self.problem.shared
        return self._in_table_order(shared.groups) if isinstance(shared, SharedErrors) else None

    @cached_property
    def correlation(self) -> Correlation | None:
        """What the residuals show of the correlation of errors within a group, where points share some."""
        return self.problem.correlation(self.u)

    @property
    def degrees_of_freedom(self) -> int:
        return len(self.problem.observed) - len(self.problem.free)

    @property
    def degrees_of_freedom_of_intervals(self) -> int:
        """Those of Student's t in intervals: of clusters, one less than there are."""
        return self.degrees_of_freedom if self.clusters is None else max(int(self.clusters.max()), 1)

    @property
    def parameters_fitted(self) -> int:
        return len(self.problem.free)

    def without(self, mask: np.ndarray, starts: int | np.ndarray = STARTS) -> Fit:
        """The same law fitted to the points outside the mask, which has a value for each row of the table."""
        return fit(
            self.form,
            self.points.hold_out(mask)[0],
            objective=self.problem.objective,
            weights=self.weights[~mask],
            clusters=None if self.labels is None else self.labels[~mask],
            shared=None if self.groups is None else self.groups[~mask],
            fixed=self.problem.fixed,
            starts=starts,
            seed=self.seed,
        )

    @property
    def seed_noise(self) -> float | None:
        """The scatter of runs that differ in their seed alone, in the objective's space, where there are any."""
        scatter = seed_scatter(self.problem.errors(self.u[None])[0], self.problem.columns)
        return None if scatter is None else scatter[0]

    def predict(self, **inputs: Any) -> np.ndarray:
        """The law at these columns: `fit.predict(N=1e9, D=2e10)`."""
        return predict(self.form, self.theta, inputs)

    def _in_table_order(self, values: np.ndarray) -> np.ndarray:
        back = np.empty_like(values)
        back[self.order] = values
        return back


def fit(
    form: Form | str,
    points: Points | Mapping[str, Any],
    *,
    objective: Objective | None = None,
    weights: np.ndarray | None = None,
    clusters: str | np.ndarray | None = None,
    fixed: Mapping[str, float] | None = None,
    shared: str | np.ndarray | None = None,
    starts: int | np.ndarray = STARTS,
    seed: int = 0,
) -> Fit:
    """Fit `form` to `points` under `objective` (by default the law's own: log-Huber with δ = 10⁻³ for a loss).

    `weights` are relative, and scaled to a mean of one. `clusters` names the column (or gives the labels) of runs
    whose errors belong together. `shared` names that of runs with a common error (a trunk, a seed, a machine), whose
    correlation is then estimated. `fixed` holds parameters at stated values. `starts` is how many random starts are
    screened, or the starts themselves `[count, parameters]`. A fit that does not converge is an error.
    """
    form = named(form) if isinstance(form, str) else form
    points = points if isinstance(points, Points) else Points({name: np.asarray(c) for name, c in points.items()})
    objective = objective or named_objective(form.objective)
    problem, order, labels = validated_problem(form, points, objective, weights, clusters, fixed or {}, shared)
    screened = thinned(problem, SCREENED)
    if isinstance(starts, int):
        begin = draw(screened, starts, seed)
    else:
        begin = prepare(screened, np.asarray(starts, float))
    best, agreeing = search(screened, begin, REFINED)
    if screened is not problem:
        best = minimise(problem, problem.coordinates.of(screened.theta(best.u)), effort=PATIENT)
    correlation = problem.correlation(best.u[0]) if np.isfinite(best.cost[0]) else None
    if isinstance(problem.shared, SharedErrors) and correlation is not None:
        problem = replace(problem, shared=replace(problem.shared, correlation=correlation.mean))
        best = minimise(problem, best.u, effort=PATIENT)
    if not np.isfinite(best.cost[0]) or not best.converged[0]:
        raise ScalingError(
            f"the fit of {form.name} did not converge from any of {len(begin)} starts",
            file=points.source or None,
            fix="give more starts, or a law with fewer parameters",
        )
    u = problem.coordinates.of(form.canonical(problem.theta(best.u[0])))
    diagnostics = diagnose(problem, u)
    return Fit(
        form,
        points,
        problem,
        order,
        u,
        float(best.cost[0]),
        float(agreeing[0]),
        bool(best.converged[0]),
        diagnostics,
        labels,
        seed,
    )


def predict(form: Form, theta: np.ndarray, inputs: Mapping[str, Any]) -> np.ndarray:
    """The law at named columns that broadcast against each other."""
    check_columns(form, inputs)
    arrays = np.broadcast_arrays(*(np.asarray(inputs[name], float) for name in form.inputs))
    flat = {name: array.reshape(-1) for name, array in zip(form.inputs, arrays)}
    return form.predict(theta, flat).reshape(np.shape(theta)[:-1] + arrays[0].shape)


def check_columns(form: Form, names: Iterable[str], key: str | None = None) -> None:
    """Refuse names that are not the law's columns, all of them; a law of a score may have `examples` besides."""
    extra = {EXAMPLES} if form.target in PROPORTIONS else set()
    for name in (names := list(names)):
        if name not in form.inputs and name not in extra:
            raise ScalingError(f"{form.name} has no column {name!r}", key=key, fix=nearest(name, form.inputs))
    for name in form.inputs:
        if name not in names:
            raise ScalingError(f"{form.name} needs {', '.join(form.inputs)}", key=key or name, fix=f"add {name}=…")
