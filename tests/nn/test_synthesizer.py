"""Synthesizers against their formulas in float64 numpy, written row by row and head by head."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from scaling.errors import ScalingError
from scaling.nn.context import Context, Places, render
from scaling.nn.mixer import DenseSynthesizer, FactorizedSynthesizer, RandomSynthesizer
from scaling.nn.patterns import Bidirectional, Causal
from scaling.schema import build
from scaling.shape import Shape

ROWS, LENGTH, HEADS, WIDTH = 3, 9, 2, 8
SHAPE = Shape.of({"width": WIDTH, "layers": 1, "heads": HEADS, "head_width": 5, "vocabulary": 8, "length": LENGTH})
PACKED = torch.tensor([[1] * 4 + [2] * 5, [1] * 9, [0] * 2 + [1] * 6 + [0]])
KINDS = (DenseSynthesizer, RandomSynthesizer, FactorizedSynthesizer)
VARIANTS = list(itertools.product(KINDS, ("none", "plus", "alpha")))


def context(pattern, position="NoPosition", documents=None, cache=None, start=0, length=LENGTH) -> Context:
    places = Places.of(torch.zeros(ROWS, length), documents=documents, start=start)
    keys = places if cache is None else places.after(cache.places)
    torch.manual_seed(1)
    hooks = build("position", position, SHAPE, pattern).double()
    return Context(places, keys, render(pattern, places, keys), hooks, cache=cache)


def inputs() -> torch.Tensor:
    return torch.randn(ROWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


def made(kind, mix: str, **keys):
    torch.manual_seed(0)
    piece = kind(SHAPE, mix=mix, length=LENGTH + 3, **keys).double()
    if piece.share is not None:
        torch.nn.init.constant_(piece.share, 0.7)
    return piece


def heads(part, x: np.ndarray) -> np.ndarray:
    return (x @ numpy(part.weight).T).reshape(len(x), HEADS, 5)


def synthetic(piece, x: np.ndarray, h: int) -> np.ndarray:
    """R of one head for tokens at positions 0 … n − 1."""
    n = len(x)
    if isinstance(piece, DenseSynthesizer):
        return np.maximum(heads(piece.query, x)[:, h], 0) @ numpy(piece.columns.weight)[:n].T
    if isinstance(piece, RandomSynthesizer):
        return numpy(piece.table)[:n, h, :n]
    return numpy(piece.rows)[:n, h] @ numpy(piece.columns)[:n, h].T


def document(piece, x: np.ndarray, causal: bool, bias: np.ndarray) -> np.ndarray:
    """The layer on one document, [n w]."""
    v, mixed = heads(piece.value, x), []
    for h in range(HEADS):
        logits = synthetic(piece, x, h)
        if piece.key is not None:
            dots = heads(piece.query, x)[:, h] @ heads(piece.key, x)[:, h].T / np.sqrt(5)
            share = 1 / (1 + np.exp(-0.7))
            logits = logits + dots if piece.share is None else share * logits + (1 - share) * dots
        logits = logits + bias[h]
        if causal:
            logits = np.where(np.tri(len(x)) > 0, logits, -np.inf)
        e = np.exp(logits - logits.max(-1, keepdims=True))
        mixed.append(e / e.sum(-1, keepdims=True) @ v[:, h])
    return np.concatenate(mixed, -1) @ numpy(piece.out.weight).T


@pytest.mark.parametrize(("kind", "mix"), VARIANTS)
@pytest.mark.parametrize("position", ["NoPosition", "RelativeBias"])
@pytest.mark.parametrize("pattern", [Causal(), Bidirectional()], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("documents", [None, PACKED], ids=["plain", "packed"])
def test_it_is_the_papers(kind, mix, position, pattern, documents):
    piece, x, now = made(kind, mix), inputs(), context(pattern, position, documents)
    found = numpy(piece(x, now))
    labels = np.ones((ROWS, LENGTH)) if documents is None else numpy(documents)
    for row, name in ((row, name) for row in range(ROWS) for name in (1, 2)):
        here = labels[row] == name
        if not here.any():
            continue
        places = torch.arange(int(here.sum()))[None]
        bias = np.zeros((HEADS, len(places[0]), len(places[0])))
        if position == "RelativeBias":
            bias = numpy(now.position.score(x, x, places, places))[0]
        expected = document(piece, numpy(x)[row, here], not pattern.ahead, bias)
        np.testing.assert_allclose(found[row, here], expected, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_beyond_the_positions_is_refused(kind):
    piece, x = kind(SHAPE).double(), torch.zeros(ROWS, LENGTH + 1, WIDTH, dtype=torch.float64)
    with pytest.raises(ScalingError, match="longer than the 9 synthetic positions"):
        piece(x, context(Causal(), length=LENGTH + 1))
    padded = torch.tensor([[0] + [1] * LENGTH] * ROWS)  # one token more, and no position more
    assert piece(x, context(Causal(), documents=padded, length=LENGTH + 1)).isfinite().all()
    with pytest.raises(ScalingError, match="longer than the 4 synthetic positions"):
        kind(SHAPE, length=4)


def test_a_position_that_reads_queries_wants_queries():
    now = context(Causal(), "Shaw")
    with pytest.raises(ScalingError, match="Shaw reads queries and keys, and RandomSynthesizer has none"):
        made(RandomSynthesizer, "none")(inputs(), now)
    assert made(RandomSynthesizer, "plus")(inputs(), now).isfinite().all()
