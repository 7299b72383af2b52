"""Block-local attention, BigBird and Longformer against dense masked attention written out in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from scaling.batch import Batch
from scaling.config import load
from scaling.cost import cost
from scaling.errors import ScalingError
from scaling.nn.context import Context, Places, render
from scaling.schema import build
from scaling.shape import Shape
from tests.model.test_variants import build as built_model
from tests.model.test_variants import hidden, tokens

LENGTH, HEADS, WIDTH = 21, 4, 24
SIZE = {"width": WIDTH, "layers": 1, "heads": HEADS, "vocabulary": 8, "length": LENGTH}
SHAPE = Shape.of(SIZE)


def run(line: dict[str, Any], pattern: str = "Bidirectional", documents: torch.Tensor | None = None):
    torch.manual_seed(0)
    mixer = build("mixer", line, SHAPE).double()
    x = torch.randn(1, LENGTH, WIDTH, dtype=torch.float64)
    places, limit = Places.of(torch.zeros(1, LENGTH), documents=documents), build("pattern", pattern)
    position = build("position", "NoPosition", SHAPE, limit)
    with torch.no_grad():
        return mixer, x[0].numpy(), mixer(x, Context(places, places, render(limit, places, places), position))[0]


def attention(x: np.ndarray, query: Any, key: Any, value: Any, allowed: np.ndarray) -> np.ndarray:
    """softmax(Q Kᵀ / √d + mask) V, head by head; `allowed` is [h t s]."""
    q, k, v = (x @ part.weight.detach().numpy().T for part in (query, key, value))
    heads = []
    for head, own in enumerate(np.split(np.arange(WIDTH), HEADS)):
        logits = np.where(allowed[head], q[:, own] @ k[:, own].T / np.sqrt(len(own)), -np.inf)
        weights = np.exp(logits - logits.max(1, keepdims=True))
        heads.append(weights / weights.sum(1, keepdims=True) @ v[:, own])
    return np.concatenate(heads, 1)


@pytest.mark.parametrize("pattern", ["Causal", "Bidirectional"])
def test_block_local_sees_its_blocks(pattern):
    mixer, x, found = run({"kind": "BlockLocal", "size": 4, "before": 1}, pattern)
    t, s = np.arange(LENGTH)[:, None], np.arange(LENGTH)
    allowed = (s // 4 <= t // 4) & (s // 4 >= t // 4 - 1) & ((s <= t) | (pattern == "Bidirectional"))
    expected = attention(x, mixer.query, mixer.key, mixer.value, np.stack([allowed] * HEADS))
    np.testing.assert_allclose(found, expected @ mixer.out.weight.detach().numpy().T, atol=1e-12)


@pytest.mark.parametrize("pattern", ["Causal", "Bidirectional"])
def test_big_bird_sees_its_window_the_first_blocks_and_drawn_ones(pattern):
    mixer, x, found = run({"kind": "BigBird", "block": 2, "blocks": 1, "random": 2, "seed": 5}, pattern)
    around = mixer.pattern(lambda: build("pattern", pattern))
    drawn, t, s = around.pattern.drawn(torch.arange(11)), np.arange(LENGTH)[:, None], np.arange(LENGTH)
    apart = s // 2 - t // 2
    near = (np.abs(apart) <= 1) if pattern == "Bidirectional" else (apart <= 0) & (apart >= -2)
    far = np.array([[bool((drawn[i // 2] == j // 2).any()) for j in range(LENGTH)] for i in range(LENGTH)])
    allowed = (near | far | (s < 2) | (t < 2)) & ((s <= t) | (pattern == "Bidirectional"))
    assert far.any()
    assert not (far & near).any()
    expected = attention(x, mixer.query, mixer.key, mixer.value, np.stack([allowed] * HEADS))
    np.testing.assert_allclose(found, expected @ mixer.out.weight.detach().numpy().T, atol=1e-12)


@pytest.mark.parametrize("documents", [None, [1] * 17 + [0] * 4, [0] * 3 + [1] * 18], ids=["plain", "padded", "behind"])
def test_longformer_sees_windows_and_its_global_tokens_see_all_by_own_projections(documents):
    line = {"kind": "Longformer", "window": 3, "dilation": 2, "tokens": 2}
    mixer, x, found = run(line, documents=None if documents is None else torch.tensor([documents]))
    real = np.array(documents or [1] * LENGTH, dtype=bool)
    place = np.cumsum(real) - 1
    apart = place - place[:, None]
    near = np.stack([np.isin(apart, [-2, 0, 2])] * HEADS) | (place < 2)
    local = attention(x, mixer.query, mixer.key, mixer.value, near & real | ~real[:, None])
    whole = attention(
        x, mixer.own.query, mixer.own.key, mixer.own.value, np.stack([real[None] | ~real[:, None]] * HEADS)
    )
    expected = np.where((place < 2)[:, None], whole, local) @ mixer.out.weight.detach().numpy().T
    np.testing.assert_allclose(found[real], expected[real], atol=1e-12)


def test_a_longformer_of_one_dilation_and_no_global_tokens_is_attention_under_a_window():
    line = "model.block.mixer={kind: Longformer, window: 5}"
    model, plain = (
        built_model("decoder", line),
        built_model("decoder", "model.pattern.kind=Window; model.pattern.size=5; model.pattern.pattern=Causal"),
    )
    batch = Batch(tokens(2, 20), tokens(2, 20))
    assert torch.equal(hidden(model, batch), hidden(plain, batch))


@pytest.mark.parametrize(
    "line",
    [
        "{kind: BlockLocal, size: 64}",
        "{kind: BigBird, block: 16, seed: 0}",
        "{kind: Longformer, window: 64, tokens: 4}",
        "{kind: Longformer, window: 32, dilation: 4}",
    ],
)
def test_operations_grow_with_the_length_and_less_than_those_of_the_square(line):
    def of_mixers(length: int, mixer: str) -> float:
        size = f"size={{width: 32, layers: 2, heads: 4, vocabulary: 61, length: {length}}}"
        counts = cost(load("encoder", [size, f"model.block.mixer={mixer}"]))
        return counts.flops_train_by_slot["mixer"]

    short, long = of_mixers(1024, line), of_mixers(4096, line)
    assert long == 4 * short
    assert long < 0.3 * of_mixers(4096, "Attention")


def test_global_tokens_in_a_stack_that_looks_back_are_one_line():
    with pytest.raises(ScalingError, match="tokens=2: a stack that looks back only has no tokens that see the whole"):
        run({"kind": "Longformer", "window": 3, "tokens": 2}, "Causal")
