"""Intervals, Holm's correction, odd rows, rank correlation and decision accuracy: by scipy, by hand, by simulation."""

import math
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas
import pytest
from scipy import stats

import scaling
from scaling.base.errors import ScalingError
from scaling.tables.decision import Scale, decide
from scaling.tables.statistics import agreement, compare, holm
from scaling.tables.table import read

RESULTS = Path(__file__).parents[2] / "docs" / "results"
KEPT = RESULTS / "narang2021" / "points.csv"


def drawn(seed: int, shifts: dict[str, float], seeds: dict[str, int], sigma: float = 0.01) -> dict[str, list[float]]:
    chance = np.random.default_rng(seed)
    return {row: list(2 + shift + sigma * chance.standard_normal(seeds[row])) for row, shift in shifts.items()}


def test_two_rows_are_students_test_and_the_variance_is_pooled_over_all_rows():
    losses = drawn(0, {"base": 0, "row": 0.01}, {"base": 6, "row": 4})
    found = compare(losses, dict.fromkeys(losses, "base")).differences["row"]
    expected = cast(Any, stats.ttest_ind(losses["row"], losses["base"]))
    interval = expected.confidence_interval(0.95)
    assert (found["p"], found["low"], found["high"]) == pytest.approx((expected.pvalue, interval.low, interval.high))
    pooled = compare({"base": [1.0, 3.0], "a": [2.0, 2.0, 5.0], "b": [4.0]}, dict.fromkeys(["base", "a", "b"], "base"))
    assert pooled.pools["base"] == (pytest.approx((2 + 6) / 3), 3)
    assert pooled.means["b"]["high"] == pytest.approx(4 + stats.t.ppf(0.975, 3) * math.sqrt(8 / 3))


def test_a_row_that_scatters_is_no_part_of_the_pool_and_is_judged_by_welch():
    rows = dict.fromkeys("abcdefgh", 0.0)
    losses = drawn(1, rows, dict.fromkeys(rows, 4)) | {"wild": [2.0, 2.9, 1.2, 2.4]}
    found = compare(losses, dict.fromkeys(losses, "a"))
    assert (found.strange, found.means["wild"]["pooled"]) == (("wild",), False)
    assert math.sqrt(found.pools["a"].variance) < 0.02
    assert found.differences["wild"]["high"] - found.differences["wild"]["low"] > 1
    assert found.verdicts["wild"] == "no difference shown"


def test_each_heading_has_a_baseline_and_a_scatter_of_its_own():
    scores = {"a": [0.5, 0.7], "b": [0.9, 1.1], "c": [0.1, 0.1001], "d": [0.2, 0.2001]}
    found = compare(scores, {"a": "a", "b": "a", "c": "c", "d": "c"}, higher_is_better=True)
    alone = compare({row: scores[row] for row in "cd"}, dict.fromkeys("cd", "c"))
    assert list(found.differences) == ["b", "d"]
    assert (found.pools["c"], found.means["d"]) == (alone.pools["c"], alone.means["d"])
    assert found.differences["d"]["adjusted"] == 2 * alone.differences["d"]["p"]  # Holm's correction is over both
    assert (found.verdicts["d"], alone.verdicts["d"]) == ("better", "worse")
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_spearman_is_scipys_and_its_interval_narrows():
    def agreed(x, y):
        return agreement(dict(enumerate(map(float, x))), dict(enumerate(map(float, y))))

    x, noise = np.random.default_rng(0).normal(size=(2, 30))
    y = x + noise
    for ours, theirs in ((x, y), (x.round(), y.round())):  # with ties
        assert agreed(ours, theirs)["value"] == pytest.approx(cast(Any, stats.spearmanr(ours, theirs)).statistic)
    found, few = agreed(x, y), agreed(x[:8], y[:8])
    assert found["low"] < found["value"] < found["high"] < found["low"] + few["high"] - few["low"]
    assert agreed(x[:3], x[:3]) is None


