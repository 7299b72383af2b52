"""How far the form of a law may be wrong, learned from the residuals of its fit.

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
from dataclasses import dataclass

import numpy as np

from scaling.law.fit import Fit, predict
from scaling.law.forms.form import Columns
from scaling.law.likelihood import EXACT
from scaling.law.noise import student
from scaling.law.points import SIZE_EXPONENTS
from scaling.law.problem import Correlated, Problem

LENGTH = 1.5  # decades over which the form's error changes
SIZE, SPREAD = 0.4, 0.5  # of u: its median over published studies, and the standard deviation of its logarithm
SIZES = np.geomspace(1e-3, 20.0, 45)
NOISES = np.geomspace(0.02, 1.6, 40)  # relative to the residuals
LEARNED = 0.85  # weight of what the residuals show of u at a target; the rest is what is expected before seeing them
SHRINKAGE = 50.0  # points at which the study's own quantile of its residuals counts half
LARGEST = 400  # points that the process is conditioned on: more would change little, and cost their cube
STEP = 1e-4  # of log size, for the slope
NEGLIGIBLE = 1e-4  # of the largest posterior weight


@dataclass(frozen=True)
class Discrepancy:
    """The form's error and the noise of a run, given the residuals of a fit.

    Arrays over points are scaled by the root of the points' weights, so that their noise is equal.
    """

    fit: Fit
    columns: Columns
    root: np.ndarray
    kernel: np.ndarray
    """Covariance of slope × u between the points, for u of size one."""
    jacobian: np.ndarray
    basis: np.ndarray
    """Contrasts of the residuals that fitting leaves alone; `kernel` is diagonal in them."""
    variances: np.ndarray
    """The diagonal."""
    contrasts: np.ndarray
    """The residuals in the basis."""
    sizes: np.ndarray
    noises: np.ndarray
    shared: Correlated | None
    """What errors the points share; all arrays over points are then of combinations that do not correlate."""
    weights: np.ndarray
    """The posterior of pairs of a size of u and a noise."""

    @property
    def size(self) -> float:
        """The root mean square of u."""
        return math.sqrt(float(self.weights @ self.sizes**2))

    @property
    def noise(self) -> float:
        """The standard deviation of one run, in the objective's space."""
        return math.sqrt(float(self.weights @ self.noises**2))

    def half_widths(self, rows: Columns, level: float) -> np.ndarray:
        """Half of the interval in which a new run at each row lies around the law's mean there, were θ's noise zero."""
        return self._quantile(level) * np.sqrt(self._variances(rows))

    def _independent(self, values: np.ndarray) -> np.ndarray:
        """Values of the points as combinations whose errors do not correlate."""
        return values if self.shared is None else self.shared.whiten(values)

    def _variances(self, rows: Columns) -> np.ndarray:
        """The expected square of new run minus fitted law, without the error of θ that comes from noise."""
        if not self.noise:  # the points lie on the law
            return np.zeros(len(next(iter(rows.values()))))
        gain = _jacobian(self.fit, rows) @ np.linalg.pinv(self.jacobian)
        shared = self._independent(_covariance(self.fit, rows, self.columns) * self.root)
        before = _slope(self.fit, rows) ** 2 - 2.0 * (gain * shared).sum(1) + ((gain @ self.kernel) * gain).sum(1)
        cross = (shared - gain @ self.kernel) @ self.basis
        size, noise = self.sizes[:, None] ** 2, self.noises[:, None] ** 2
        spread = size * self.variances + noise
        expected = size * (self.contrasts / spread) @ cross.T
        remaining = size * before - size**2 * (1.0 / spread) @ (cross**2).T
        learned = expected**2 + np.maximum(remaining, 0.0)
        return self.weights @ (LEARNED * learned + (1.0 - LEARNED) * size * before + noise)

    def _quantile(self, level: float) -> float:
        """Student's; of many points more and more their residuals' own, whose tails are seldom normal."""
        normal, count = student(level, self.fit.degrees_of_freedom), len(self.root)
        rank = math.ceil((count + 1) * level)
        if rank > count or not self.noise:
            return normal
        variance = self.weights @ (self.sizes[:, None] ** 2 * self.variances + self.noises[:, None] ** 2)
        standardised = np.abs(self.basis @ self.contrasts) / np.sqrt(self.basis**2 @ variance)
        own = float(np.sort(standardised)[rank - 1])
        return normal * (own / normal) ** (count / (count + SHRINKAGE))


def discrepancy(fit: Fit, size: float = SIZE, spread: float = SPREAD) -> Discrepancy:
    """What the residuals of a fit, which has a degree of freedom or more, show of its form and of a run's noise.

    `size` and `spread` are the median of u's size before they are seen, and the standard deviation of its logarithm.
    """
    count = len(fit.problem.observed)
    # The points are in the order of their columns, so that every n-th of them represents them all.
    chosen = np.unique(np.linspace(0, count - 1, min(count, LARGEST)).round().astype(int))
    columns = {name: fit.problem.columns[name][chosen] for name in fit.form.inputs}
    root = np.sqrt(fit.problem.weights[chosen])
    jacobian = _jacobian(fit, columns) * root[:, None]
    kernel = _covariance(fit, columns, columns) * root[:, None] * root
    shared = fit.problem.shared and fit.problem.shared.at(chosen)
    residual = -root * fit.problem.errors(fit.u[None])[0][chosen]
    if shared is not None:
        jacobian, residual = shared.whiten(jacobian.T).T, shared.whiten(residual)
        kernel = shared.whiten(shared.whiten(kernel).T)
    left, singular, _ = np.linalg.svd(jacobian)
    rank = int((singular > singular[0] * len(root) * np.finfo(float).eps).sum())
    variances, rotation = np.linalg.eigh(left[:, rank:].T @ kernel @ left[:, rank:])
    basis, variances = left[:, rank:] @ rotation, np.maximum(variances, 0.0)
    contrasts = basis.T @ residual
    posterior = _posterior(contrasts, variances, abs(float(np.mean(fit.problem.observed))), size, spread)
    sizes, noises, weights = posterior
    return Discrepancy(
        fit, columns, root, kernel, jacobian, basis, variances, contrasts, sizes, noises, shared, weights
    )


