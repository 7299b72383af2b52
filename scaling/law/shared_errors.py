"""Errors that runs share: those of one trunk, one seed or one machine, as a random effect of the group.

    e = b + ε,  var(b) = ρ σ²,  var(ε) = (1 - ρ) σ²

so that two runs of one group correlate by ρ, and runs of two groups do not. The fit is that of generalised least
squares: residuals are multiplied by V^-½, after which they are independent and of one size. Laird and Ware 1982,
Biometrics 38(4). ρ is learned from the residuals by restricted likelihood (Patterson and Thompson 1971, Biometrika
58(3)) under a prior: six trunks alone cannot separate it from the law. Intervals hold what is left open of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

LOGIT, SPREAD = 2.2, 1.5
"""The prior of logit ρ: its median is ρ = 0.9. Budgets of one trunk correlate by 0.68 to 0.97 in the quickstart."""
GRID = np.linspace(-4.0, 8.0, 25)
"""Of logit ρ: from 0.02 to 0.9997."""
BISECTIONS = 60


@dataclass(frozen=True)
class SharedErrors:
    """Groups of points whose errors correlate by `correlation`, and how to make their residuals independent."""

    groups: np.ndarray
    """The group of each point, from 0."""
    correlation: float

    @cached_property
    def sizes(self) -> np.ndarray:
        """Points of each group."""
        return np.bincount(self.groups)

    @cached_property
    def _order(self) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(self.groups, kind="stable")
        return order, np.concatenate([[0], np.cumsum(self.sizes)[:-1]])

    @cached_property
    def _kept(self) -> np.ndarray:
        """How much of a group's mean is taken off its points."""
        rest = 1.0 - self.correlation
        return 1.0 - np.sqrt(rest / (rest + self.sizes * self.correlation))

    def whiten(self, values: np.ndarray) -> np.ndarray:
        """V^-½ times the last axis of `values`; V has ones on its diagonal, and V^-½ is symmetric."""
        order, starts = self._order
        means = np.add.reduceat(values.take(order, axis=-1), starts, axis=-1) / self.sizes
        return (values - (self._kept * means)[..., self.groups]) / np.sqrt(1.0 - self.correlation)

    @property
    def log_determinant(self) -> float:
        """Of V."""
        rest = 1.0 - self.correlation
        return float(np.sum((self.sizes - 1) * np.log(rest) + np.log(rest + self.sizes * self.correlation)))

    def at(self, rows: np.ndarray) -> SharedErrors:
        """For some of the points."""
        return replace(self, groups=np.unique(self.groups[rows], return_inverse=True)[1].reshape(-1))


@dataclass(frozen=True)
class Correlation:
    """What the residuals of a fit show of ρ, and what each value of it would make of the estimates."""

    values: np.ndarray
    weights: np.ndarray
    """The posterior of each value."""
    steps: np.ndarray
    """How far the coordinates move from the fit under each, `[values, parameters]`."""
    covariances: np.ndarray
    """Of the coordinates under each, `[values, parameters, parameters]`."""
    known: np.ndarray
    """The covariance under the ρ of the fit."""
    freedom: int

    @property
    def mean(self) -> float:
        """The middle of the posterior of ρ on the scale of its logit."""
        return float(_expit(self.weights @ _logit(self.values)))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Where ρ lies, by the quantiles of the posterior."""
        below = np.cumsum(self.weights) - 0.5 * self.weights
        low, high = np.interp((0.5 - 0.5 * level, 0.5 + 0.5 * level), below, _logit(self.values))
        return float(_expit(low)), float(_expit(high))

    def widening(self, slope: np.ndarray, level: float) -> tuple[float, float]:
        """The factors, at least 1, by which the ends of an interval move outwards since ρ is not known.

        Under each ρ the quantity has Student's t; the quantiles of their mixture are found by bisection. `slope` is the
        quantity's derivative by the coordinates.
        """
        from scipy.special import stdtr, stdtrit

        quantile = float(stdtrit(self.freedom, 0.5 + 0.5 * level))
        alone = quantile * float(np.sqrt(max(slope @ self.known @ slope, 0.0)))
        if not alone > 0:
            return 1.0, 1.0
        centres = self.steps @ slope
        errors = np.sqrt(np.maximum(np.einsum("vij,i,j->v", self.covariances, slope, slope), 1e-300))
        reach = float(np.max(np.abs(centres) + errors * quantile))

        def at(share: float) -> float:
            low, high = -reach, reach
            for _ in range(BISECTIONS):
                middle = 0.5 * (low + high)
                above = float(self.weights @ stdtr(self.freedom, (middle - centres) / errors)) > share
                low, high = (low, middle) if above else (middle, high)
            return 0.5 * (low + high)

        tail = 0.5 - 0.5 * level
        return max(-at(tail) / alone, 1.0), max(at(1.0 - tail) / alone, 1.0)


def learned(shared: SharedErrors, design: np.ndarray, errors: np.ndarray) -> Correlation:
    """ρ by restricted likelihood, from the errors of observed minus fitted and their design `[parameters, points]`.

    Both are scaled by the root of the points' weights. There has to be a degree of freedom.
    """
    values = _expit(GRID)
    under = [_under(replace(shared, correlation=float(rho)), design, errors) for rho in values]
    scores = np.array([score for score, _, _ in under]) - 0.5 * ((GRID - LOGIT) / SPREAD) ** 2
    density = np.exp(scores - scores.max())
    steps, covariances = (np.array([entry[place] for entry in under]) for place in (1, 2))
    known = _under(shared, design, errors)[2]
    return Correlation(values, density / density.sum(), steps, covariances, known, len(errors) - len(design))


def _under(shared: SharedErrors, design: np.ndarray, errors: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Of one ρ: its restricted log-likelihood, the step of generalised least squares, and the covariance there."""
    rows, seen = shared.whiten(design).T, shared.whiten(errors)
    freedom = rows.shape[0] - rows.shape[1]
    length = np.linalg.norm(rows, axis=0)
    length = np.where(length > 0, length, 1.0)
    basis, triangle = np.linalg.qr(rows / length)
    inverse = np.linalg.pinv(triangle) / length[:, None]
    step = inverse @ (basis.T @ seen)
    rest = seen - rows @ step
    square = max(float(rest @ rest) / freedom, 1e-300)
    diagonal = np.maximum(np.abs(np.diag(triangle)), 1e-300)
    information = 2.0 * float(np.log(diagonal).sum() + np.log(length).sum())
    score = -0.5 * (freedom * np.log(square) + shared.log_determinant + information)
    return score, step, square * inverse @ inverse.T


def prior_correlation() -> float:
    """ρ before any residual is seen."""
    return float(_expit(LOGIT))


def _logit(values: np.ndarray) -> np.ndarray:
    return np.log(values / (1.0 - values))


def _expit(logit: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-logit))
