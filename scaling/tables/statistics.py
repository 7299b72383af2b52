"""Statistics over seeds: intervals of means, differences from a baseline, agreement of two rankings."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import fdtrc, ndtri, stdtr, stdtrit  # in a quarter of the time of scipy.stats

from scaling.metrics.classes import Correlation
from scaling.metrics.metric import LEVEL

STRANGE = 0.01  # the chance at which a row is taken to scatter more than the others, over all rows together

Figure = dict[str, Any]


class Scatter(NamedTuple):
    """The variance of one run about its row's mean, and the degrees of freedom behind it."""

    variance: float
    freedom: int


@dataclass(frozen=True)
class Comparison:
    """Rows with enough runs for a mean or a test, as the document of a table has them (docs/json.md).

    A mean is `pooled` where the scatter is that of all rows together. Of a difference from the baseline, `p` is by
    Student's test and `adjusted` by Holm's over all rows compared. An end of an interval that is open is None. `pools`
    has the scatter pooled over the rows of one baseline, None where none of them has two runs; rows of `strange` have a
    larger variance than the rest, and are judged by their own. `scatter` has what each row is judged by.
    """

    means: Mapping[str, Figure]
    differences: Mapping[str, Figure]
    verdicts: Mapping[str, str]
    pools: Mapping[str, Scatter | None]
    strange: tuple[str, ...]
    scatter: Mapping[str, Scatter]


def compare(
    results: Mapping[str, Sequence[float]], baselines: Mapping[str, str], *, higher_is_better: bool = False
) -> Comparison:
    """Every row's mean, and its difference from the mean of its baseline.

    The variance is pooled over the rows of a baseline, so that three runs of each row suffice. Rows with a larger
    variance than the rest are not in the pool; their figures use their own runs, by Welch's test.
    """
    arrays = {row: np.asarray(values, float) for row, values in results.items() if len(values)}
    own = {row: Scatter(float(x.var(ddof=1)) if len(x) > 1 else 0.0, len(x) - 1) for row, x in arrays.items()}
    groups = {baselines[row]: {r: own[r] for r in arrays if baselines[r] == baselines[row]} for row in results}
    strange = tuple(row for group in groups.values() for row in _strange(group))
    pools = {
        baseline: _pool([one for row, one in group.items() if row not in strange]) for baseline, group in groups.items()
    }
    judged_by = {row: own[row] if row in strange else pools[baselines[row]] for row in arrays}
    scatter = {row: one for row, one in judged_by.items() if one is not None}
    means = {row: _mean(values, judged_by[row], row not in strange) for row, values in arrays.items()}
    pairs = {row: baselines[row] for row in scatter if row != baselines[row] in scatter}
    differences = {
        row: _difference(arrays[row], arrays[baseline], scatter[row], scatter[baseline])
        for row, baseline in pairs.items()
    }
    verdicts = {}
    for (row, figure), adjusted in zip(differences.items(), holm([figure["p"] for figure in differences.values()])):
        figure["adjusted"] = adjusted
        verdict = "better" if (figure["value"] > 0) == higher_is_better else "worse"
        verdicts[row] = verdict if adjusted < 1 - LEVEL else "no difference shown"
    return Comparison(means, differences, verdicts, pools, strange, scatter)


def holm(chances: Sequence[float]) -> list[float]:
    """P-values adjusted for their number: the i-th smallest of m times m − i + 1, never below a smaller one. (Holm
    1979)
    """
    order = np.argsort(chances, kind="stable")
    scaled = np.asarray(chances, float)[order] * (len(chances) - np.arange(len(chances)))
    adjusted = np.empty(len(chances))
    adjusted[order] = np.maximum.accumulate(scaled.clip(max=1.0))
    return adjusted.tolist()


def agreement(ours: Mapping[Any, float], theirs: Mapping[Any, float]) -> Figure | None:
    """Spearman's rank correlation of two columns over the `rows` of both; nothing where these are fewer than four.

    The interval is Fisher's with the variance (1 + ρ²/2)/(n − 3). (Bonett & Wright 2000)
    """
    columns = [[column[row] for row in ours if row in theirs] for column in (ours, theirs)]
    count = len(columns[0])
    if count < 4 or any(len(set(column)) == 1 for column in columns):
        return None
    value = Correlation().score(*columns)["spearman"]
    width = ndtri((1 + LEVEL) / 2) * math.sqrt((1 + value**2 / 2) / (count - 3))
    middle = math.atanh(max(-1 + 1e-12, min(1 - 1e-12, value)))
    return {"value": value, "low": math.tanh(middle - width), "high": math.tanh(middle + width), "rows": count}


def _pool(scatters: Collection[Scatter]) -> Scatter | None:
    freedom = sum(scatter.freedom for scatter in scatters)
    variance = sum(scatter.variance * scatter.freedom for scatter in scatters)
    return Scatter(variance / freedom, freedom) if freedom else None


def _strange(own: Mapping[str, Scatter]) -> list[str]:
    """Rows that are taken out of the pool one by one, the largest variance first, while an F test finds it larger."""
    left = sorted((row for row in own if own[row].freedom), key=lambda row: -own[row].variance)
    for count, widest in enumerate(left[:-2]):
        rest = _pool([own[row] for row in left[count + 1 :]])
        ratio = own[widest].variance / rest.variance if rest and rest.variance else 0.0
        if not rest or fdtrc(own[widest].freedom, rest.freedom, ratio) >= STRANGE / len(left):
            return left[:count]
    return left[:-2]


def _mean(values: np.ndarray, scatter: Scatter | None, pooled: bool) -> Figure:
    figure = {"value": float(values.mean()), "low": None, "high": None, "runs": len(values), "pooled": pooled}
    if scatter is not None:
        half = float(stdtrit(scatter.freedom, (1 + LEVEL) / 2)) * math.sqrt(scatter.variance / len(values))
        figure |= {"low": figure["value"] - half, "high": figure["value"] + half}
    return figure


def _difference(row: np.ndarray, baseline: np.ndarray, ours: Scatter, theirs: Scatter) -> Figure:
    """The difference of two means, its interval, and its p-value."""
    value = float(row.mean() - baseline.mean())
    errors = ours.variance / len(row), theirs.variance / len(baseline)
    error, half, p = math.sqrt(sum(errors)), 0.0, 1.0 if value == 0 else 0.0
    if error > 0:
        freedom: float = ours.freedom
        if ours != theirs:  # Welch's degrees of freedom (Welch 1947)
            freedom = sum(errors) ** 2 / (errors[0] ** 2 / ours.freedom + errors[1] ** 2 / theirs.freedom)
        half = float(stdtrit(freedom, (1 + LEVEL) / 2)) * error
        p = float(2 * stdtr(freedom, -abs(value) / error))
    return {"value": value, "low": value - half, "high": value + half, "p": p}
