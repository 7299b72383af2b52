"""Tests of the residuals for errors that are unequal or depend on each other, at 1%, by normal approximation."""

from __future__ import annotations

import numpy as np

from scaling.law.forms import Columns

LIMIT = 2.576  # two-sided 1% of the normal distribution
FEWEST = 8  # points below which no test has any power
FEW_CLUSTERS = 10


def unequal_errors(residual: np.ndarray, predicted: np.ndarray) -> str | None:
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


def alike_neighbours(residual: np.ndarray, predicted: np.ndarray) -> str | None:
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


def seed_scatter(residual: np.ndarray, columns: Columns) -> tuple[float, int] | None:
    """The standard deviation between runs that differ in their seed alone, and its degrees of freedom."""
    _, setting = np.unique(np.column_stack(list(columns.values())), axis=0, return_inverse=True)
    setting = setting.reshape(-1)
    counts = np.bincount(setting)
    freedom = len(residual) - len(counts)
    if freedom < 1:
        return None
    means = np.bincount(setting, residual) / counts
    return float(np.sqrt(((residual - means[setting]) ** 2).sum() / freedom)), freedom


def lack_of_fit(residual: np.ndarray, columns: Columns, parameters: int) -> str | None:
    """Does the law miss the mean of the seeds by more than seeds scatter? The F test of lack of fit."""
    from scipy.special import fdtri

    scatter = seed_scatter(residual, columns)
    if scatter is None or scatter[0] == 0:
        return None
    noise, freedom = scatter
    between = len(residual) - freedom - parameters
    if between < 1:
        return None
    ratio = ((residual**2).sum() - freedom * noise**2) / between / noise**2
    if ratio < fdtri(between, freedom, 0.99):
        return None
    return f"the law misses by more than seeds scatter (F = {ratio:.1f}): the form may be wrong"


def few_clusters(clusters: np.ndarray) -> str | None:
    """Too few clusters for their scatter to be known: then no test of it can be trusted either."""
    groups = int(clusters.max()) + 1
    if groups >= FEW_CLUSTERS:
        return None
    return f"{groups} clusters are too few to judge how errors within one belong together; {FEW_CLUSTERS} would do"


def _ranks(values: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(float)
