"""LSTMs against the formula in float64 numpy, document by document, and against torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from scaling.errors import ScalingError
from scaling.nn.context import Context, Places, render
from scaling.nn.embeddings import NoPosition
from scaling.nn.mixer import LSTM, BidirectionalLSTM
from scaling.nn.patterns import Bidirectional, Causal, Prefix
from scaling.shape import Shape

ROWS, LENGTH, WIDTH = 3, 9, 4
SHAPE = Shape.of({"width": WIDTH, "layers": 1, "heads": 1, "vocabulary": 8, "length": LENGTH})
PACKED = torch.tensor([[1] * 4 + [2] * 5, [1] * 9, [0] * 2 + [1] * 6 + [0]])


def context(pattern, documents=None, prefix=None) -> Context:
    places = Places.of(torch.zeros(ROWS, LENGTH), documents=documents, prefix=prefix)
    return Context(places, places, render(pattern, places, places), NoPosition(SHAPE, pattern))


def inputs() -> torch.Tensor:
    return torch.randn(ROWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def made(kind) -> Any:
    torch.manual_seed(0)
    piece = kind(SHAPE).double()
    for parameter in piece.parameters():
        torch.nn.init.normal_(parameter)
    return piece


def written(part: Any, x: np.ndarray) -> np.ndarray:
    """h of every token of one document."""
    into, back, shift = (p.detach().numpy() for p in (part.input.weight, part.recurrent.weight, part.shift))
    h, c, said = np.zeros(WIDTH), np.zeros(WIDTH), []
    for token in x:
        i, f, o, g = np.split(into @ token + back @ h + shift, 4)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        said.append(h)
    return np.array(said)


@pytest.mark.parametrize("pattern", [Causal(), Bidirectional()], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("kind", [LSTM, BidirectionalLSTM])
@pytest.mark.parametrize("documents", [None, PACKED], ids=["plain", "packed"])
def test_it_is_the_formula(kind, pattern, documents):
    if kind is BidirectionalLSTM and not pattern.ahead:
        pytest.skip("it looks ahead")
    piece, x = made(kind), inputs()
    found = piece(x, context(pattern, documents)).detach().numpy()
    labels = torch.ones(ROWS, LENGTH) if documents is None else documents
    weight, bias = piece.out.weight.detach().numpy(), piece.out.bias.detach().numpy()
    for row, name in ((row, name) for row in range(ROWS) for name in (1, 2)):
        here = (labels[row] == name).numpy()
        if here.any():
            own = x[row].numpy()[here]
            h = written(piece.forwards, own)
            if kind is BidirectionalLSTM:
                h = np.concatenate([h, written(piece.backwards, own[::-1])[::-1]], -1)
            np.testing.assert_allclose(found[row, here], h @ weight.T + bias, atol=1e-12)


def test_backwards_it_reads_the_prefix_only():
    piece, x = made(BidirectionalLSTM), inputs()
    prefix = torch.tensor([4, 1, 9])
    found = piece(x, context(Prefix(), prefix=prefix)).detach().numpy()
    weight, bias = piece.out.weight.detach().numpy(), piece.out.bias.detach().numpy()
    for row, n in enumerate(prefix.tolist()):
        own = x[row].numpy()
        alone = [written(piece.backwards, own[t : t + 1])[0] for t in range(n, LENGTH)]
        backwards = np.concatenate([written(piece.backwards, own[:n][::-1])[::-1], np.reshape(alone, (-1, WIDTH))])
        h = np.concatenate([written(piece.forwards, own), backwards], -1)
        np.testing.assert_allclose(found[row], h @ weight.T + bias, atol=1e-12)


def test_a_causal_stack_is_not_read_backwards():
    with pytest.raises(ScalingError, match="looks back only"):
        made(BidirectionalLSTM)(inputs(), context(Causal()))
