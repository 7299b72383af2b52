"""Metrics are sums over examples; their values have intervals over examples and over pairs of predictions."""

from __future__ import annotations

from abc import ABC
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from scaling.base.errors import refuse

LEVEL = 0.95
TAILS = (1 - LEVEL) / 2, (1 + LEVEL) / 2
RESAMPLES = 1000
_AT_ONCE = 1 << 22  # weights that are in memory together

Values = Sequence[Any]  # a prediction or a reference for each example
Groups = Sequence[Hashable] | None  # what each example belongs to (a question's answers)


class Metric(ABC):
    """`score(predictions, references)` gives its values by name, of which `main` represents the metric.

    A value is computed from sums over examples. So a sample in which examples are drawn several times, as the bootstrap
    draws them, costs one product of matrices. A metric defines `row`, or `rows` where an example's row depends on
    others, and `ratios` or `values`.
    """

    slot = "metric"
    main: ClassVar[str]
    ratios: ClassVar[Mapping[str, tuple[int, int]]] = {}  # values that are one sum over another, by the columns of both
    averaged: ClassVar[tuple[str, ...]] = ()  # the two values of which `mean` is the mean
    answers: ClassVar[tuple[str, ...]] = ()  # the kinds of answer that it scores; any where none is named
    guessing: ClassVar[float | None] = None  # the main value of random answers, where it is the same for every task

    def row(self, prediction: Any, reference: Any) -> Sequence[float]:
        """[k], what an example adds to the sums."""
        raise NotImplementedError

    def check(self, classes: Sequence[Hashable]) -> None:  # noqa: B027 (most metrics score any classes)
        """Refuse classes that the metric does not score as it is set."""

    def rows(self, predictions: Values, references: Values, groups: Groups = None) -> np.ndarray:
        """[n k], what each example adds to the sums; `n` is the number of groups where the metric is over these."""
        return np.array([self.row(p, r) for p, r in zip(predictions, references, strict=True)], float)

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """The values [s] of sums [s k]; NaN where a sample has no example that the value is over."""
        return {name: ratio(sums[:, part], sums[:, whole], np.nan) for name, (part, whole) in self.ratios.items()}

    def weighted(self, rows: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
        """The values [s] of samples in which example i counts `weights[s, i]` times."""
        values = self.values(weights @ rows)
        if self.averaged:
            return {"mean": np.mean([values[name] for name in self.averaged], axis=0), **values}
        return values

    def score(self, predictions: Values, references: Values, groups: Groups = None) -> dict[str, float]:
        """The values by name, `main` first."""
        return self.whole(checked_rows(self, predictions, references, groups))

    def whole(self, rows: np.ndarray) -> dict[str, float]:
        """The values of all examples, `main` first, without those that are over none."""
        values = self.weighted(rows, np.ones((1, len(rows))))
        names = sorted(values, key=lambda name: name != self.main)
        return {name: float(values[name][0]) for name in names if not np.isnan(values[name][0])}

    def signature(self, references: Sequence[Any]) -> str | None:
        """The settings and version of the package that computes it, as papers cite them; None where none does."""
        return None


def checked_rows(metric: Metric, predictions: Values, references: Values, groups: Groups) -> np.ndarray:
    refuse(not len(references), "there is no example to score", "take a split that has labels")
    for name, values in (("predictions", predictions), ("group names", references if groups is None else groups)):
        what = f"there are {len(values):,} {name} for {len(references):,} examples"
        refuse(len(values) != len(references), what)
    return metric.rows(predictions, references, groups)


def ratio(numerator: np.ndarray, denominator: np.ndarray, otherwise: float = 0.0) -> np.ndarray:
    """a / b, and `otherwise` where b is 0."""
    zero = denominator == 0
    return np.where(zero, otherwise, numerator / np.where(zero, 1, denominator))


def f1(correct: np.ndarray, predicted: np.ndarray, real: np.ndarray) -> dict[str, np.ndarray]:
    """2 P R / (P + R) = 2 · correct / (predicted + real), 0 where there is neither, then precision P and recall R."""
    f1 = ratio(2 * correct, predicted + real)
    return {"f1": f1, "precision": ratio(correct, predicted), "recall": ratio(correct, real)}


class PartsF1(Metric):
    """F1 of parts of each example: the sums begin with the number of those that are right, predicted and real."""

    main = "f1"
    guessing = 0.0

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        return {**f1(*sums[:, :3].T), **super().values(sums)}


def bootstrap(
    metric: Metric,
    predictions: Values,
    references: Values,
    groups: Groups = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Any]:
    """The values of a metric by name, `metrics`, and the 95% percentile interval [low, high] of each, `intervals`, over
    samples of the examples, drawn with replacement. (Efron 1979) Where the metric is over groups, groups are drawn. A
    fraction of 0 or 1 is the same in every sample; its interval is Wilson's. (Wilson 1927)
    """
    rows = checked_rows(metric, predictions, references, groups)
    resampled = [metric.weighted(rows, weights) for weights in samples(len(rows), resamples, seed)]
    values, intervals = metric.whole(rows), dict[str, list[float]]()
    for name, value in values.items():
        if name in metric.ratios and value in (0, 1):
            intervals[name] = wilson(value, int(np.count_nonzero(rows[:, metric.ratios[name][1]])))
        else:
            intervals[name] = np.nanquantile(np.concatenate([each[name] for each in resampled]), TAILS).tolist()
    return {"metrics": values, "intervals": intervals}


def wilson(value: float, count: int) -> list[float]:
    """The interval of a fraction that is 0 or 1 of `count` examples: n / (n + z²) is the bound that is not it."""
    bound = count / (count + 1.959963984540054**2)
    return [bound, 1.0] if value else [0.0, 1 - bound]


def samples(count: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """[s count] each: how often every example is in each of s samples, `resamples` of them altogether."""
    generator, step = np.random.default_rng(seed), max(1, _AT_ONCE // count)
    for done in range(0, resamples, step):
        some = min(step, resamples - done)
        places = generator.integers(0, count, (some, count)) + count * np.arange(some)[:, None]
        yield np.bincount(places.ravel(), minlength=some * count).reshape(some, count).astype(float)


def paired_bootstrap(
    metric: Metric,
    first: Values,
    second: Values,
    references: Values,
    groups: Groups = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Any]:
    """The `difference` of the main value of `first` from that of `second`, its 95% `interval` over samples of the
    examples that both share, and `p`, the fraction of samples in which the difference has not the sign that it has on
    all examples, ties counted half. (Koehn 2004)
    """
    rows = [checked_rows(metric, each, references, groups) for each in (first, second)]

    def differences(weights: np.ndarray) -> np.ndarray:
        ours, theirs = (metric.weighted(of_system, weights)[metric.main] for of_system in rows)
        return ours - theirs

    difference = float(differences(np.ones((1, len(rows[0]))))[0])
    resampled = np.concatenate([differences(weights) for weights in samples(len(rows[0]), resamples, seed)])
    resampled = resampled[~np.isnan(resampled)]
    interval: list[float] = np.quantile(resampled, TAILS).tolist()
    against = (resampled * np.sign(difference) < 0).mean() + (resampled == 0).mean() / 2
    return {"difference": difference, "interval": interval, "p": float(against if difference else 0.5)}
