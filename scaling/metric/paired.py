"""Whether one system is better than another on the same examples."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.metric.interval import LEVEL, RESAMPLES, samples
from scaling.metric.metric import Metric, checked_rows


@dataclass(frozen=True)
class Paired:
    """The difference of a metric's main value between two systems, its 95% interval, and `p`, the fraction of samples
    in which the difference has not the sign that it has on all examples, ties counted half.
    """

    difference: float
    low: float
    high: float
    p: float


def paired_bootstrap(
    metric: Metric,
    first: Sequence[Any],
    second: Sequence[Any],
    references: Sequence[Any],
    groups: Sequence[Hashable] | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Paired:
    """The main value of `first` less that of `second`, on samples of the examples that both share. (Koehn 2004)"""
    rows = [checked_rows(metric, each, references, groups) for each in (first, second)]

    def differences(weights: np.ndarray) -> np.ndarray:
        ours, theirs = (metric.weighted(own, weights)[metric.main] for own in rows)
        return ours - theirs

    whole = float(differences(np.ones((1, len(rows[0]))))[0])
    drawn = np.concatenate([differences(weights) for weights in samples(len(rows[0]), resamples, seed)])
    drawn = drawn[~np.isnan(drawn)]
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    against = (drawn * np.sign(whole) < 0).mean() + (drawn == 0).mean() / 2
    return Paired(whole, float(low), float(high), float(against if whole else 0.5))