def influence(fit: Fit, rows: Columns) -> np.ndarray:
    """How far an error of each point moves the law at each row, `[rows, points]` in the order of the table."""
    root = np.sqrt(fit.problem.weights)
    seen = fit.problem.whitened(_jacobian(fit, fit.problem.columns).T).T * root[:, None]
    # V^-½ is symmetric, so that it acts on the errors as it does on the rows.
    gain = fit.problem.whitened(_jacobian(fit, rows) @ np.linalg.pinv(seen) * root)
    moved = np.empty_like(gain)
    moved[:, fit.order] = gain
    return moved


def _posterior(
    contrasts: np.ndarray, variances: np.ndarray, level: float, size: float, spread: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of a size of u and a noise, and their weights: a log-normal prior of the first, a flat one of log noise."""
    scale = float(np.sqrt(np.mean(contrasts**2))) if len(contrasts) else 0.0
    if scale < EXACT * max(1.0, level):
        return np.zeros(1), np.zeros(1), np.ones(1)
    sizes, noises = (grid.reshape(-1) for grid in np.meshgrid(SIZES, scale * NOISES, indexing="ij"))
    expected = sizes[:, None] ** 2 * variances + noises[:, None] ** 2
    log_density = -0.5 * (np.log(expected) + contrasts**2 / expected).sum(1)
    log_density -= 0.5 * (np.log(sizes / size) / spread) ** 2
    weights = np.exp(log_density - log_density.max())
    relevant = weights > NEGLIGIBLE
    return sizes[relevant], noises[relevant], weights[relevant] / weights[relevant].sum()


def _covariance(fit: Fit, rows: Columns, others: Columns) -> np.ndarray:
    """Of slope × u between two tables of runs: Matérn's with ν = 5/2 in decades, zero between runs of two kinds."""
    places, theirs = _places(fit, rows), _places(fit, others)
    squared = ((places[:, None] - theirs) ** 2).sum(-1)
    distance = np.sqrt(5.0 * squared) / LENGTH
    kernel = (1.0 + distance + distance**2 / 3.0) * np.exp(-distance)
    for name in set(fit.form.inputs) - set(fit.form.axes):
        kernel *= np.asarray(rows[name])[:, None] == np.asarray(others[name])
    return kernel * _slope(fit, rows)[:, None] * _slope(fit, others)


def _places(fit: Fit, rows: Columns) -> np.ndarray:
    """Runs as points `[runs, axes]` in decades; a standard deviation counts as one on an axis that has no logarithm."""
    decade = math.log(10.0)
    return np.column_stack(
        [
            np.log(rows[name]) / (decade * _exponent(name)) if _is_size(fit, name) else rows[name] / _unit(fit, name)
            for name in fit.form.axes
        ]
    )


def _slope(fit: Fit, rows: Columns) -> np.ndarray:
    """How much the law changes, in the objective's space, per unit of log size along its steepest direction."""

    def law(name: str, step: float) -> np.ndarray:
        factor = math.exp(step * _exponent(name))
        moved = rows[name] * factor if _is_size(fit, name) else rows[name] + step * _unit(fit, name)
        return fit.problem.objective.transform(predict(fit.form, fit.theta, {**rows, name: moved}))

    parts = [(law(name, STEP) - law(name, -STEP)) / (2.0 * STEP) for name in fit.form.axes]
    return np.sqrt(np.sum(np.square(parts), axis=0))


def _is_size(fit: Fit, name: str) -> bool:
    """Do the values of this axis differ by factors?"""
    return bool(np.min(fit.problem.columns[name]) > 0)


def _exponent(name: str) -> float:
    """A size is measured by itself; a loss by the size that it falls with."""
    return SIZE_EXPONENTS.get(name, 1.0)


def _unit(fit: Fit, name: str) -> float:
    return float(np.std(fit.problem.columns[name])) or 1.0


def _jacobian(fit: Fit, rows: Columns) -> np.ndarray:
    return derivative(fit.problem, fit.u, rows)


def derivative(problem: Problem, u: np.ndarray, rows: Columns) -> np.ndarray:
    """The law's derivative by the solver's coordinates, in the objective's space, `[runs, parameters]`."""
    theta, seeds = problem.coordinates.expand(u[None])
    dual = problem.form.evaluate(theta, rows, seeds)
    jacobian = np.zeros((len(next(iter(rows.values()))), len(u)))
    slope = 1.0 / dual.value if problem.objective.space == "log" else 1.0
    for place, part in dual.gradient.items():
        jacobian[:, place] = (part * slope)[0]
    return jacobian
