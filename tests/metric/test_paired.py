"""The paired bootstrap, and BLEU as Vaswani et al. scored English to German, on cases worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scaling.metric import BLEU, Accuracy, CompoundSplitBLEU, paired_bootstrap


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


def test_compounds_are_split_before_ngrams_are_counted():
    """`a-b c` against `a-d c`: 13a keeps `a-b` whole, so 1 of 2 words is right; split into 4 tokens, 3 of 4 are."""
    hypothesis, reference = ["x-ray of a well-known man"], [["x-ray of a well-paid man"]]
    # tokens: x ##AT##-##AT## ray of a well ##AT##-##AT## known man: 9; right 1-grams 8, 2-grams 6, 3-grams 5, 4-grams 4
    expected = 100 * math.exp(sum(math.log(value) for value in (8 / 9, 6 / 8, 5 / 7, 4 / 6)) / 4)
    scores = CompoundSplitBLEU().score(hypothesis, reference)
    assert scores == {"bleu_compound_split": pytest.approx(expected)}
    plain = BLEU().score(hypothesis, reference)["bleu"]
    # x-ray of a well-known man: 5 tokens; right 4, 2, 1 and none, which is smoothed to 1/2 of 2
    assert plain == pytest.approx(100 * math.exp(sum(map(math.log, (4 / 5, 2 / 4, 1 / 3, 1 / 4))) / 4))
    assert "tok:none" in CompoundSplitBLEU().signature(reference)
    assert CompoundSplitBLEU().signature(reference).endswith("|before:13a,compound-split")
