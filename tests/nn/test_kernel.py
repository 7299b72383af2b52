"""Attention by a kernel against its formula in float64 numpy, document by document; and what it keeps and draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from scaling.config import load
from scaling.cost import cost
from scaling.errors import ScalingError
from scaling.nn.context import Cache, Context, Places, render
from scaling.nn.mixer import Performer, linear_attention
from scaling.schema import build
from scaling.shape import Shape

ROWS, LENGTH, HEADS, WIDTH = 3, 23, 2, 12
SHAPE = Shape.of({"width": WIDTH, "layers": 1, "heads": HEADS, "vocabulary": 8, "length": LENGTH})
PACKED = torch.tensor([[1] * 9 + [2] * 2 + [3] * 12, [1] * 23, [0] * 2 + [1] * 17 + [0] * 4])
LINES: dict[str, dict[str, Any]] = {
    "LinearAttention": {"kind": "LinearAttention"},
    "Performer": {"kind": "Performer", "features": 10, "seed": 2},
}


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch):
    monkeypatch.setattr(linear_attention, "CHUNK", 4)


def context(pattern: str = "Causal", documents: torch.Tensor | None = None, position: str = "NoPosition") -> Context:
    sees = build("pattern", pattern)
    places = Places.of(torch.zeros(ROWS, LENGTH), documents=documents)
    return Context(places, places, render(sees, places, places), build("position", position, SHAPE, sees))


def made(name: str) -> Any:
    torch.manual_seed(0)
    return build("mixer", LINES[name], SHAPE).double()


def inputs() -> torch.Tensor:
    return torch.randn(ROWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def phi(name: str, x: np.ndarray) -> np.ndarray:
    if name == "LinearAttention":
        return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))
    rows = linear_attention._orthogonal(10, x.shape[-1], 2, 0, 0).numpy()
    x = x / x.shape[-1] ** 0.25
    return np.exp(x @ rows.T - (x**2).sum(-1, keepdims=True) / 2) / np.sqrt(10)


def written(name: str, piece: Any, x: np.ndarray, causal: bool) -> np.ndarray:
    """One document, pair by pair."""
    q, k, v = (x @ part.weight.detach().numpy().T for part in (piece.query, piece.key, piece.value))
    heads = []
    for own in np.split(np.arange(WIDTH), HEADS):
        weights = phi(name, q[:, own]) @ phi(name, k[:, own]).T
        weights = np.tril(weights) if causal else weights
        heads.append(weights / weights.sum(1, keepdims=True) @ v[:, own])
    return np.concatenate(heads, 1) @ piece.out.weight.detach().numpy().T


@pytest.mark.parametrize("documents", [None, PACKED], ids=["plain", "packed"])
@pytest.mark.parametrize("pattern", ["Causal", "Bidirectional"])
@pytest.mark.parametrize("name", LINES)
def test_it_is_the_formula(name, pattern, documents):
    piece, x = made(name), inputs()
    found = piece(x, context(pattern, documents)).detach().numpy()
    numbers = np.ones((ROWS, LENGTH)) if documents is None else documents.numpy()
    for row, own in enumerate(numbers):
        for document in set(own) - {0}:
            places = own == document
            expected = written(name, piece, x[row].numpy()[places], pattern == "Causal")
            np.testing.assert_allclose(found[row][places], expected, atol=1e-10)


@pytest.mark.parametrize("documents", [None, PACKED], ids=["plain", "packed"])
@pytest.mark.parametrize("name", LINES)
def test_generation_keeps_sums_alone(name, documents):
    piece, x, whole, start = made(name).eval(), inputs(), context(documents=documents), 0
    expected, cache, sizes = piece(x, whole), Cache(), []
    for length in (6, 1, 1, 9, 6):
        own = None if documents is None else documents[:, start : start + length]
        positions = whole.places.positions[:, start : start + length]
        places = Places(positions, own)
        keys = places.after(cache.places)
        step = Context(places, keys, render(build("pattern", "Causal"), places, keys), whole.position, cache=cache)
        found = piece(x[:, start : start + length], step)
        real = torch.ones(ROWS, length) if own is None else own
        torch.testing.assert_close(found[real > 0], expected[:, start : start + length][real > 0], rtol=0, atol=1e-10)
        cache.places, start = keys, start + length
        sizes.append(sum(tensor.numel() for state in cache.states.values() for tensor in state.values()))
    assert len(set(sizes)) == 1


def test_the_error_of_a_performer_falls_with_the_root_of_its_features():
    draw = torch.Generator().manual_seed(0)
    # Longer vectors need many more features before the law of large numbers holds.
    q, k, v = (torch.randn(1, 64, 1, 16, generator=draw, dtype=torch.float64) / 2 for _ in range(3))
    exact = (q[0, :, 0] @ k[0, :, 0].T / 4).softmax(-1) @ v[0, :, 0]
    counts, errors = (32, 128, 512, 2048), []
    shape = Shape.of({"width": 16, "layers": 1, "heads": 1, "vocabulary": 8, "length": 64})
    for count in counts:
        squares = []
        for seed in range(16):
            piece = Performer(shape, features=count, seed=seed).double()
            found = piece._averaged(*piece.features(q, k, context("Bidirectional")), v, context("Bidirectional"))
            squares.append((found[0, :, 0] - exact).square().mean().item())
        errors.append(np.sqrt(np.mean(squares)))
    slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.1)


def test_a_draw_is_a_function_of_the_step_and_evaluation_uses_the_first():
    piece = Performer(SHAPE, features=6, redraw=10).double()
    x = inputs()

    def at(step: int, train: bool) -> torch.Tensor:
        piece.train(train).at_step(step)
        return piece(x, context())

    assert torch.equal(at(0, True), at(9, True))
    assert not torch.equal(at(9, True), at(10, True))
    again = at(57, True)
    assert torch.equal(at(3, False), at(57, False))
    assert torch.equal(at(57, True), again)
    fixed = Performer(SHAPE, features=6, redraw=None)
    fixed.at_step(1000)
    assert fixed.draw == 0


@pytest.mark.parametrize("name", LINES)
def test_operations_grow_with_the_length(name, monkeypatch):
    monkeypatch.setattr(linear_attention, "CHUNK", 64)

    def of_mixers(family: str, length: int) -> float:
        size = f"size={{width: 32, layers: 1, heads: 2, vocabulary: 61, length: {length}}}"
        line = {"LinearAttention": "LinearAttention", "Performer": "{kind: Performer, features: 32}"}[name]
        changes = [size, f"model.block.mixer={line}", "model.position=NoPosition"]
        return cost(load(family, changes)).flops_train_by_slot["mixer"]

    for family in ("encoder", "decoder"):
        assert of_mixers(family, 4096) == 4 * of_mixers(family, 1024)
    assert of_mixers("decoder", 4096) > of_mixers("encoder", 4096)


@pytest.mark.parametrize("name", LINES)
def test_what_has_no_sums_is_one_line(name):
    piece = made(name)
    with pytest.raises(ScalingError, match="the pattern Prefix is neither"):
        piece(inputs(), context("Prefix"))
    with pytest.raises(ScalingError, match=f"model.position: ALiBi adds to logits of pairs, and {name} has none"):
        piece(inputs(), context(position="ALiBi"))
    with pytest.raises(ScalingError, match="features=0: expected a positive whole number"):
        build("mixer", {"kind": "Performer", "features": 0}, SHAPE)
