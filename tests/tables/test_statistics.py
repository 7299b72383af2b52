"""Intervals, Holm's correction, odd rows and rank correlation, against scipy, by hand and by simulation."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
from scipy import stats

from scaling.tables.statistics import agreement, compare, holm


def drawn(seed: int, shifts: dict[str, float], seeds: dict[str, int], sigma: float = 0.01) -> dict[str, list[float]]:
    chance = np.random.default_rng(seed)
    return {row: list(2 + shift + sigma * chance.standard_normal(seeds[row])) for row, shift in shifts.items()}


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    return cast(Any, stats.spearmanr(x, y)).statistic


def test_two_rows_are_students_test():
    losses = drawn(0, {"base": 0, "row": 0.01}, {"base": 6, "row": 4})
    found = compare(losses, dict.fromkeys(losses, "base")).differences["row"]
    expected = cast(Any, stats.ttest_ind(losses["row"], losses["base"]))
    assert found["p"] == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert (found["low"], found["high"]) == pytest.approx((interval.low, interval.high))


def test_a_pooled_variance_by_hand():
    losses = {"base": [1.0, 3.0], "a": [2.0, 2.0, 5.0], "b": [4.0]}
    found = compare(losses, dict.fromkeys(losses, "base"))
    pool = found.pools["base"]
    assert pool is not None
    assert (pool.variance, pool.freedom) == (pytest.approx((2 + 6) / 3), 3)
    assert found.means["b"]["high"] == pytest.approx(4 + stats.t.ppf(0.975, 3) * math.sqrt(8 / 3))


def test_a_row_that_scatters_is_judged_by_welch():
    rows = dict.fromkeys("abcdefgh", 0.0)
    losses = drawn(1, rows, dict.fromkeys(rows, 4)) | {"wild": [2.0, 2.9, 1.2, 2.4]}
    found = compare(losses, dict.fromkeys(losses, "a"))
    assert found.strange == ("wild",)
    assert not found.means["wild"]["pooled"]
    pool = found.pools["a"]
    assert pool is not None
    assert math.sqrt(pool.variance) < 0.02
    assert found.differences["wild"]["high"] - found.differences["wild"]["low"] > 1
    assert found.verdicts["wild"] == "no difference shown"


def test_each_heading_has_a_baseline_and_a_scatter_of_its_own():
    scores = {"a": [0.5, 0.7], "b": [0.9, 1.1], "c": [0.1, 0.1001], "d": [0.2, 0.2001]}
    found = compare(scores, {"a": "a", "b": "a", "c": "c", "d": "c"}, higher_is_better=True)
    apart = [
        compare({row: scores[row] for row in rows}, dict.fromkeys(rows, rows[0]), higher_is_better=True)
        for rows in ("ab", "cd")
    ]
    assert found.pools == {**apart[0].pools, **apart[1].pools}
    assert list(found.differences) == ["b", "d"]
    for row, alone in (("b", apart[0]), ("d", apart[1])):
        assert found.means[row] == alone.means[row]
        assert (found.differences[row]["low"], found.differences[row]["p"]) == (
            alone.differences[row]["low"],
            alone.differences[row]["p"],
        )
    assert found.differences["d"]["adjusted"] == 2 * found.differences["d"]["p"]  # Holm's correction is over both
    assert found.verdicts["d"] == "better"
    assert compare({"c": scores["c"], "d": scores["d"]}, dict.fromkeys("cd", "c")).verdicts["d"] == "worse"


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_false_verdicts_are_as_rare_as_they_say():
    """Fifty rows that do not differ: in one study of twenty some row is said to."""
    rows = {"base": 0.0} | {str(row): 0.0 for row in range(50)}
    seeds = {row: 10 if row == "base" else 3 for row in rows}
    said = 0
    for study in range(400):
        found = compare(drawn(study, rows, seeds), dict.fromkeys(rows, "base"))
        said += any(one["adjusted"] < 0.05 for one in found.differences.values())
    assert said / 400 < 0.085


@pytest.mark.parametrize("losses", [{"base": [1.0], "row": [2.0]}, {"row": [1.0, 2.0]}, {"base": []}])
def test_nothing_is_said_without_seeds_or_a_baseline(losses):
    assert compare(losses, dict.fromkeys(losses, "base")).differences == {}


def test_spearman_is_scipys_and_its_interval_narrows():
    x, y = np.random.default_rng(0).normal(size=(2, 30))
    y = y + x

    def agreed(x, y):
        return agreement(dict(enumerate(map(float, x))), dict(enumerate(map(float, y))))

    found, few = agreed(x, y), agreed(x[:8], y[:8])
    assert found is not None
    assert few is not None
    assert found["value"] == pytest.approx(spearman(x, y))
    tied = agreed(x.round(), y.round())
    assert tied is not None
    assert tied["value"] == pytest.approx(spearman(x.round(), y.round()))
    assert found["low"] < found["value"] < found["high"]
    assert found["high"] - found["low"] < few["high"] - few["low"]
    assert agreed([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) is None
