"""How much wider an interval becomes when the errors are unequal, or belong together in clusters."""

from __future__ import annotations

import numpy as np

from scaling.law.noise import Noise
from scaling.law.problem import Problem
from scaling.law.profile import standard_error
from scaling.law.quantity import Each, Quantity


def inflation(
    problem: Problem,
    quantity: Quantity | Each,
    u: np.ndarray,
    noise: Noise,
    clusters: np.ndarray | None = None,
    observed: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    """The factor on the quantity's variance at each row of u, at least 1, and the degrees of freedom.

    The variance from the scores of the points themselves over that of equal, independent errors. Alone, points count
    by their leverage (HC2 of MacKinnon and White 1985, Journal of Econometrics 29) with n - p degrees of freedom; in
    G clusters their scores add up first, with G - 1 (Cameron and Miller 2015, Journal of Human Resources 50(2)).
    """
    residual, jacobian = problem.linearise(u, observed)
    scores = jacobian * (problem.weights * problem.objective.influence(residual))[:, None, :]
    n, p = len(problem.observed), u.shape[1]
    if clusters is None:
        freedom = float(n - p)
        if np.isinf(problem.objective.delta):
            # Squared errors shrink the residual of a point that holds the law; a bounded influence does not feel it.
            scores = scores / np.sqrt(np.maximum(1.0 - _leverage(problem, jacobian), 0.05))[:, None, :]
    else:
        groups = int(clusters.max()) + 1
        freedom = float(max(groups - 1, 1))
        belongs = (clusters[:, None] == np.arange(groups)).astype(float)
        scores = (scores @ belongs) * np.sqrt(groups / freedom * (n - 1) / max(n - p, 1))
    # `direction` is the change of the coordinates per unit of the quantity, so this is the quantity's own score.
    _, error, direction = standard_error(problem, quantity, u, noise, observed)
    along = (scores.swapaxes(1, 2) @ direction[:, :, None])[:, :, 0]
    variance = np.maximum(error**2, 1e-300)
    curvature = np.maximum(noise.kappa / variance, 1e-300)
    return np.maximum(1.0, (along**2).sum(1) / curvature**2 / variance), freedom


def _leverage(problem: Problem, jacobian: np.ndarray) -> np.ndarray:
    """The diagonal of the hat matrix of each row, `[rows, points]`."""
    rows = (jacobian * np.sqrt(problem.weights)).swapaxes(1, 2)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    basis, _ = np.linalg.qr(rows / np.where(length > 0, length, 1.0))
    return (basis**2).sum(-1)
