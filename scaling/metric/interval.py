"""Intervals of metrics: over examples, over pairs of predictions, over seeds."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.metric.metric import Metric, checked_rows

LEVEL = 0.95
RESAMPLES = 1000
_AT_ONCE = 1 << 22  # weights that are in memory together


@dataclass(frozen=True)
class Interval:
    """A value and its 95% interval."""

    value: float
    low: float
    high: float


def bootstrap(
    metric: Metric,
    predictions: Sequence[Any],
    references: Sequence[Any],
    groups: Sequence[Hashable] | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Interval]:
    """Each value of a metric with its percentile interval over samples of the examples, drawn with replacement. (Efron
    1979) Where the metric is over groups, groups are drawn.
    """
    rows = checked_rows(metric, predictions, references, groups)
    count = len(rows)
    whole = {name: float(value[0]) for name, value in metric.weighted(rows, np.ones((1, count))).items()}
    drawn: dict[str, list[np.ndarray]] = {name: [] for name in whole}
    for weights in samples(count, resamples, seed):
        for name, values in metric.weighted(rows, weights).items():
            drawn[name].append(values)
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    bounds = {name: np.nanquantile(np.concatenate(drawn[name]), tails) for name in whole if not math.isnan(whole[name])}
    order = sorted(bounds, key=lambda name: name != metric.main)
    return {name: Interval(whole[name], *map(float, bounds[name])) for name in order}


def samples(count: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """[s count] each: how often every example is in each of s samples, `resamples` of them altogether."""
    generator, step = np.random.default_rng(seed), max(1, _AT_ONCE // count)
    for done in range(0, resamples, step):
        yield _weights(generator, min(step, resamples - done), count)


def _weights(generator: np.random.Generator, samples: int, count: int) -> np.ndarray:
    """[samples count], how often each example is in a sample of `count` drawn with replacement."""
    places = generator.integers(0, count, (samples, count)) + count * np.arange(samples)[:, None]
    return np.bincount(places.ravel(), minlength=samples * count).reshape(samples, count).astype(float)


def over_seeds(values: Sequence[float]) -> Interval:
    """The mean of runs that differ by their seed, with Student's interval of it; without bounds of one run."""
    scores = np.asarray(values, float)
    mean = float(scores.mean())
    if len(scores) == 1:
        return Interval(mean, -math.inf, math.inf)
    from scipy.special import stdtrit  # in a quarter of the time of scipy.stats; training needs neither

    half = float(stdtrit(len(scores) - 1, (1 + LEVEL) / 2)) * float(scores.std(ddof=1)) / math.sqrt(len(scores))
    return Interval(mean, mean - half, mean + half)


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
