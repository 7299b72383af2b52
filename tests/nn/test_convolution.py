"""Convolutions against their formulas, written out token by token in float64 numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scaling.nn.context import Context, Places, render
from scaling.nn.embeddings import NoPosition
from scaling.nn.mixer import Convolution, DynamicConvolution, LightweightConvolution
from scaling.nn.patterns import Bidirectional, Causal, Prefix
from scaling.shape import Shape

ROWS, LENGTH, WIDTH = 3, 11, 6
SHAPE = Shape.of({"width": WIDTH, "layers": 1, "heads": 2, "vocabulary": 8, "length": LENGTH})
PACKED = torch.tensor([[1] * 4 + [2] * 7, [1] * 11, [0] * 2 + [1] * 6 + [0] * 3])
PREFIX = torch.tensor([2, 5, 0])
PATTERNS = {"causal": Causal(), "bidirectional": Bidirectional(), "prefix": Prefix()}


def context(pattern, documents=None, cache=None, start=0, length=LENGTH) -> Context:
    tokens = torch.zeros(ROWS, length, dtype=torch.long)
    prefix = PREFIX if isinstance(pattern, Prefix) else None
    places = Places.of(tokens, documents=documents, prefix=prefix, start=start)
    keys = places if cache is None else places.after(cache.places)
    return Context(places, keys, render(pattern, places, keys), NoPosition(SHAPE, pattern), cache=cache)


def inputs() -> torch.Tensor:
    return torch.randn(ROWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


def linear(layer: torch.nn.Linear, x: np.ndarray) -> np.ndarray:
    return x @ numpy(layer.weight).T + (0 if layer.bias is None else numpy(layer.bias))


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(0))
    return e / e.sum(0)


def windows(u: np.ndarray, kernel: int, pattern: str, documents) -> np.ndarray:
    """x_{t+j} for every row, token and neighbour, zero where t may not see t + j."""
    ahead = 0 if pattern == "causal" else kernel // 2
    out = np.zeros((*u.shape[:2], kernel, u.shape[2]))
    for b in range(ROWS):
        row = None if documents is None else documents[b].tolist()
        for t in range(LENGTH):
            first = 0 if row is None else row.index(row[t]) if row[t] else t
            for slot, s in enumerate(range(t + ahead - kernel + 1, t + ahead + 1)):
                seen = 0 <= s < LENGTH and (row is None or row[s] == row[t] > 0)
                if pattern == "prefix":
                    seen = seen and (s <= t or s - first < PREFIX[b])
                if seen:
                    out[b, t, slot] = u[b, s]
    return out


@pytest.fixture(params=PATTERNS)
def pattern(request):
    return request.param


@pytest.fixture(params=[None, PACKED], ids=["plain", "packed"])
def documents(request):
    return request.param


@pytest.mark.parametrize("kernel", [1, 4, 5, 30])
def test_lightweight_is_the_papers(pattern, documents, kernel):
    piece, x = LightweightConvolution(SHAPE, kernel=kernel).double(), inputs()
    torch.nn.init.normal_(piece.shift)
    u = linear(piece.hidden, numpy(x)) / (1 + np.exp(-linear(piece.gate, numpy(x))))
    weights = softmax(numpy(piece.taps))
    mixed = np.einsum("btkw,kw->btw", windows(u, kernel, pattern, documents), weights) + numpy(piece.shift)
    expected = linear(piece.out, linear(piece.pointwise, mixed))
    found = piece(x, context(PATTERNS[pattern], documents))
    np.testing.assert_allclose(numpy(found), expected, atol=1e-12)


@pytest.mark.parametrize("kernel", [1, 4, 5])
def test_dynamic_is_the_papers(pattern, documents, kernel):
    piece, x = DynamicConvolution(SHAPE, kernel=kernel).double(), inputs()
    torch.nn.init.normal_(piece.shift)
    u = linear(piece.hidden, numpy(x)) / (1 + np.exp(-linear(piece.gate, numpy(x))))
    logits = np.stack([u @ numpy(piece.taps.weight)[j * WIDTH : (j + 1) * WIDTH].T for j in range(kernel)]) + numpy(
        piece.taps.bias
    ).reshape(kernel, 1, 1, WIDTH)
    weights = softmax(logits)
    mixed = np.einsum("btkw,kbtw->btw", windows(u, kernel, pattern, documents), weights) + numpy(piece.shift)
    expected = linear(piece.out, linear(piece.pointwise, mixed))
    found = piece(x, context(PATTERNS[pattern], documents))
    np.testing.assert_allclose(numpy(found), expected, atol=1e-12)


@pytest.mark.parametrize("kernel", [1, 4, 5])
def test_convolution_is_the_formula(pattern, documents, kernel):
    piece, x = Convolution(SHAPE, kernel=kernel).double(), inputs()
    weight = numpy(piece.out.weight).reshape(WIDTH, kernel, WIDTH)
    near = windows(numpy(x), kernel, pattern, documents)
    expected = np.einsum("btkw,okw->bto", near, weight) + numpy(piece.out.bias)
    found = piece(x, context(PATTERNS[pattern], documents))
    np.testing.assert_allclose(numpy(found), expected, atol=1e-12)
