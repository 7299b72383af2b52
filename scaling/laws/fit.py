"""Fit a law to points: all starts are screened at once, and the best are refined together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from scaling.base.errors import nearest, plural, refuse
from scaling.laws.catalogue import named
from scaling.laws.diagnostics import geometry, identify, seed_scatter, unreliable
from scaling.laws.intervals import LEVEL, METHODS, Interval, Method, bootstrap, bound, reweighted
from scaling.laws.law import EXAMPLES, PROPORTIONS, Columns, Law, with_compute
from scaling.laws.points import Points
from scaling.laws.problem import (
    PRIOR_CORRELATION,
    Correlation,
    Objective,
    Problem,
    Quantity,
    SharedErrors,
    named_objective,
    named_quantity,
)
from scaling.laws.solver import EXACT, PATIENT, Effort, draw, minimise, prepare, search

STARTS, REFINED = 1024, 64
SCREENED = 1000  # Points that are enough to find the optimum near which that of all points lies
# More rows are whole training curves: minutes and gigabytes for a law that one row a run determines.
MOST_POINTS = 100_000
LINE = 0.02  # Points whose columns lie this close to one line in logarithms do not separate the columns


@dataclass(frozen=True, eq=False, repr=False)
class FittedLaw:
    """The best optimum that was found, with its diagnostics."""

    form: Law
    points: Points
    problem: Problem  # the law and its points in the solver's order, which does not depend on that of the table's rows
    order: np.ndarray  # the row of the table behind each row of the problem
    u: np.ndarray
    objective: float
    starts_agreeing: float
    seed: int

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {value:.5g}" for name, value in self.estimates.items())
        ending = f"objective {self.objective:.6g}, {100 * self.starts_agreeing:.0f}% of starts agree"
        return f"{self.form.name}: {values} ({len(self.problem.observed)} points, {ending})"

    @property
    def theta(self) -> np.ndarray:
        """All parameters, in the form's order."""
        return self.problem.theta(self.u)

    @property
    def estimates(self) -> dict[str, float]:
        values = dict(zip(self.form.parameter_names, map(float, self.theta)))
        return values | {name: values[other] for name, other in self.form.tied.items()}

    @cached_property
    def linear(self) -> tuple[np.ndarray, np.ndarray]:
        """Predicted minus observed `[points]` and its derivative `[parameters, points]`, times the root of weights."""
        return self.problem.scaled(self.u)

    @cached_property
    def geometry(self) -> tuple[float, np.ndarray]:
        """The condition number of the fit, and the correlation of its estimates."""
        return geometry(self.linear[1])

    @cached_property
    def bounds(self) -> Mapping[str, Interval]:
        """The 95% profile interval of each free parameter and derived quantity; none without a degree of freedom."""
        if self.degrees_of_freedom < 1:
            return {}
        quantities = [named_quantity(self.form, name) for name in (*self.problem.free_names, *self.form.derived)]
        return {interval.name: interval for interval in bounds_of(self, quantities)}

    @cached_property
    def refits(self) -> np.ndarray:
        """Optima `[refits, parameters]` under random weights, by whose spread intervals widen."""
        return reweighted(self.problem, self.u)

    @cached_property
    def _identified(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return identify(self.problem, self.u, self.bounds, *self.geometry)

    @property
    def not_identified(self) -> tuple[str, ...]:
        """A sentence on each parameter that these points do not identify; empty where all are identified."""
        return self._identified[1]

    @property
    def unidentified(self) -> tuple[str, ...]:
        """The names of the free parameters that are not identified."""
        return self._identified[0]

    @cached_property
    def unreliable(self) -> tuple[str, ...]:
        """The reasons why the coverage of the intervals may be too low, one sentence each."""
        return tuple(unreliable(self.problem, self.u))

    @property
    def residuals(self) -> np.ndarray:
        """Predicted minus observed in the objective's space, in the order of the table's rows."""
        return self.in_table_order(self.problem.errors(self.u[None])[0])

    @property
    def weights(self) -> np.ndarray:
        """The weight of each point, in the order of the table's rows."""
        return self.in_table_order(self.problem.weights)

    @property
    def groups(self) -> np.ndarray | None:
        """The group of each point that shares errors, in the order of the table's rows."""
        shared = self.problem.shared
        return self.in_table_order(shared.groups) if isinstance(shared, SharedErrors) else None

    @cached_property
    def correlation(self) -> Correlation | None:
        """The correlation of errors within a group, estimated from the residuals; None where no points share errors."""
        return self.problem.correlation(self.u)

    @property
    def degrees_of_freedom(self) -> int:
        return len(self.problem.observed) - len(self.problem.free)

    @property
    def parameters_fitted(self) -> int:
        return len(self.problem.free)

    @property
    def seed_noise(self) -> float | None:
        """The standard deviation of runs that differ only in their seed, in the objective's space, if there are any."""
        return (seed_scatter(self.problem.errors(self.u[None])[0], self.problem.columns) or (None, 0))[0]

    def without(self, mask: np.ndarray, starts: int | np.ndarray = STARTS) -> FittedLaw:
        """The same law fitted to the points outside the mask, which has a value for each row of the table."""
        return fit(
            self.form,
            self.points.hold_out(mask)[0],
            objective=self.problem.objective,
            weights=self.weights[~mask],
            group=None if self.groups is None else self.groups[~mask],
            fixed=self.problem.fixed,
            starts=starts,
            seed=self.seed,
        )

    def predict(self, **inputs: Any) -> np.ndarray:
        """The law at these columns: `fit.predict(N=1e9, D=2e10)`."""
        return predict(self.form, self.theta, inputs)

    def in_table_order(self, values: np.ndarray) -> np.ndarray:
        """Values of the problem's rows in the order of the table's."""
        return values[..., np.argsort(self.order)]


@np.errstate(all="ignore")  # the solver handles an overflow on the way
def fit(
    form: Law | str,
    points: Points | Mapping[str, Any],
    *,
    objective: Objective | str | None = None,
    weights: np.ndarray | None = None,
    group: str | np.ndarray | None = None,
    fixed: Mapping[str, float] | None = None,
    starts: int | np.ndarray = STARTS,
    effort: Effort = EXACT,
    seed: int = 0,
) -> FittedLaw:
    """Fit `form` to `points` under `objective` (by default the law's own: log-Huber with δ = 10⁻³ for a loss).

    `weights` are relative, and scaled to a mean of one. `group` names the column (or holds the labels) of runs that
    share an error (a trunk, a seed, a machine), whose correlation is then estimated. `fixed` holds parameters at stated
    values. `starts` is the number of random starts, or the starts themselves `[count, parameters]`; `effort` limits
    their refinement. A fit that does not converge is an error.
    """
    form = named(form) if isinstance(form, str) else form
    points = table_of_columns(points)
    if not isinstance(objective, Objective):
        objective = named_objective(objective or form.objective)
    problem, order = problem_of(form, points, objective, weights, group, fixed or {})
    screened = problem.thinned(SCREENED)
    begin = draw(screened, starts, seed) if isinstance(starts, int) else prepare(screened, np.asarray(starts, float))
    best, agreeing = search(screened, begin, REFINED, effort)
    if screened is not problem:
        best = minimise(problem, problem.coordinates(screened.theta(best.u)), effort=PATIENT)
    correlation = problem.correlation(best.u[0]) if np.isfinite(best.cost[0]) else None
    if isinstance(problem.shared, SharedErrors) and correlation is not None:
        problem = replace(problem, shared=replace(problem.shared, correlation=correlation.mean))
        best = minimise(problem, best.u, effort=PATIENT)
    what = f"the fit of {form.name} did not converge from any of {len(begin)} starts"
    points.refuse(not best.converged[0], what, "give more starts, or a law with fewer parameters")
    u = problem.coordinates(form.canonical(problem.theta(best.u[0])))
    return FittedLaw(form, points.with_numbers(form), problem, order, u, float(best.cost[0]), agreeing, seed)


def table_of_columns(points: Points | Mapping[str, Any]) -> Points:
    return points if isinstance(points, Points) else Points({name: np.asarray(c) for name, c in points.items()})


def predict(form: Law, theta: np.ndarray, inputs: Mapping[str, Any]) -> np.ndarray:
    """The law at named columns that broadcast against each other."""
    check_columns(form, inputs)
    arrays = np.broadcast_arrays(*(np.asarray(inputs[name], float) for name in form.inputs))
    flat = {name: array.reshape(-1) for name, array in zip(form.inputs, arrays)}
    return form.predict(theta, flat).reshape(np.shape(theta)[:-1] + arrays[0].shape)


def check_columns(form: Law, names: Collection[str], key: str | None = None) -> None:
    """Refuse names that are not the law's columns, all of them; a law of a score may have `examples` besides."""
    columns = {*form.inputs, *([EXAMPLES] if form.target in PROPORTIONS else [])}
    for name in names:
        refuse(name not in columns, f"{form.name} has no column {name!r}", nearest(name, form.inputs), key=key)
    for name in form.inputs:
        needs = f"{form.name} needs {', '.join(form.inputs)}"
        refuse(name not in names, needs, f"add {name}=…", key=key or name)


@np.errstate(all="ignore")
def intervals(
    fit: FittedLaw,
    method: Method = "profile",
    *,
    level: float = LEVEL,
    quantities: Sequence[str | Quantity] | None = None,
    count: int = 1000,
) -> dict[str, Interval]:
    """An interval for each quantity: names of parameters or of the form's derived quantities, or `Quantity` objects.

    Without `quantities`, every free parameter and every derived quantity. `count` is the bootstrap's.
    """
    if quantities is None and (method, level) == ("profile", LEVEL) and fit.bounds:
        return dict(fit.bounds)
    names = [*fit.problem.free_names, *fit.form.derived] if quantities is None else quantities
    each = [name if isinstance(name, Quantity) else named_quantity(fit.form, name) for name in names]
    return {interval.name: interval for interval in bounds_of(fit, each, method, level, count)}


@np.errstate(all="ignore")
def bounds_of(
    fit: FittedLaw, each: Sequence[Quantity], method: Method = "profile", level: float = LEVEL, count: int = 1000
) -> list[Interval]:
    """The interval of each quantity, in their order."""
    refuse(method not in METHODS, f"there is no interval method {method!r}", nearest(method, METHODS))
    refuse(not 0.0 < level < 1.0, "is not between 0 and 1", key="level", value=level)
    if method == "bootstrap":
        refits, failed = bootstrap(fit.problem, fit.u, count, fit.seed)
        what = f"{failed} of {count} bootstrap refits did not converge"
        refuse(failed > 0.05 * count, what, "use the profile, or a smaller law")
        theta, tails = fit.problem.theta(refits), (0.5 - 0.5 * level, 0.5 + 0.5 * level)
        values = [(float(one.of(fit.form, fit.theta)), *np.quantile(one.of(fit.form, theta), tails)) for one in each]
        return [Interval(one.name, *map(float, three), level=level, method=method) for one, three in zip(each, values)]
    n, p = len(fit.problem.observed), len(fit.problem.free)
    refuse(n <= p, f"{n} points leave no degree of freedom after {p} parameters", "add points")
    return bound(fit.problem, fit.u, fit.objective, each, fit.refits, level=level, method=method)


def problem_of(
    form: Law,
    points: Points,
    objective: Objective,
    weights: np.ndarray | None = None,
    group: str | np.ndarray | None = None,
    fixed: Mapping[str, float] = MappingProxyType({}),
) -> tuple[Problem, np.ndarray]:
    """The problem in an order of rows that depends on their contents alone, and that order.

    Refused is what cannot determine the law.
    """
    refuse_fixed(form, fixed)
    what = "every parameter is fixed, and none is left to fit"
    refuse(len(fixed) == len(form.parameters), what, "leave one of them free", key="fix")
    what = f"{len(points):,} rows are more than the {MOST_POINTS:,} that a fit takes"
    points.refuse(len(points) > MOST_POINTS, what, "keep one row a run, or some of them (--where)")
    points.refuse_absent((*form.inputs, form.target))
    columns, target = {name: points.numbers(name) for name in form.inputs}, points.numbers(form.target)
    _refuse_columns(form, len(form.parameters) - len(fixed), columns, points)
    _refuse_target(form, fixed, columns, target, points, objective)
    _refuse_geometry(form, fixed, columns, target, points)
    weight = np.ones(len(points)) if weights is None else np.asarray(weights, float)
    is_weight = weight.shape == (len(points),) and np.all(np.isfinite(weight) & (weight > 0))
    what, fix = "expected one positive weight for each point", "leave the other points out by --where 'COLUMN>0'"
    points.refuse(not is_weight, what, fix, "weight", value=float(weight.min()))
    weight = weight / weight.mean()
    labels = points.labels(group) if isinstance(group, str) else np.arange(len(points)) if group is None else group
    groups = np.unique(labels, return_inverse=True)[1].reshape(-1)
    fix = "name a column of the table"
    refuse(len(groups) != len(points), "expected a label for each point", fix, key="group", value=len(groups))
    keys = (np.zeros(len(points)) if group is None else groups, weight, target)
    order = np.lexsort((*keys, *(columns[name] for name in reversed(form.inputs))))
    is_shared = group is not None and groups.max() + 1 < len(points)
    problem = Problem(
        form,
        {name: column[order] for name, column in columns.items()},
        objective.transform(target[order]),
        weight[order],
        objective,
        dict(fixed),
        SharedErrors(groups[order], PRIOR_CORRELATION) if is_shared else None,
    )
    return problem, order


def refuse_fixed(form: Law, fixed: Mapping[str, float]) -> None:
    """Refuse to hold what is no parameter, or at a value outside the bounds of its parameter."""
    for name, value in fixed.items():
        root, fix = form.tied.get(name), nearest(name, form.parameter_names)
        refuse(root, f"is tied to {root}", f"fix {root}", key=name)
        refuse(name not in form.parameter_names, "is not a parameter of the law", fix, key=name)
        limits = form.parameters[form.parameter_names.index(name)]
        what = f"is outside its bounds, {limits.lower:g} to {limits.upper:g}"
        refuse(not limits.lower <= value <= limits.upper, what, "fix it within them", key=name, value=value)


@np.errstate(all="ignore")
def _refuse_columns(form: Law, parameters: int, columns: Columns, points: Points) -> None:
    """A compute above all numbers, columns of one value, fewer distinct scales than parameters, and proportions that do
    not sum to one.
    """
    is_finite = np.isfinite(with_compute(columns).get("C", 0.0)).all()
    points.refuse(not is_finite, "is too large", "count N and D in larger units", "6ND")
    for name, column in columns.items():
        fix = f"add runs at another {name}, or fit a law without it"
        points.refuse(
            np.ptp(column) == 0, "has one value, so no law in it can be seen", fix, name, value=float(column[0])
        )
    table = np.column_stack([*columns.values()])
    scales = len(np.unique(table, axis=0))
    what = f"{plural(scales, 'distinct scale')} ({', '.join(columns)}) cannot determine {parameters} parameters"
    fix = f"add {plural(parameters - scales, 'scale')} or more, or fit a law with fewer parameters"
    points.refuse(scales < parameters, what, fix)
    if "p_1" in columns:
        names = [name for name in columns if name.startswith("p_")]
        mixture = np.column_stack([columns[name] for name in names])
        wrong = (mixture < 0).any(1) | (np.abs(mixture.sum(1) - 1.0) > 0.01)
        row = int(np.argmax(wrong))
        what = f"{', '.join(names)} of row {row + 1} has a negative proportion or does not sum to 1"
        shown = " + ".join(f"{value:g}" for value in mixture[row])
        points.refuse(wrong.any(), what, "give every domain of the mixture a column of its fraction", "p", value=shown)


@np.errstate(all="ignore")
def _refuse_target(
    form: Law,
    fixed: Mapping[str, float],
    columns: Columns,
    target: np.ndarray,
    points: Points,
    objective: Objective,
) -> None:
    """A target without a logarithm or of one value, and a floor that is held above it: other terms can only add."""
    lowest = float(target.min())
    is_log, fix = objective.space == "log", "fit under the objective squared"
    refuse(is_log and lowest <= 0, "has no logarithm", fix, key=form.target, value=lowest)
    what, fix = "has one value, so there is nothing to explain", "map the column of the final losses: --map loss=COLUMN"
    points.refuse(lowest == target.max(), what, fix, form.target, value=lowest)
    terms = form.jacobian(np.ones(len(form.parameters)), columns)[:, form.linear]
    for index, term in zip(form.linear, terms.T):
        one = form.parameters[index]
        value = fixed.get(one.name, one.lower)
        # Scores scatter about the level of chance.
        is_floor = one.scale == "linear" and one.name != form.chance and np.all(term == 1.0) and np.all(terms >= 0)
        what = f"is a floor of the {form.target}, and the lowest {form.target} is {lowest:.4g}"
        fix = "hold it below that, or leave it free"
        points.refuse(is_floor and value >= lowest, what, fix, one.name, value=value)


def is_on_a_line(logs: np.ndarray) -> bool:
    """Whether some combination of the logarithms of columns `[points, columns]` hardly varies."""
    return np.linalg.svd(logs - logs.mean(0), compute_uv=False)[-1] <= LINE * np.sqrt(len(logs))


def _refuse_geometry(
    form: Law, fixed: Mapping[str, float], columns: Columns, target: np.ndarray, points: Points
) -> None:
    """Points on one line, where terms cannot be told apart, and a loss that rises under a law that can only fall."""
    axes = [columns[name] for name in form.axes]
    if "p_1" in columns or min(axis.min() for axis in axes) <= 0:  # proportions sum to one, near a line at times
        return
    logs = np.log(np.column_stack(axes))
    logs -= logs.mean(0)
    # On D = 20 N a term in N and a term in D are one: a fit of the law would have no meaning.
    if not fixed and not form.tied and len(axes) > 1 and is_on_a_line(logs):
        weight = np.abs(np.linalg.svd(logs, full_matrices=False)[2][-1])
        first, second = (form.axes[index] for index in np.sort(np.argsort(-weight, kind="stable")[:2]))
        x, y = np.log(columns[first]), np.log(columns[second])
        slope = np.polyfit(x, y, 1)[0]
        line = f"{second} ∝ {first}^{slope:.2g}"
        line = f"{second} = {np.exp(np.mean(y - x)):.3g} {first}" if abs(slope - 1) < LINE else line
        what = f"all {len(logs)} points lie on {line}: {form.name} is not identified, its terms cannot be distinguished"
        fix = f"add runs at another {second}/{first}, fit a law in {first} alone, or --fix an exponent"
        raise points.error(what, fix)
    # A law that can only fall, over a loss that rises with every column and with all of them, is a mistake.
    can_rise = any(one.scale == "linear" and one.lower < 0 for one in form.parameters)
    if form.target == "loss" and not can_rise and target.min() > 0 and len(logs) >= 5:
        height, size = np.log(target) - np.log(target).mean(), logs.sum(1)
        slope = float(size @ height / (size @ size))
        error = np.sqrt(np.sum((height - slope * size) ** 2) / (len(size) - 2) / (size @ size))
        what = f"the loss rises with {' and '.join(form.axes)}, where {form.name} can only fall"
        fix = "map another column (--map loss=COLUMN), or correct the rows"
        points.refuse(np.all(height @ logs > 0) and slope > 4.0 * error, what, fix, "loss")
