"""Refits of resampled points, each from its own multi-start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from scaling.errors import ScalingError
from scaling.law.fit import Fit
from scaling.law.multi_start import draw, search
from scaling.law.shared_errors import SharedErrors

Resampling = Literal["case", "run", "residual"]
REFINED = 4
BATCH = 250  # refits at a time: what their screening needs fits in memory
STARTS = 256


@dataclass(frozen=True)
class Refits:
    """Parameters of the refits that converged, and how many did not."""

    theta: np.ndarray
    failed: int


def refit(
    fit: Fit,
    resampling: Resampling = "case",
    count: int = 1000,
    *,
    starts: int | np.ndarray = STARTS,
    seed: int = 0,
) -> Refits:
    """`count` refits of resampled points: by point, by run (the fit's clusters), or of residuals around the law.

    Every refit screens all the starts and refines the best of several groups of them, so that it may end at another
    optimum than the fit did (Efron and Tibshirani 1993, An Introduction to the Bootstrap, sections 9.4 and 9.5).
    """
    problem = fit.problem
    begin = draw(problem, starts, seed) if isinstance(starts, int) else problem.coordinates.of(starts)
    begin = np.concatenate([fit.u[None], begin])
    theta, converged = [], []
    for weights, observed in _resamples(fit, resampling, count, seed):
        best, _ = search(problem, begin, REFINED, weights, observed)
        theta.append(problem.theta(best.u))
        converged.append(best.converged)
    good = np.concatenate(converged)
    return Refits(np.concatenate(theta)[good], int((~good).sum()))


def _resamples(
    fit: Fit, resampling: Resampling, count: int, seed: int
) -> Iterator[tuple[np.ndarray | None, np.ndarray | None]]:
    """Batches of (weights, observed), one row a refit."""
    problem, n = fit.problem, len(fit.problem.observed)
    if problem.shared is not None and resampling != "run":
        what = "points that share errors are not drawn one by one"
        raise ScalingError(what, key="intervals", value=f"bootstrap_{resampling}", fix="take profile or bootstrap_run")
    rng = np.random.Generator(np.random.Philox(key=[seed, 1]))
    for first in range(0, count, BATCH):
        size = min(BATCH, count - first)
        if resampling == "case":
            yield rng.multinomial(n, np.full(n, 1.0 / n), size) * problem.weights, None
        elif resampling == "run":
            clusters = _clusters(fit)
            groups = int(clusters.max()) + 1
            counts = rng.multinomial(groups, np.full(groups, 1.0 / groups), size)
            yield counts[:, clusters] * problem.weights, None
        else:
            residual = problem.residuals(fit.u[None])[0]
            # A point that holds the law has too small a residual; 1/√(1-h) gives it back its size.
            errors = residual / np.sqrt(np.maximum(1.0 - fit.diagnostics.leverage, 0.05))
            errors = errors - errors.mean()
            yield None, problem.observed + residual - errors[rng.integers(0, n, (size, n))]


def _clusters(fit: Fit) -> np.ndarray:
    if isinstance(fit.problem.shared, SharedErrors):
        return fit.problem.shared.groups
    if fit.clusters is None:
        what = "resamples clusters, and none are named"
        raise ScalingError(what, key="intervals", value="bootstrap_run", fix="add --cluster run")
    return fit.clusters
