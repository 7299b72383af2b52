"""Tests of the residuals for errors that are unequal, depend on each other or follow a size, each at 1%.

Those of unequal errors and of neighbours are by normal approximation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaling.law.forms import Columns

LIMIT = 2.576  # two-sided 1% of the normal distribution
FEWEST = 8  # points below which no test has any power
FEW_CLUSTERS = 10
FALSE_ALARMS = 0.01
"""How often independent errors may show a size that lies off the law (`python -m scaling.coverage.residuals`)."""
FEWEST_OF_A_SIZE = 3
SAME_SIZE = 0.01
"""Sizes that differ by less than 1% are one: a grid of real runs does not meet its tokens exactly."""


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


@dataclass(frozen=True)
class OffSize:
    """The points of one size that lie off the law together: their rows, and the column and value that they share."""

    column: str
    value: float
    rows: np.ndarray


def off_size(residual: np.ndarray, jacobian: np.ndarray, columns: Columns) -> OffSize | None:
    """The size whose points lie furthest off the law, where independent errors would seldom bring them there.

    Each size in turn gets a shift of its own next to the law, linearised at its optimum: the shift over its standard
    error has Student's t with n - p - 1 degrees of freedom (the mean-shift outlier model of a group; Cook and Weisberg
    1982, Residuals and Influence in Regression, section 2.2), and the level is shared between all sizes of all columns
    (Bonferroni). `residual` and the `jacobian` [parameters, points] are scaled by the root of the weights.
    """
    from scipy.special import stdtrit

    count, freedom = len(residual), len(residual) - len(jacobian) - 1
    groups = [size for name, column in columns.items() for size in _sizes(name, column)]
    if freedom < 1 or not groups:
        return None
    basis, singular, _ = np.linalg.svd(jacobian.T, full_matrices=False)
    basis = basis[:, singular > singular[0] * count * np.finfo(float).eps]
    error = residual - basis @ (basis.T @ residual)
    statistics = []
    for group in groups:
        shift = np.zeros(count)
        shift[group.rows] = 1.0
        own = shift - basis @ (basis.T @ shift)
        length = float(own @ own)
        if length < 1e-9 * len(group.rows):  # the law fits this size whatever its points are
            statistics.append(0.0)
            continue
        part = float(own @ error) ** 2 / length
        rest = max(float(error @ error) - part, 0.0) / freedom
        statistics.append(np.sqrt(part / rest) if rest > 0 else np.inf)
    worst = int(np.argmax(statistics))
    limit = float(stdtrit(freedom, 1.0 - 0.5 * FALSE_ALARMS / len(groups)))
    return groups[worst] if statistics[worst] > limit else None


def _sizes(name: str, column: np.ndarray) -> list[OffSize]:
    """The sizes of a column that several points have; none of a column of one or two sizes, or that is not positive."""
    if column.min() <= 0:
        return []
    order = np.argsort(column, kind="stable")
    ends = np.flatnonzero(np.diff(np.log(column[order])) > SAME_SIZE) + 1
    rows = np.split(order, ends)
    if len(rows) < 3:
        return []
    return [OffSize(name, float(column[own[0]]), own) for own in rows if len(own) >= FEWEST_OF_A_SIZE]


def few_clusters(clusters: np.ndarray) -> str | None:
    """Too few clusters for their scatter to be known: then no test of it can be trusted either."""
    groups = int(clusters.max()) + 1
    if groups >= FEW_CLUSTERS:
        return None
    return f"{groups} clusters are too few to judge how errors within one belong together; {FEW_CLUSTERS} would do"


def _ranks(values: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(float)
