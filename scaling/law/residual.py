"""What the residuals say against the assumption of even, independent errors. Tests at 1%, by normal approximation."""

from __future__ import annotations

import numpy as np

LIMIT = 2.576  # two-sided 1% of the normal distribution
FEWEST = 8  # points below which no test says anything
FEW_CLUSTERS = 10


def unequal(residual: np.ndarray, predicted: np.ndarray) -> str | None:
    """Does the size of the errors follow the loss? Spearman's rank correlation of |r| and the prediction."""
    if len(residual) < FEWEST:
        return None
    left, right = _ranks(np.abs(residual)), _ranks(predicted)
    spread = left.std() * right.std()
    z = 0.0 if spread == 0 else float(np.mean((left - left.mean()) * (right - right.mean())) / spread)
    if abs(z) * np.sqrt(len(residual) - 1) < LIMIT:
        return None
    where = "large" if z > 0 else "small"
    return (
        f"errors are larger where the loss is {where} (rank correlation {z:+.2f}): give weights, or bootstrap by case"
    )


def wavy(residual: np.ndarray, predicted: np.ndarray) -> str | None:
    """Do neighbours err alike? Runs of one sign along the prediction (Wald and Wolfowitz 1940)."""
    signs = residual[np.lexsort((residual, predicted))] > 0
    n, plus = len(signs), int(signs.sum())
    minus = n - plus
    if n < FEWEST or not plus or not minus:
        return None
    runs = 1 + int((signs[1:] != signs[:-1]).sum())
    expected = 1 + 2 * plus * minus / n
    variance = (expected - 1) * (expected - 2) / (n - 1)
    if variance <= 0 or (expected - runs) / np.sqrt(variance) < LIMIT:
        return None
    return f"neighbours err alike ({runs} runs of one sign where {expected:.0f} are expected): the form may be wrong"


def alike(residual: np.ndarray, clusters: np.ndarray) -> str | None:
    """Too few clusters for their scatter to be known, whose errors are alike."""
    groups = int(clusters.max()) + 1
    n = len(residual)
    if groups >= FEW_CLUSTERS or groups < 2 or n - groups < 2:
        return None
    counts = np.bincount(clusters)
    means = np.bincount(clusters, residual) / counts
    between = float((counts * (means - residual.mean()) ** 2).sum()) / (groups - 1)
    within = float(((residual - means[clusters]) ** 2).sum()) / (n - groups)
    size = (n - (counts**2).sum() / n) / (groups - 1)
    correlation = (between - within) / max(between + (size - 1) * within, 1e-300)
    if correlation < 0.2:
        return None
    return f"errors within a cluster are alike (correlation {correlation:.2f}) and {groups} clusters are few to judge it by"


def _ranks(values: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(float)
