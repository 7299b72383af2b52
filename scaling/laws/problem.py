"""The problem of a fit: an objective, errors that points share, a law and its points in the solver's coordinates.

The coordinates are chosen so that a step in one of them means the same at any scale of the columns. An exponent or a
floor is its own coordinate. A place on an axis, positive and spanning decades, is its logarithm. The coefficient of a
term is the logarithm of the term's size in the middle of the points: A itself, the term's size at x = 1, is many
decades away from any point, and changes by x^Δα when α does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from scaling.base.errors import nearest, refuse
from scaling.laws.law import SIGNED, Columns, Dual, Law, Seeds

Expanded = tuple[np.ndarray, Seeds]  # θ of u, and dθ/du
# How the errors of points correlate, `SharedErrors` or those of whole curves: `whiten(values)`, `at(rows)`, log |V|.
Correlated: TypeAlias = Any

SMALLEST, LARGEST = 1e-12, 1e12  # A term's size in the middle of the points, in units of the target
# The prior of logit ρ: its median is ρ = 0.9. Budgets of one trunk correlate by 0.68 to 0.97 in the quickstart.
LOGIT, SPREAD = 2.2, 1.5
GRID = np.linspace(-4.0, 8.0, 25)  # Of logit ρ: from 0.02 to 0.9997.


@dataclass(frozen=True)
class Objective:
    """Σ wᵢ ρ(rᵢ) with ρ(r) = r²/2 for |r| ≤ δ and δ(|r| - δ/2) beyond. Huber 1964, Annals of Math. Statistics 35.

    The residual r is predicted minus observed, of log loss (`space="log"`) or of the loss (`space="linear"`).
    δ = ∞ is least squares. The logarithm of a law that is a sum of terms is the "log-sum-exp" of
    Hoffmann et al. 2022 (arXiv 2203.15556, eq. 3); it is the same number here.
    """

    kind: str
    space: Literal["log", "linear"]
    delta: float

    @property
    def name(self) -> str:
        return f"{self.kind}({self.delta:g})" if self.kind.endswith("huber") else self.kind

    def penalty(self, residual: np.ndarray) -> np.ndarray:
        """ρ(r)."""
        inside = np.minimum(np.abs(residual), self.delta)
        return inside * (np.abs(residual) - 0.5 * inside)

    def influence(self, residual: np.ndarray) -> np.ndarray:
        """ψ = ρ'."""
        return np.minimum(np.maximum(residual, -self.delta), self.delta)

    def weight(self, residual: np.ndarray) -> np.ndarray:
        """ψ(r)/r, the weight of a point in reweighted least squares."""
        return np.minimum(1.0, self.delta / np.maximum(np.abs(residual), 1e-300))

    def curvature(self, residual: np.ndarray) -> np.ndarray:
        """ψ' = ρ''."""
        return (np.abs(residual) <= self.delta).astype(float)

    def transform(self, loss: Any) -> Any:
        """The loss in the space of the residuals."""
        return np.log(loss) if self.space == "log" else loss

    def inverse(self, value: Any) -> Any:
        """The loss of a value in the space of the residuals."""
        return np.exp(value) if self.space == "log" else value


# Every objective by its name, Huber's with the δ of the papers.
OBJECTIVES: Mapping[str, Objective] = MappingProxyType(
    {
        "log_huber": Objective("log-huber", "log", 1e-3),  # Hoffmann et al. 2022, eq. 3
        "log_squared": Objective("log-squared", "log", np.inf),  # the likelihood of noise in proportion to the loss
        "squared": Objective("squared", "linear", np.inf),
        "huber": Objective("huber", "linear", 1e-3),
    }
)


def named_objective(name: str, delta: float | None = None) -> Objective:
    """The objective of that name, with another δ than the papers' where one is given."""
    refuse(name not in OBJECTIVES, f"there is no objective {name!r}", nearest(name, OBJECTIVES), key="objective")
    is_wrong = delta is not None and not name.endswith("huber")
    refuse(is_wrong, f"the objective {name} has none", "leave it out", key="delta", value=delta)
    return replace(OBJECTIVES[name], delta=OBJECTIVES[name].delta if delta is None else delta)


