"""Intervals over examples and over seeds, and the paired bootstrap."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scaling.config.schema import build
from scaling.metrics import Accuracy, bootstrap, over_seeds, paired_bootstrap


def test_the_bootstrap_of_an_accuracy_is_the_binomials():
    generator = np.random.default_rng(0)
    references = [1] * 400
    predictions = (generator.random(400) < 0.8).astype(int).tolist()
    interval = bootstrap(build("metric", "Accuracy"), predictions, references)["accuracy"]
    p = np.mean(predictions)
    half = 1.96 * math.sqrt(p * (1 - p) / 400)
    assert interval.low == pytest.approx(p - half, abs=0.01)
    assert interval.high == pytest.approx(p + half, abs=0.01)


@pytest.mark.parametrize(("right", "low", "high"), [(1, 0.9812, 1), (0, 0, 0.0188)])
def test_where_all_or_none_are_right_the_interval_is_wilsons(right, low, high):
    interval = bootstrap(build("metric", "Accuracy"), [right] * 200, [1] * 200)["accuracy"]
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=5e-5)
    spans = bootstrap(build("metric", "SQuAD2"), ["x", ""] * 50, [["x"], []] * 50)
    assert spans["f1"].low == pytest.approx(100 / 103.84, abs=1e-4)
    assert spans["unanswerable_accuracy"].low == pytest.approx(50 / 53.84, abs=1e-4)


@pytest.mark.parametrize("line", ["Correlation", "MCC", {"kind": "F1", "average": "macro"}])
def test_a_sample_scores_as_its_examples_would(line):
    """The values of weights are those of a list in which each example is as often as its weight."""
    generator = np.random.default_rng(3)
    references, predictions = generator.integers(0, 4, (2, 30)).astype(float)
    metric = build("metric", line)
    rows = metric.rows(list(predictions), list(references), None)
    drawn = generator.integers(0, 30, (5, 30))
    weights = np.stack([np.bincount(one, minlength=30) for one in drawn]).astype(float)
    found = metric.weighted(rows, weights)
    for index, one in enumerate(drawn):
        alone = metric.score(list(predictions[one]), list(references[one]))
        for name, value in alone.items():
            assert found[name][index] == pytest.approx(value, abs=1e-9)


def test_groups_are_drawn_whole():
    """All answers of a question are right or wrong together, so that a sample has a multiple of ten right."""
    metric = build("metric", "MultiRC")
    groups = [index // 10 for index in range(100)]
    predictions = [1] * 50 + [0] * 50
    interval = bootstrap(metric, predictions, [1] * 100, groups, resamples=500)["exact_match"]
    assert interval.low < 0.35
    assert interval.high > 0.65


def test_an_interval_over_seeds_is_students():
    interval = over_seeds([0.8, 0.82, 0.84])
    half = 4.302652729911275 * 0.02 / math.sqrt(3)  # t of 2 degrees of freedom
    assert (interval.value, interval.low, interval.high) == pytest.approx((0.82, 0.82 - half, 0.82 + half))
    assert over_seeds([0.8]).low == -math.inf


def test_a_system_that_is_right_where_the_other_is_wrong_is_better():
    references = [1] * 100
    better, worse = [1] * 90 + [0] * 10, [1] * 60 + [0] * 40
    result = paired_bootstrap(Accuracy(), better, worse, references)
    assert result.difference == pytest.approx(0.3)
    # Each example contributes 1 with chance 0.3 and else 0: the standard error of the mean is √(0.3 · 0.7 / 100).
    error = math.sqrt(0.3 * 0.7 / 100)
    assert result.low == pytest.approx(0.3 - 1.96 * error, abs=0.02)
    assert result.high == pytest.approx(0.3 + 1.96 * error, abs=0.02)
    assert result.p == 0
    mirrored = paired_bootstrap(Accuracy(), worse, better, references)
    assert (mirrored.difference, mirrored.p) == (pytest.approx(-0.3), 0)


def test_systems_that_err_alike_are_not_told_apart():
    generator = np.random.default_rng(0)
    one, two = ((generator.random(200) < 0.5).astype(int).tolist() for _ in range(2))
    result = paired_bootstrap(Accuracy(), one, two, [1] * 200)
    assert result.low < 0 < result.high
    assert result.p > 0.05
    assert paired_bootstrap(Accuracy(), one, one, [1] * 200).p == 0.5
