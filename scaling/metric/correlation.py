"""Metrics of numbers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.metric.metric import Metric, ratio


@dataclass(frozen=True, kw_only=True)
class Correlation(Metric):
    """mean = (Pearson's r + Spearman's ρ) / 2, as for STS-B of GLUE. (Wang et al. 2018)

    Equal numbers share the mean of their ranks. 0 where all predictions or all references are equal. An invalid output
    counts as the reference that is farthest from what is right.
    """

    main = "mean"
    guessing = 0.0

    def rows(
        self, predictions: Sequence[Any], references: Sequence[Any], groups: Sequence[Hashable] | None = None
    ) -> np.ndarray:
        right = np.array(references, float)
        worst = np.where(right > (right.min() + right.max()) / 2, right.min(), right.max())
        predicted = [
            wrong if prediction is None else float(prediction) for prediction, wrong in zip(predictions, worst)
        ]
        return np.column_stack([predicted, right])

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        raise NotImplementedError("ranks are those of a sample; `weighted` has it")

    def weighted(self, rows: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
        predicted, right = rows.T
        pearson = _correlation(predicted[None], right[None], weights)
        spearman = _correlation(_ranks(predicted, weights), _ranks(right, weights), weights)
        return {"mean": (pearson + spearman) / 2, "pearson": pearson, "spearman": spearman}


def _correlation(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Pearson's r [s] of columns [s n] in samples that count their examples `weights` times."""
    count = weights.sum(1, keepdims=True)
    x = x - (weights * x).sum(1, keepdims=True) / count
    y = y - (weights * y).sum(1, keepdims=True) / count
    scale = np.sqrt((weights * x**2).sum(1) * (weights * y**2).sum(1))
    # Of a column of equal numbers there remains what rounding left.
    flat = scale <= 1e-12 * count[:, 0] * (1 + abs(x).max(1) * abs(y).max(1))
    return np.clip(ratio((weights * x * y).sum(1), np.where(flat, 0, scale)), -1, 1)


def _ranks(column: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The rank [s n] of each number in every sample, 1 first; equal ones share the mean of theirs."""
    order = np.argsort(column, kind="stable")
    _, starts, which = np.unique(column[order], return_index=True, return_inverse=True)
    counts = np.add.reduceat(weights[:, order], starts, axis=1)
    ranks = np.empty_like(weights)
    ranks[:, order] = (counts.cumsum(1) - (counts - 1) / 2)[:, which]
    return ranks
