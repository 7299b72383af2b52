"""How much wider an interval becomes when the errors are unequal, or belong together in clusters."""

from __future__ import annotations

import numpy as np

from scaling.law.noise import Noise
from scaling.law.problem import Problem
from scaling.law.profile import standard_error
from scaling.law.quantity import Each, Quantity
from scaling.law.solver import PROFILE, minimise

REFITS, FEWER_REFITS = 200, 50
MANY_POINTS = 1000  # from here on fewer refits: each costs more, and the ends move by a tenth of what they widen
SHRINKAGE = 20.0  # points at which the refits' spread counts by half where it exceeds the profile's
DEVIATION = 0.3413  # of normal estimates, between their middle and one standard deviation above it


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
        scores = _by_group(scores, clusters) * np.sqrt(groups / freedom * (n - 1) / max(n - p, 1))
    # `direction` is the change of the coordinates per unit of the quantity, so this is the quantity's own score.
    _, error, direction = standard_error(problem, quantity, u, noise, observed)
    along = (scores.swapaxes(1, 2) @ direction[:, :, None])[:, :, 0]
    variance = np.maximum(error**2, 1e-300)
    curvature = np.maximum(noise.kappa / variance, 1e-300)
    return np.maximum(1.0, (along**2).sum(1) / curvature**2 / variance), freedom


def reweighted(
    problem: Problem, u: np.ndarray, clusters: np.ndarray | None = None, observed: np.ndarray | None = None
) -> np.ndarray:
    """Optima `[rows, refits, parameters]` under random weights of the points, or of the clusters, around each row of u.

    Newton and Raftery 1994, J. Royal Statist. Soc. B 56(1), section 2. A bounded influence gives a wild point and a
    tame one the same score, so that scores alone do not show that errors are unequal; these refits do. Under squared
    errors scores do, and there are none.
    """
    if np.isinf(problem.objective.delta):
        return np.empty((len(u), 0, u.shape[1]))
    rng = np.random.Generator(np.random.Philox(key=[0, 2]))
    n = len(problem.observed)
    belongs = np.arange(n) if clusters is None else clusters
    count = REFITS if n < MANY_POINTS else FEWER_REFITS
    weights = rng.standard_exponential((count, int(belongs.max()) + 1))[:, belongs] * problem.weights
    weights = np.tile(weights / weights.mean(1, keepdims=True), (len(u), 1))
    seen = None if observed is None else np.repeat(observed, count, axis=0)
    begin = np.repeat(u, count, axis=0)
    ended = minimise(problem, begin, weights, seen, effort=PROFILE)
    # One that did not converge counts as one that did not move.
    return np.where(ended.converged[:, None], ended.u, begin).reshape(len(u), count, -1)


def widening(
    values: np.ndarray, estimate: np.ndarray, below: np.ndarray, above: np.ndarray, quantile: float, points: int
) -> tuple[np.ndarray, np.ndarray]:
    """The factors, at least 1, by which the ends `below` and `above` each estimate move outwards.

    `values` `[rows, refits]` are the quantity's, in its scale; `quantile` is Student's. With few points their spread
    is itself uncertain, and counts little.
    """
    low, high = np.quantile(values, (0.5 - DEVIATION, 0.5 + DEVIATION), axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = quantile * (estimate - low) / below, quantile * (high - estimate) / above
    trust = points / (points + SHRINKAGE)
    first, second = (np.where(np.isfinite(ratio), np.maximum(ratio, 1.0), 1.0) ** trust for ratio in ratios)
    return first, second


def _by_group(scores: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Scores `[..., points]` added up by cluster."""
    order = np.argsort(clusters, kind="stable")
    return np.add.reduceat(scores[..., order], np.flatnonzero(np.diff(clusters[order], prepend=-1)), axis=-1)


def _leverage(problem: Problem, jacobian: np.ndarray) -> np.ndarray:
    """The diagonal of the hat matrix of each row, `[rows, points]`."""
    rows = (jacobian * np.sqrt(problem.weights)).swapaxes(1, 2)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    basis, _ = np.linalg.qr(rows / np.where(length > 0, length, 1.0))
    return (basis**2).sum(-1)
