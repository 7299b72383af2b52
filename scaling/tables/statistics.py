"""Statistics over seeds: intervals of means, differences from a baseline, agreement of two rankings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import fdtrc, ndtri, stdtr, stdtrit  # in a quarter of the time of scipy.stats

LEVEL = 0.95
STRANGE = 0.01  # the chance at which a row is taken to scatter more than the others, over all rows together


@dataclass(frozen=True)
class Scatter:
    """The variance of one run about its row's mean, and the degrees of freedom behind it."""

    variance: float
    freedom: int

    @property
    def deviation(self) -> float:
        return math.sqrt(self.variance)


@dataclass(frozen=True)
class Mean:
    """The mean of a row's runs with its interval; `pooled` where the scatter is that of all rows together."""

    value: float
    low: float
    high: float
    runs: int
    pooled: bool


@dataclass(frozen=True)
class Difference:
    """A row's mean less its baseline's; `p` is by Student's test, `adjusted` by Holm's over all rows compared."""

    value: float
    low: float
    high: float
    p: float
    adjusted: float
    higher_is_better: bool = False

    @property
    def verdict(self) -> str:
        if self.adjusted >= 1 - LEVEL:
            return "no difference shown"
        return "better" if (self.value > 0) == self.higher_is_better else "worse"


@dataclass(frozen=True)
class Comparison:
    """Rows with enough runs for a mean or a test; `pools` has the scatter pooled over the rows of one baseline, None
    where none of them has two runs.
    """

    means: Mapping[str, Mean]
    differences: Mapping[str, Difference]
    pools: Mapping[str, Scatter | None]
    strange: tuple[str, ...]  # rows that scatter more than the rest, judged by their own scatter


def compare(
    results: Mapping[str, Sequence[float]], baselines: str | Mapping[str, str], *, higher_is_better: bool = False
) -> Comparison:
    """Every row's mean, and its difference from its baseline's: one baseline, or one for each row.

    The variance is pooled over the rows of a baseline, so that three runs of each are worth many. Rows that
    scatter more than the rest are no part of the pool; their figures rest on their own runs, by Welch's test.
    """
    arrays = {row: np.asarray(values, float) for row, values in results.items() if len(values)}
    of = {row: baselines if isinstance(baselines, str) else baselines[row] for row in results}
    own = {row: Scatter(float(x.var(ddof=1)) if len(x) > 1 else 0.0, len(x) - 1) for row, x in arrays.items()}
    groups = {baseline: [row for row in arrays if of[row] == baseline] for baseline in dict.fromkeys(of.values())}
    strange = tuple(row for rows in groups.values() for row in _strange({row: own[row] for row in rows}))
    pools = {baseline: _pool([own[row] for row in rows if row not in strange]) for baseline, rows in groups.items()}
    scatter = {row: own[row] if row in strange else pools[of[row]] for row in arrays}
    means = {row: _mean(arrays[row], scatter[row], row not in strange) for row in arrays}
    others = [row for row in arrays if row != of[row] in arrays and pools[of[row]] is not None]
    tests = [_test(arrays[row], arrays[of[row]], scatter[row], scatter[of[row]]) for row in others]
    adjusted = holm([p for _, _, p in tests])
    differences = {
        row: Difference(value, value - half, value + half, p, chance, higher_is_better)
        for row, (value, half, p), chance in zip(others, tests, adjusted)
    }
    return Comparison(means, differences, pools, strange)


def holm(chances: Sequence[float]) -> list[float]:
    """Chances adjusted for their number: the i-th smallest of m times m − i + 1, never below a smaller one. (Holm
    1979)
    """
    order = np.argsort(chances, kind="stable")
    scaled = np.asarray(chances, float)[order] * (len(chances) - np.arange(len(chances)))
    adjusted = np.empty(len(chances))
    adjusted[order] = np.maximum.accumulate(scaled.clip(max=1.0))
    return adjusted.tolist()


@dataclass(frozen=True)
class Agreement:
    """Spearman's rank correlation of two columns over `rows` rows, with its interval."""

    value: float
    low: float
    high: float
    rows: int


def agreement(ours: Mapping[Any, float], theirs: Mapping[Any, float]) -> Agreement | None:
    """Whether two columns order the rows of both alike; nothing where there are fewer than four such rows.

    The interval is Fisher's with the variance (1 + ρ²/2)/(n − 3). (Bonett & Wright 2000)
    """
    columns = [[column[row] for row in ours if row in theirs] for column in (ours, theirs)]
    count = len(columns[0])
    if count < 4 or any(len(set(column)) == 1 for column in columns):
        return None
    value = float(np.corrcoef([_ranks(column) for column in columns])[0, 1])
    width = ndtri((1 + LEVEL) / 2) * math.sqrt((1 + value**2 / 2) / (count - 3))
    middle = math.atanh(max(-1 + 1e-12, min(1 - 1e-12, value)))
    return Agreement(value, math.tanh(middle - width), math.tanh(middle + width), count)


def _ranks(values: Sequence[float]) -> np.ndarray:
    """Each value's place from the smallest, 1 first; equal ones share the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[which]


def _pool(scatters: Sequence[Scatter]) -> Scatter | None:
    freedom = sum(scatter.freedom for scatter in scatters)
    if freedom == 0:
        return None
    return Scatter(sum(scatter.variance * scatter.freedom for scatter in scatters) / freedom, freedom)


def _strange(own: Mapping[str, Scatter]) -> tuple[str, ...]:
    """Rows taken out one by one, the most scattered first, while it scatters more than the rest do by an F test."""
    left, out = {row: scatter for row, scatter in own.items() if scatter.freedom}, []
    chance = STRANGE / max(1, len(left))
    while len(left) > 2:
        widest = max(left, key=lambda row: left[row].variance)
        rest = _pool([scatter for row, scatter in left.items() if row != widest])
        assert rest is not None
        scatter = left[widest]
        if rest.variance == 0 or fdtrc(scatter.freedom, rest.freedom, scatter.variance / rest.variance) >= chance:
            break
        out.append(widest)
        del left[widest]
    return tuple(out)


def _mean(values: np.ndarray, scatter: Scatter | None, pooled: bool) -> Mean:
    value, half = float(values.mean()), math.inf
    if scatter is not None and scatter.freedom:
        half = _quantile(scatter.freedom) * math.sqrt(scatter.variance / len(values))
    return Mean(value, value - half, value + half, len(values), pooled)


def _test(
    row: np.ndarray, baseline: np.ndarray, ours: Scatter | None, theirs: Scatter | None
) -> tuple[float, float, float]:
    """The difference of two means, half its interval, and the chance of one as large where there is none."""
    assert ours is not None
    assert theirs is not None
    value = float(row.mean() - baseline.mean())
    errors = ours.variance / len(row), theirs.variance / len(baseline)
    error = math.sqrt(sum(errors))
    if error == 0:
        return value, 0.0, 1.0 if value == 0 else 0.0
    freedom: float = ours.freedom
    if ours != theirs:  # Welch's degrees of freedom (Welch 1947)
        freedom = sum(errors) ** 2 / (errors[0] ** 2 / ours.freedom + errors[1] ** 2 / theirs.freedom)
    return value, _quantile(freedom) * error, float(2 * stdtr(freedom, -abs(value) / error))


def _quantile(freedom: float) -> float:
    return float(stdtrit(freedom, (1 + LEVEL) / 2))