@dataclass(frozen=True)
class SharedErrors:
    """Errors that runs share, those of one trunk, one seed or one machine, as a random effect of the group.

        e = b + ε,  var(b) = ρ σ²,  var(ε) = (1 - ρ) σ²

    so that two runs of one group correlate by ρ, and runs of two groups do not. The fit is that of generalised least
    squares: residuals are multiplied by V^-½, after which they are independent and of one size. Laird and Ware 1982,
    Biometrics 38(4).
    """

    groups: np.ndarray  # The group of each point, from 0
    correlation: float

    @cached_property
    def sizes(self) -> np.ndarray:
        """Points of each group."""
        return np.bincount(self.groups)

    @cached_property
    def _order(self) -> np.ndarray:
        return np.argsort(self.groups, kind="stable")

    def whiten(self, values: np.ndarray) -> np.ndarray:
        """V^-½ times the last axis of `values`; V has ones on its diagonal, and V^-½ is symmetric."""
        order, starts = self._order, np.cumsum(self.sizes) - self.sizes
        rest = 1.0 - self.correlation
        removed = 1.0 - np.sqrt(rest / (rest + self.sizes * self.correlation))
        means = np.add.reduceat(values.take(order, axis=-1), starts, axis=-1) / self.sizes
        return (values - (removed * means)[..., self.groups]) / np.sqrt(rest)

    @property
    def log_determinant(self) -> float:
        """log |V|."""
        rest = 1.0 - self.correlation
        return float(np.sum((self.sizes - 1) * np.log(rest) + np.log(rest + self.sizes * self.correlation)))

    def at(self, rows: np.ndarray) -> SharedErrors:
        """The errors of some of the points."""
        return replace(self, groups=np.unique(self.groups[rows], return_inverse=True)[1].reshape(-1))


class LeastSquares(NamedTuple):
    """A step of generalised least squares from errors of observed minus fitted and their design."""

    step: np.ndarray
    # Of (X'V⁻¹X)^½: times its own transpose and the size of the errors it is the covariance of the step.
    inverse: np.ndarray
    square: float  # What is left of the sum of squares of the whitened errors
    # log |V| + log |X'V⁻¹X|: with `square` it makes the restricted likelihood. Patterson and Thompson 1971,
    # Biometrika 58(3).
    penalty: float


def least_squares(design: np.ndarray, observed: np.ndarray, errors: Correlated | None = None) -> LeastSquares:
    """The step for errors `[points]` whose design is `[parameters, points]`, both scaled by the root of the weights."""
    rows, seen = (design.T, observed) if errors is None else (errors.whiten(design).T, errors.whiten(observed))
    length = np.linalg.norm(rows, axis=0)
    length = np.where(length > 0, length, 1.0)
    basis, triangle = np.linalg.qr(rows / length)
    inverse = np.linalg.pinv(triangle) / length[:, None]
    step = inverse @ (basis.T @ seen)
    rest = seen - rows @ step
    diagonal = np.maximum(np.abs(np.diag(triangle)), 1e-300)
    information = 2.0 * float(np.log(diagonal).sum() + np.log(length).sum())
    determinant = 0.0 if errors is None else errors.log_determinant
    return LeastSquares(step, inverse, float(rest @ rest), determinant + information)


