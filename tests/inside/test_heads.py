"""Scores of heads, on maps whose scores are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scaling.errors import ScalingError
from scaling.inside.heads import Map, alignment, scores

T = 8


def of(weights: np.ndarray, slot: str = "mixer") -> Map:
    return Map("decoder.stack.blocks.0", "decoder", 0, slot, "attention", weights[None])


def previous() -> np.ndarray:
    weights = np.eye(T, k=-1)
    weights[0, 0] = 1
    return weights


def test_a_head_that_looks_at_the_token_before() -> None:
    (score,) = scores([of(previous())])
    assert score.previous == score.positional == 1.0
    assert score.offset == -1
    assert score.entropy == pytest.approx(0, abs=1e-12)
    assert score.distance == pytest.approx((T - 1) / T)


def test_a_head_that_looks_everywhere_alike() -> None:
    (score,) = scores([of(np.full((T, T), 1 / T))])
    assert score.entropy == pytest.approx(math.log(T))
    assert score.previous == pytest.approx(1 / T)
    assert score.distance == pytest.approx(np.abs(np.subtract.outer(np.arange(T), np.arange(T))).mean())


def test_induction_is_the_weight_of_what_followed() -> None:
    half = T // 2
    weights = previous()
    for row in range(half, T):
        weights[row] = np.eye(T)[row - half + 1]
    (score,) = scores([of(previous())], [of(weights)])
    assert score.induction == 1.0
    (score,) = scores([of(previous())], [of(previous())])
    assert score.induction == 0.0


def test_a_cross_attention_has_no_distances() -> None:
    (score,) = scores([of(np.full((T, 3), 1 / 3), "cross")])
    assert score.entropy == pytest.approx(math.log(3))
    assert score.distance is score.previous is score.induction is score.copied is None
    assert score.coverage == 1.0  # the T queries give each of the three T/3


def test_coverage_and_copying_of_a_cross_attention() -> None:
    tokens = {"encoder": [7, 8, 9, 5], "decoder": [0, 8, 3, 7]}  # writes 8, which is the second, 3, and 7, the first
    weights = np.array([[0.1, 0.6, 0.3, 0.0], [0.2, 0.2, 0.6, 0.0], [0.9, 0.1, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    (score,) = scores([of(weights, "cross")], tokens=tokens)
    assert score.coverage == pytest.approx((1.0 + 0.9 + 0.9 + 0.0) / 4)
    assert score.copied == pytest.approx((0.6 + 0.9) / 2)
    assert alignment(
        [of(weights, "cross"), of(weights[:, ::-1], "cross"), of(weights[:2], "cross")], 4, 4
    ) == pytest.approx((weights + weights[:, ::-1])[:-1] / 2)
    with pytest.raises(ScalingError, match="no cross-attention"):
        alignment([of(previous())], T, T)
