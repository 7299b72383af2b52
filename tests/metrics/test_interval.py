"""Intervals over examples and over seeds, and the paired bootstrap."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scaling.config.schema import build
from scaling.metrics import Accuracy, bootstrap, over_seeds, paired_bootstrap


def test_the_interval_of_an_accuracy_is_the_binomials_and_wilsons_where_all_or_none_are_right():
    predictions = (np.random.default_rng(0).random(400) < 0.8).astype(int).tolist()
    interval, p = bootstrap(Accuracy(), predictions, [1] * 400)["accuracy"], np.mean(predictions)
    half = 1.96 * math.sqrt(p * (1 - p) / 400)
    assert (interval.low, interval.high) == pytest.approx((p - half, p + half), abs=0.01)
    for right, bounds in ((1, (0.9812, 1)), (0, (0, 0.0188))):
        interval = bootstrap(Accuracy(), [right] * 200, [1] * 200)["accuracy"]
        assert (interval.low, interval.high) == pytest.approx(bounds, abs=5e-5)
    spans = bootstrap(build("metric", "SQuAD2"), ["x", ""] * 50, [["x"], []] * 50)
    assert spans["f1"].low == pytest.approx(100 / 103.84, abs=1e-4)
    assert spans["unanswerable_accuracy"].low == pytest.approx(50 / 53.84, abs=1e-4)


@pytest.mark.parametrize("line", ["Correlation", "MCC", {"kind": "F1", "average": "macro"}])
def test_a_sample_scores_as_its_examples_would(line):
    """The values of weights are those of a list in which each example is as often as its weight."""
    generator = np.random.default_rng(3)
    references, predictions = generator.integers(0, 4, (2, 30)).astype(float)
    metric = build("metric", line)
    drawn = generator.integers(0, 30, (5, 30))
    weights = np.stack([np.bincount(one, minlength=30) for one in drawn]).astype(float)
    found = metric.weighted(metric.rows(list(predictions), list(references), None), weights)
    for index, one in enumerate(drawn):
        for name, value in metric.score(list(predictions[one]), list(references[one])).items():
            assert found[name][index] == pytest.approx(value, abs=1e-9)


def test_groups_are_drawn_whole():
    """All answers of a question are right or wrong together, so that a sample has a multiple of ten right."""
    groups = [index // 10 for index in range(100)]
    predictions = [1] * 50 + [0] * 50
    interval = bootstrap(build("metric", "MultiRC"), predictions, [1] * 100, groups, resamples=500)["exact_match"]
    assert interval.low < 0.35
    assert interval.high > 0.65


def test_an_interval_over_seeds_is_students():
    interval = over_seeds([0.8, 0.82, 0.84])
    half = 4.302652729911275 * 0.02 / math.sqrt(3)  # t of 2 degrees of freedom
    assert (interval.value, interval.low, interval.high) == pytest.approx((0.82, 0.82 - half, 0.82 + half))
    assert over_seeds([0.8]).low == -math.inf


def test_two_systems_are_told_apart_where_one_is_better():
    better, worse = [1] * 90 + [0] * 10, [1] * 60 + [0] * 40
    result = paired_bootstrap(Accuracy(), better, worse, [1] * 100)
    # Each example contributes 1 with chance 0.3 and else 0: the standard error of the mean is √(0.3 · 0.7 / 100).
    half = 1.96 * math.sqrt(0.3 * 0.7 / 100)
    assert (result.difference, result.p) == (pytest.approx(0.3), 0)
    assert (result.low, result.high) == pytest.approx((0.3 - half, 0.3 + half), abs=0.02)
    mirrored = paired_bootstrap(Accuracy(), worse, better, [1] * 100)
    assert (mirrored.difference, mirrored.p) == (pytest.approx(-0.3), 0)
    one, two = (np.random.default_rng(0).random((2, 200)) < 0.5).astype(int).tolist()
    alike = paired_bootstrap(Accuracy(), one, two, [1] * 200)
    assert alike.low < 0 < alike.high
    assert alike.p > 0.05
    assert paired_bootstrap(Accuracy(), one, one, [1] * 200).p == 0.5
