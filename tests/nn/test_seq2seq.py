"""The pieces of recurrent and convolutional encoder-decoders against their formulas, in float64 numpy."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

from scaling.nn.blocks import NoNorm
from scaling.nn.channels import ReLU
from scaling.nn.context import Context, Mask, Places, render
from scaling.nn.embeddings import NoPosition
from scaling.nn.mixer import (
    GRU,
    AdditiveAttention,
    Aligned,
    BidirectionalGRU,
    DilatedConvolution,
    GatedConvolution,
    MultiplicativeAttention,
)
from scaling.nn.patterns import Bidirectional, Causal
from scaling.shape import Shape

ROWS, LENGTH, WIDTH, SOURCE = 2, 7, 4, 5
SHAPE = Shape.of({"width": WIDTH, "layers": 1, "heads": 1, "vocabulary": 8, "length": LENGTH})
SEEN = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])  # source tokens that are no padding


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def context(pattern: Any, execution: int = 0) -> Context:
    places = Places.of(torch.zeros(ROWS, LENGTH))
    made = Context(places, places, render(pattern, places, places), NoPosition(SHAPE, pattern), execution=execution)
    made.memories = (drawn(ROWS, SOURCE, WIDTH, seed=1),)
    made.memory_mask = Mask((SEEN > 0)[:, None, :].expand(-1, LENGTH, -1))
    return made


def made(kind: Any) -> Any:
    torch.manual_seed(0)
    piece = kind(SHAPE).double()
    for parameter in piece.parameters():
        nn.init.normal_(parameter)
    return piece


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def affine(linear: nn.Linear, x: np.ndarray) -> np.ndarray:
    y = x @ linear.weight.detach().numpy().T
    return y if linear.bias is None else y + linear.bias.detach().numpy()


def written(part: Any, x: np.ndarray) -> np.ndarray:
    """h of every token of one text, by a GRU."""
    h, states = np.zeros(WIDTH), []
    for token in x:
        (r, z, n), (r_h, z_h, n_h) = (np.split(affine(m, v), 3) for m, v in ((part.input, token), (part.recurrent, h)))
        z, n = sigmoid(z + z_h), np.tanh(n + sigmoid(r + r_h) * n_h)
        h = (1 - z) * n + z * h
        states.append(h)
    return np.array(states)


def test_a_gru_is_the_formula_and_torchs():
    piece, x = made(GRU), drawn(ROWS, LENGTH, WIDTH)
    found = piece(x, context(Causal()))
    for row in range(ROWS):
        expected = affine(piece.out, written(piece.forwards, x[row].numpy()))
        np.testing.assert_allclose(found[row].detach().numpy(), expected, atol=1e-12)
    theirs = cast(Any, nn.GRU(WIDTH, WIDTH, batch_first=True).double())
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(piece.forwards.input.weight)
        theirs.weight_hh_l0.copy_(piece.forwards.recurrent.weight)
        theirs.bias_ih_l0.copy_(piece.forwards.input.bias)
        theirs.bias_hh_l0.copy_(piece.forwards.recurrent.bias)
    torch.testing.assert_close(found, piece.out(theirs(x)[0]), rtol=0, atol=1e-12)


def test_a_bidirectional_gru_reads_backwards_too():
    piece, x = made(BidirectionalGRU), drawn(ROWS, LENGTH, WIDTH)
    found = piece(x, context(Bidirectional()))[0].detach().numpy()
    own = x[0].numpy()
    h = np.concatenate([written(piece.forwards, own), written(piece.backwards, own[::-1])[::-1]], -1)
    np.testing.assert_allclose(found, affine(piece.out, h), atol=1e-12)


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


@pytest.mark.parametrize("line", ["additive", "general", "dot", "context"])
def test_attention_of_one_head_is_the_formula(line):
    kinds = {
        "additive": AdditiveAttention,
        "general": MultiplicativeAttention,
        "dot": partial(MultiplicativeAttention, score="dot"),
        "context": partial(MultiplicativeAttention, output="context"),
    }
    piece, x, now = made(kinds[line]), drawn(ROWS, LENGTH, WIDTH), context(Causal())
    shown: list[torch.Tensor] = []
    now.weights = shown.append
    found = piece(x, now).detach().numpy()
    for row in range(ROWS):
        memory = now.memory[row].numpy()[: int(SEEN[row].sum())]
        for t in range(LENGTH):
            token = x[row, t].numpy()
            if line == "additive":
                inner = np.tanh(affine(piece.query, token) + affine(piece.key, memory))
                weights = softmax(inner @ piece.score.weight.detach().numpy()[0])
            else:
                weights = softmax(memory @ (token if line == "dot" else affine(piece.query, token)))
            c = weights @ memory
            joined = line in ("general", "dot")
            expected = np.tanh(affine(piece.out, np.concatenate([c, token]))) if joined else affine(piece.out, c)
            np.testing.assert_allclose(found[row, t], expected, atol=1e-12)
            np.testing.assert_allclose(shown[0][row, 0, t, : len(weights)].detach().numpy(), weights, atol=1e-12)


def test_aligned_reads_the_source_token_of_its_own_place():
    piece, x, now = made(Aligned), drawn(ROWS, LENGTH, WIDTH), context(Causal())
    found = piece(x, now).detach().numpy()
    for row in range(ROWS):
        for t in range(LENGTH):
            there = now.memory[row, t].numpy() if t < int(SEEN[row].sum()) else np.zeros(WIDTH)
            expected = affine(piece.out, np.concatenate([there, x[row, t].numpy()]))
            np.testing.assert_allclose(found[row, t], expected, atol=1e-12)


@pytest.mark.parametrize("pattern", [Causal(), Bidirectional()], ids=["causal", "bidirectional"])
def test_a_gated_convolution_is_the_formula(pattern):
    piece, x = made(GatedConvolution), drawn(ROWS, LENGTH, WIDTH)
    found = piece(x, context(pattern))[0].detach().numpy()
    own = np.pad(x[0].numpy(), ((1, 1), (0, 0)) if pattern.ahead else ((2, 0), (0, 0)))
    near = np.stack([own[t : t + 3].ravel() for t in range(LENGTH)])
    np.testing.assert_allclose(found, affine(piece.out, near) * sigmoid(affine(piece.gate, near)), atol=1e-12)


@pytest.mark.parametrize("execution", [0, 1, 2])
def test_a_dilated_convolution_looks_back_by_its_layers_dilation(execution):
    kind = partial(DilatedConvolution, activation=ReLU, norm=lambda width: NoNorm(width), dilations=[1, 3])
    piece, x = made(kind), drawn(ROWS, LENGTH, WIDTH)
    found = piece(x, context(Causal(), execution))[0].detach().numpy()
    r = (1, 3)[execution % 2]
    u = np.pad(np.maximum(affine(piece.down, np.maximum(x[0].numpy(), 0)), 0), ((2 * r, 0), (0, 0)))
    near = np.stack([np.concatenate([u[t], u[t + r], u[t + 2 * r]]) for t in range(LENGTH)])
    np.testing.assert_allclose(found, affine(piece.out, np.maximum(affine(piece.taps, near), 0)), atol=1e-12)
