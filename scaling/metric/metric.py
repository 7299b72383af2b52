"""What a metric is: a row of sums for each example, and the values of sums, of one sample or of many at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from scaling.errors import ScalingError


class Metric(ABC):
    """`score(predictions, references)` gives its values by name, of which `main` represents the metric.

    A value is computed from sums over examples. So a sample in which examples are drawn several times, as the bootstrap
    draws them, costs one product of matrices.
    """

    slot = "metric"
    main: ClassVar[str]
    guessing: ClassVar[float | None] = None
    """The main value of answers that are drawn without reading, where it is the same for every task."""

    @abstractmethod
    def rows(
        self, predictions: Sequence[Any], references: Sequence[Any], groups: Sequence[Hashable] | None
    ) -> np.ndarray:
        """[n k], what each example adds to the sums; `n` is the number of groups where the metric is over these."""

    @abstractmethod
    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """The values [s] of sums [s k]; NaN where a sample has no example that the value is over."""

    def weighted(self, rows: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
        """The values [s] of samples in which example i counts `weights[s, i]` times."""
        return self.values(weights @ rows)

    def score(
        self, predictions: Sequence[Any], references: Sequence[Any], groups: Sequence[Hashable] | None = None
    ) -> dict[str, float]:
        """The values by name, `main` first. `groups` names what each example belongs to (a question's answers)."""
        rows = checked_rows(self, predictions, references, groups)
        values = self.weighted(rows, np.ones((1, len(rows))))
        values = {name: float(value[0]) for name, value in values.items() if not np.isnan(value[0])}
        return {self.main: values[self.main], **values}

    def counts(self, predictions: Sequence[Any], references: Sequence[Any]) -> Mapping[str, Mapping[str, int]]:
        """By class: how many `references` and `predictions` are of it, and in how many both agree (`correct`)."""
        return {}

    def signature(self, references: Sequence[Any]) -> str | None:
        """The settings of the package that computes it and its version, as papers cite them; None of what is computed
        here.
        """
        return None


def checked_rows(
    metric: Metric, predictions: Sequence[Any], references: Sequence[Any], groups: Sequence[Hashable] | None
) -> np.ndarray:
    if not len(references):
        raise ScalingError("there is no example to score", fix="take a split that has labels")
    if len(predictions) != len(references):
        raise ScalingError(f"there are {len(predictions):,} predictions for {len(references):,} examples")
    if groups is not None and len(groups) != len(references):
        raise ScalingError(f"there are {len(groups):,} group names for {len(references):,} examples")
    return metric.rows(predictions, references, groups)


def ratio(numerator: np.ndarray, denominator: np.ndarray, otherwise: float = 0.0) -> np.ndarray:
    """a / b, and `otherwise` where b is 0."""
    zero = denominator == 0
    return np.where(zero, otherwise, numerator / np.where(zero, 1, denominator))


def f1(correct: np.ndarray, predicted: np.ndarray, real: np.ndarray) -> np.ndarray:
    """2 P R / (P + R) = 2 · correct / (predicted + real), 0 where there is neither."""
    return ratio(2 * correct, predicted + real)
