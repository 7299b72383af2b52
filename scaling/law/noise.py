"""How large the errors are, and how far the objective may rise before a value is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from scaling.law.objective import Objective


@dataclass(frozen=True)
class Noise:
    """The scale s of the errors of each fit, and what it means under the fit's objective."""

    scale: np.ndarray
    kappa: np.ndarray
    """E[ψ²]/E[ψ']: twice the objective's rise, over κ, is χ² with one degree of freedom where the null holds."""
    variance: np.ndarray
    """E[ψ²]/E[ψ']²: times the inverse of J'WJ it is the covariance of the estimates."""

    def at(self, rows: np.ndarray) -> Noise:
        return Noise(self.scale[rows], self.kappa[rows], self.variance[rows])


def measure(objective: Objective, cost: np.ndarray, points: int, parameters: int) -> Noise:
    """The standard deviation s of normal errors that explains an objective of `cost` after fitting.

    Fitting p parameters lowers the expected objective of n errors, n E[ρ], by p κ/2, so s solves cost = n E[ρ] - p κ/2.
    For squared errors this is s² = Σ r²/(n - p); for absolute errors s is in proportion to Σ |r|, so that a few wild
    points count little. Hampel, Ronchetti, Rousseeuw and Stahel 1986, Robust Statistics, section 7.2.
    """
    cost = np.asarray(cost, float)
    delta = objective.delta
    if np.isinf(delta):
        square = 2.0 * cost / (points - parameters)
        return Noise(np.sqrt(square), square, square)
    # Monotone in log s over any range that matters; one table answers a whole batch.
    table = delta * np.exp(np.linspace(-25.0, 25.0, 4001))
    expected = points * expected_penalty(delta, table) - 0.5 * parameters * _kappa(delta, table)
    scale = np.exp(np.interp(np.log(np.maximum(cost, 1e-300)), np.log(np.maximum(expected, 1e-300)), np.log(table)))
    kappa = _kappa(delta, scale)
    return Noise(scale, kappa, kappa / (1.0 - _inside(delta, scale)[1]))


def _kappa(delta: float, scale: np.ndarray) -> np.ndarray:
    inside, tail = _inside(delta, scale)
    return (scale**2 * inside + delta**2 * tail) / (1.0 - tail)


def expected_penalty(delta: float, scale: np.ndarray) -> np.ndarray:
    """E[ρ] of normal errors."""
    inside, tail = _inside(delta, scale)
    density = np.exp(-0.5 * (delta / scale) ** 2) / math.sqrt(2.0 * math.pi)
    return 0.5 * scale**2 * inside + delta * (2.0 * scale * density - 0.5 * delta * tail)


def _inside(delta: float, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[(r/s)²; |r| ≤ δ] and P(|r| > δ)."""
    from scipy.special import erf, erfc

    ratio = delta / np.asarray(scale, float)
    density = np.exp(-0.5 * ratio**2) / math.sqrt(2.0 * math.pi)
    second = erf(ratio / math.sqrt(2.0)) - 2.0 * ratio * density
    # For a narrow δ the difference cancels; its series is 2φ(0) a³/3.
    return np.where(ratio < 1e-3, 2.0 / math.sqrt(2.0 * math.pi) * ratio**3 / 3.0, second), erfc(ratio / math.sqrt(2.0))


def student(level: float, freedom: float) -> float:
    """The two-sided quantile of Student's t: its square is that of F(1, freedom)."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + 0.5 * level))