def scales(rows: int, noise: float, seeds: int, seed: int = 0) -> tuple[Scale, Scale]:
    """A small scale of true values with seeds of this noise, and a larger one of the same order."""
    rng = np.random.default_rng(seed)
    true = rng.standard_normal(rows)
    small = {f"row {row}": list(true[row] + noise * rng.standard_normal(seeds)) for row in range(rows)}
    return Scale("small", small), Scale("large", {f"row {row}": [true[row]] for row in range(rows)})


def test_pairs_are_counted_by_hand_and_agreeing_rows_are_no_certainty():
    small = Scale("small", {"a": [1.0], "b": [2.0], "c": [3.0], "d": [3.0], "e": []})
    large = Scale("large", {"a": [1.0], "b": [3.0], "c": [2.0], "d": [2.0], "e": [0.0], "f": [1.0]})
    found = decide(small, large)
    # ab, ac and ad are won, bc and bd are lost, and c and d have no winner.
    assert (found["rows"], found["pairs"], found["ties"]) == (4, 5, 1)
    assert found["accuracy"] == pytest.approx(3 / 5)
    assert (found["by_seeds"], found["low"]) == (None, None)
    assert decide(Scale("small", {"a": [1.0], "b": [1.0]}), large)["accuracy"] == 0.5
    assert decide(Scale("small", {"a": [1.0]}), large) is None
    agreed = decide(*scales(8, 1e-3, 3))
    assert (agreed["accuracy"], agreed["high"]) == (1.0, 1.0)
    assert agreed["low"] == pytest.approx(0.025 ** (1 / 4))


def test_the_seeds_state_what_noise_leaves():
    """Two rows by hand, and many rows by what comes: the true order is the same at both scales."""
    small = Scale("small", {"a": [1.0, 2.0], "b": [2.5, 4.5]})
    error = np.sqrt((0.5 + 2.0) / 2 * (1 / 2 + 1 / 2))
    found = decide(small, Scale("large", {"a": [1.0], "b": [2.0]}))
    assert found["by_seeds"] == pytest.approx(stats.t.cdf(2.0 / error, 2))
    made: list[Any] = [decide(*scales(30, 0.5, 3, seed)) for seed in range(20)]
    assert np.mean([one["by_seeds"] - one["accuracy"] for one in made]) == pytest.approx(0, abs=0.02)


def test_kept_points_decide_early_for_the_end_and_for_the_paper():
    names = [row.name for row in read("narang2021").rows[::6]]
    document = scaling.decide("narang2021_cpu", source=KEPT, rows=names).to_json()
    made = {(each["small"], each["large"]): each for each in document["decisions"]}
    early, final, paper = "our loss at 0.125 of the steps", "our final loss", "the paper's final loss"
    assert set(made) == {(early, final), (early, paper), (final, paper), ("the paper's early loss", paper)}
    found, means = made[early, final], cast(Any, pandas.read_csv(KEPT).groupby("row")[["early", "loss"]].mean())
    agree = [(a[0] < b[0]) == (a[1] < b[1]) for a, b in combinations(means.loc[names].to_numpy(), 2)]
    assert (found["rows"], found["pairs"], found["accuracy"]) == (9, 36, pytest.approx(np.mean(agree)))
    same = scaling.decide("narang2021_cpu", source=KEPT, against=KEPT, rows=["GeLU", "GeGLU", "ReGLU"])
    assert {decision["accuracy"] for decision in same.decisions if decision["small"] == final} == {1.0}


def test_the_sizes_of_a_study_decide_for_the_largest():
    points = RESULTS / "architecture_exponents-text" / "points.csv"
    found = scaling.decide("narang2021", source=points)
    assert len(found.decisions) == 12
    assert {decision["large"] for decision in found.decisions} == {"width=96 D=2M"}
    assert found.data.loc[found.data["small"] == "width=72 D=2M", "accuracy"].tolist() == [1.0]
    with pytest.raises(ScalingError, match="it does not combine with --from"):
        scaling.decide("narang2021", source=points, against=KEPT)
