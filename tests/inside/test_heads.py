"""Scores of heads, on maps whose scores are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scaling.inside.heads import Map, scores

T = 8


def of(weights: np.ndarray, slot: str = "mixer") -> Map:
    return Map("decoder.stack.blocks.0", "decoder", 0, slot, weights[None])


def previous() -> np.ndarray:
    weights = np.eye(T, k=-1)
    weights[0, 0] = 1
    return weights


def test_a_head_that_looks_at_the_token_before() -> None:
    (score,) = scores([of(previous())])
    assert score["previous"] == score["positional"] == 1.0
    assert score["offset"] == -1
    assert score["entropy"] == pytest.approx(0, abs=1e-12)
    assert score["distance"] == pytest.approx((T - 1) / T)


def test_a_head_that_looks_everywhere_alike() -> None:
    (score,) = scores([of(np.full((T, T), 1 / T))])
    assert score["entropy"] == pytest.approx(math.log(T))
    assert score["previous"] == pytest.approx(1 / T)
    assert score["distance"] == pytest.approx(np.abs(np.subtract.outer(np.arange(T), np.arange(T))).mean())


def test_induction_is_the_weight_of_what_followed() -> None:
    half = T // 2
    weights = previous()
    for row in range(half, T):
        weights[row] = np.eye(T)[row - half + 1]
    (score,) = scores([of(previous())], [of(weights)])
    assert score["induction"] == 1.0
    (score,) = scores([of(previous())], [of(previous())])
    assert score["induction"] == 0.0


def test_a_cross_attention_has_no_distances() -> None:
    (score,) = scores([of(np.full((T, 3), 1 / 3), "cross")])
    assert score["entropy"] == pytest.approx(math.log(3))
    assert score["distance"] is score["previous"] is score["induction"] is None