class Correlation:
    """The posterior of ρ from the residuals of a fit, and the estimates under each value of ρ.

    By restricted likelihood under a prior: six trunks alone cannot separate ρ from the law. There has to be a degree of
    freedom. `errors` are observed minus fitted, `design` `[parameters, points]` their derivative, both scaled by the
    root of the weights.
    """

    def __init__(self, shared: SharedErrors, design: np.ndarray, errors: np.ndarray):
        self.freedom = freedom = len(errors) - len(design)

        def under(logit: float) -> tuple[float, np.ndarray, np.ndarray]:
            fit = least_squares(design, errors, replace(shared, correlation=_expit(logit)))
            variance = max(fit.square / freedom, 1e-300)
            score = -0.5 * (freedom * np.log(variance) + fit.penalty + ((logit - LOGIT) / SPREAD) ** 2)
            return score, fit.step, variance * fit.inverse @ fit.inverse.T

        scores, self.steps, self.covariances = (np.array(part) for part in zip(*map(under, GRID)))
        weights = np.exp(scores - scores.max())
        self.weights = weights / weights.sum()
        logit = np.log(shared.correlation / (1.0 - shared.correlation))
        self.known = under(logit)[2]  # the covariance under the ρ of the fit

    @property
    def mean(self) -> float:
        """The middle of the posterior of ρ on the scale of its logit."""
        return _expit(self.weights @ GRID)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The interval of ρ, by the quantiles of the posterior."""
        below = np.cumsum(self.weights) - 0.5 * self.weights
        low, high = np.interp((0.5 - 0.5 * level, 0.5 + 0.5 * level), below, GRID)
        return _expit(low), _expit(high)

    def widening(self, slopes: np.ndarray, level: float) -> np.ndarray:
        """The factors `[2, quantities]`, at least 1, by which the ends of intervals move outwards since ρ is not known.

        Under each ρ a quantity has Student's t: the ends are quantiles of a mixture, found by bisection. `slopes`
        `[quantities, parameters]` are the derivatives by the coordinates.
        """
        from scipy.special import stdtr, stdtrit

        quantile, seen = float(stdtrit(self.freedom, 0.5 + 0.5 * level)), self.weights > 1e-9  # others may lie far off
        alone = quantile * np.sqrt(np.maximum(((slopes @ self.known) * slopes).sum(1), 0.0))
        centres = slopes @ self.steps[seen].T
        errors = np.sqrt(np.maximum(np.einsum("vij,qi,qj->qv", self.covariances[seen], slopes, slopes), 1e-300))
        high = np.tile(np.max(np.abs(centres) + errors * quantile, axis=1), (2, 1))
        low, tails = -high, np.array([[0.5 - 0.5 * level], [0.5 + 0.5 * level]])
        for _ in range(100):
            middle = 0.5 * (low + high)
            below = stdtr(self.freedom, (middle[:, :, None] - centres) / errors) @ self.weights[seen] < tails
            low, high = np.where(below, middle, low), np.where(below, high, middle)
            if not (high - low > 1e-9 * alone).any():
                break
        return np.where(alone > 0, np.maximum([-low[0], high[1]] / alone, 1.0), 1.0)


def _expit(logit: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-logit))


PRIOR_CORRELATION = _expit(LOGIT)  # ρ before any residual is seen


@dataclass(frozen=True)
class Problem:
    """A law, its points and an objective, seen by the solver: coordinates in, residuals and exact Jacobian out."""

    form: Law
    columns: Mapping[str, np.ndarray]
    observed: np.ndarray  # The target, in the space of the objective
    weights: np.ndarray
    objective: Objective
    fixed: Mapping[str, float]
    shared: Correlated | None = None  # What errors the points share; residuals are then made independent of each other

    @cached_property
    def loss(self) -> np.ndarray:
        """The target in its own unit."""
        return self.objective.inverse(self.observed)

    @cached_property
    def free(self) -> list[int]:
        """The places of the parameters that are fitted."""
        return [index for index, name in enumerate(self.form.parameter_names) if name not in self.fixed]

    @property
    def free_names(self) -> list[str]:
        return [self.form.parameter_names[index] for index in self.free]

    @cached_property
    def in_log(self) -> np.ndarray:
        """Whether each coordinate is a logarithm."""
        return np.array([self.form.parameters[index].scale == "log" for index in self.free], bool)

    @cached_property
    @np.errstate(divide="ignore", invalid="ignore")
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bound of each coordinate."""
        size = abs(float(np.median(self.loss))) or float(np.abs(self.loss).max())
        limits = np.array([(one.lower, one.upper) for one in (self.form.parameters[index] for index in self.free)])
        limits[[index in self._heights for index in self.free]] = SMALLEST * size, LARGEST * size
        lower, upper = np.where(self.in_log, np.log(limits.T), limits.T)
        return lower, upper

    @np.errstate(all="ignore")
    def coordinates(self, theta: np.ndarray) -> np.ndarray:
        """u of θ, inside the bounds."""
        theta = np.asarray(theta, float)
        plain = theta[..., self.free]
        u = np.where(self.in_log, np.log(np.maximum(plain, 1e-300)), plain)
        if self._heights:
            rows = list(map(self.free.index, self._heights))
            u[..., rows] += np.moveaxis(self._shapes(theta, {}).value[..., 0], 0, -1)
        return np.clip(u, *self.bounds)

    def theta(self, u: np.ndarray) -> np.ndarray:
        """All parameters θ, from the coordinates of the free ones."""
        return self.expand(u, seeded=False)[0]

    @np.errstate(all="ignore")
    def expand(self, u: np.ndarray, seeded: bool = True) -> Expanded:
        """θ of u, and dθ/du: for each parameter its derivative by each coordinate that moves it."""
        theta = np.empty((*u.shape[:-1], len(self.form.parameters)))
        theta[:] = [self.fixed.get(name, np.nan) for name in self.form.parameter_names]
        theta[..., self.free] = np.where(self.in_log, np.exp(u), u)
        ones = np.ones((*u.shape[:-1], 1))
        seeds: Seeds = {
            index: {row: theta[..., index : index + 1] if in_log else ones}
            for row, (index, in_log) in enumerate(zip(self.free, self.in_log))
        }
        if self._heights:
            others = {index: seed for index, seed in seeds.items() if index not in self._heights} if seeded else {}
            shapes = self._shapes(theta, others)
            for k, index in enumerate(self._heights):
                row = self.free.index(index)
                height = np.exp(u[..., row : row + 1] - shapes.value[k])
                theta[..., index : index + 1] = height
                seeds[index] = {row: height} | {r: -height * slope[k] for r, slope in shapes.gradient.items()}
        return theta, seeds

    @cached_property
    def _heights(self) -> list[int]:
        """The free coefficients, whose coordinate is their term's size; one within stated bounds is its own."""
        each = ((index, self.form.parameters[index]) for index in self.free)
        return [index for index, one in each if one.linear and one.scale == "log" and not one.bounded]

    @cached_property
    def _middle(self) -> Columns:
        """For each coefficient the row at which its term is measured, `[heights, 1, 1]`."""

        rows = [self.form.parameters[index].at for index in self._heights]
        middles = {}
        for name in self.form.inputs:
            column = self.columns[name]
            middle = float(np.exp(np.mean(np.log(column))) if column.min() > 0 else np.mean(column))
            middles[name] = np.array([row.get(name, middle) for row in rows])[:, None, None]
        return middles

    def _shapes(self, theta: np.ndarray, seeds: Seeds) -> Dual:
        """log |term / coefficient| in the middle of the points, `[heights, ..., 1]`."""
        alone = np.repeat(theta[None], len(self._heights), axis=0)
        alone[..., self.form.linear] = 0.0
        for k, index in enumerate(self._heights):
            alone[k, ..., index] = 1.0
        curved = {index: seed for index, seed in seeds.items() if index not in self.form.linear}
        middle = {name: row[..., 0] for name, row in self._middle.items()} if theta.ndim == 1 else self._middle
        term = self.form.evaluate(alone, middle, curved)
        return np.log(term * np.where(term.value < 0, -1.0, 1.0))

    def errors(self, u: np.ndarray) -> np.ndarray:
        """Predicted minus observed in the objective's space, `[starts, points]`; not finite where there is no log."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.objective.transform(self.form.predict(self.theta(u), self.columns)) - self.observed

    def whitened(self, values: np.ndarray) -> np.ndarray:
        """Values of the points `[..., points]` as combinations that do not correlate."""
        if self.shared is None:
            return values
        root = np.sqrt(self.weights)
        with np.errstate(invalid="ignore"):
            return self.shared.whiten(values * root) / root

    def linearise(self, u: np.ndarray, expanded: Expanded | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Errors `[starts, points]`, whitened, and their derivative by u `[starts, parameters, points]`."""
        both = self.derivative(u, self.columns, expanded)
        both[:, 0] -= self.observed
        both = self.whitened(both)
        return both[:, 0], both[:, 1:]

    def scaled(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """At one place errors `[points]` and their derivative `[parameters, points]`, times the root of weights."""
        residual, jacobian = self.linearise(u[None])
        root = np.sqrt(self.weights)
        return residual[0] * root, jacobian[0] * root

    def derivative(self, u: np.ndarray, columns: Columns, expanded: Expanded | None = None) -> np.ndarray:
        """The law in the objective's space and its derivative by u, at any rows: `[starts, 1 + parameters, rows]`."""
        theta, seeds = expanded or self.expand(u)
        dual = self.form.evaluate(theta, columns, seeds)
        both = np.zeros((len(u), 1 + u.shape[1], len(next(iter(columns.values())))))
        both[:, 0] = self.objective.transform(dual.value)
        slope = 1.0 / dual.value if self.objective.space == "log" else 1.0
        for row, part in dual.gradient.items():
            np.multiply(part, slope, out=both[:, 1 + row])
        return both

    def correlation(self, u: np.ndarray) -> Correlation | None:
        """The correlation of the errors at `u` within groups; None where points share none."""
        if not isinstance(self.shared, SharedErrors) or len(self.observed) <= len(self.free):
            return None
        residual, jacobian = replace(self, shared=None).scaled(u)
        return Correlation(self.shared, jacobian, -residual)

    def at(self, rows: np.ndarray) -> Problem:
        """The problem of some of the rows."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        shared = self.shared and self.shared.at(rows)
        return replace(self, columns=columns, observed=self.observed[rows], weights=self.weights[rows], shared=shared)

    def thinned(self, most: int) -> Problem:
        """The problem of at most `most` of the rows, evenly spaced in their order; itself where it has no more."""
        step = -(-len(self.observed) // most)
        return self if step == 1 else self.at(np.arange(0, len(self.observed), step))

    def cost(self, residual: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """The objective of each row of residuals; infinite where a residual is not a number."""
        total = ((self.weights if weights is None else weights) * self.objective.penalty(residual)).sum(-1)
        return np.where(np.isfinite(total), total, np.inf)


@dataclass(frozen=True)
class Quantity:
    """A number that the parameters decide. Its interval is searched for, and its errors are even, in `scale`."""

    name: str
    # The law, θ `[batch, p]` and the seeds of differentiation, to a dual number `[batch, 1]`
    formula: Callable[[Law, np.ndarray, Seeds], Dual]
    scale: Literal["linear", "log"]
    limits: tuple[float, float] = (-np.inf, np.inf)  # what it cannot pass, in its scale

    def of(self, form: Law, theta: np.ndarray) -> np.ndarray:
        """The value of the quantity at θ `[..., p]`."""
        flat = np.asarray(theta, float).reshape(-1, len(form.parameters))
        return self.formula(form, flat, {}).value[:, 0].reshape(np.shape(theta)[:-1])

    def along(self, problem: Problem, u: np.ndarray, expanded: Expanded | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The value in the quantity's scale `[batch]`, and its derivative by the coordinates `[batch, parameters]`."""
        theta, seeds = expanded or problem.expand(u)
        dual = self.formula(problem.form, theta, seeds)
        dual = np.log(dual) if self.scale == "log" else dual
        slope = np.zeros(u.shape)
        for row, part in dual.gradient.items():
            slope[:, row] = np.broadcast_to(part, dual.value.shape)[:, 0]
        return np.broadcast_to(dual.value, (len(u), 1))[:, 0], slope

    def unscale(self, value: Any) -> Any:
        """Convert a value from the quantity's scale to its unit."""
        return np.exp(value) if self.scale == "log" else value


def parameter(form: Law, name: str) -> Quantity:
    """A parameter of the law."""
    fix = nearest(name, form.parameter_names)
    refuse(name not in form.parameter_names, f"{form.name} has no parameter {name!r}", fix)
    chosen = form.parameters[form.parameter_names.index(name)]
    limits = np.array([chosen.lower, chosen.upper])
    with np.errstate(divide="ignore"):
        low, high = (np.log(limits) if chosen.scale == "log" else limits).tolist()
    return replace(derived(name, lambda p: getattr(p, name), scale=chosen.scale), limits=(low, high))


def named_quantity(form: Law, name: str) -> Quantity:
    """A parameter of the law, or one of its derived quantities."""
    return derived(name, form.derived[name]) if name in form.derived else parameter(form, name)


def derived(name: str, formula: Callable[[Any], Dual], scale: Literal["linear", "log"] = "linear") -> Quantity:
    """A formula of the parameters: `derived("a", lambda p: p.beta / (p.alpha + p.beta))`."""
    return Quantity(name, lambda form, theta, seeds: formula(form.named_duals(theta, seeds)), scale)


def prediction(form: Law, inputs: Mapping[str, Any], name: str | None = None) -> Quantity:
    """The law at one row of columns: `prediction(form, {"N": 1e9, "D": 2e10})`."""
    row = {column: np.atleast_1d(np.asarray(inputs[column], float)) for column in form.inputs}
    label = name or f"{form.target}({', '.join(f'{column}={row[column][0]:g}' for column in form.inputs)})"
    scale: Literal["linear", "log"] = "linear" if form.target in SIGNED else "log"
    return Quantity(label, lambda law, theta, seeds: law.evaluate(theta, row, seeds), scale)
