"""Norms, residuals, the Evolved Transformer's blocks, experts and product keys against their papers in float64."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false
from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from scaling.base.batch import Batch
from scaling.config.compose import load
from scaling.model.blocks import GRU, Fixup, LayerNorm, NoNorm, ReZero
from scaling.model.channels import imbalance
from scaling.model.parameters import parameters
from scaling.training.parametrization import T5, Standard, initialise
from tests.pieces.formulas import affine, array, context, draw, made, shape, sigmoid

SHAPE = shape(8, 8)
X = draw(2, 8, 8)


def normed(x: np.ndarray, norm: Any) -> np.ndarray:
    if isinstance(norm, NoNorm):
        return x
    x = x - x.mean(-1, keepdims=True) if isinstance(norm, LayerNorm) else x
    bias = array(norm.bias) if isinstance(norm, LayerNorm) else 0
    gain = 1 if norm.gain is None else array(norm.gain) + norm.around
    return gain * x / np.sqrt((x**2).mean(-1, keepdims=True) + norm.eps) + bias


class Piece(nn.Module):
    """A piece that needs no context."""

    def __init__(self, function: Any = lambda x: 2 * x**2):
        super().__init__()
        self.function = function

    def forward(self, x, context):
        return self.function(x)


def test_rezero_fixup_and_the_gates_of_a_universal_transformer_are_their_formulas():
    rezero, fixup = (kind(SHAPE, lambda: LayerNorm(8), Piece()).double() for kind in (ReZero, Fixup))
    now = context(SHAPE, rows=2)
    assert torch.equal(rezero(X, now), X)
    torch.testing.assert_close(fixup(X, now), X + 2 * fixup.norm(X) ** 2)
    for parameter, value in ((rezero.alpha, 0.3), (fixup.shift, 0.1), (fixup.scale, 0.7), (fixup.offset, -0.2)):
        parameter.data.fill_(value)
    torch.testing.assert_close(rezero(X, now), X + 0.3 * 2 * rezero.norm(X) ** 2)
    torch.testing.assert_close(fixup(X, now), X + 0.7 * 2 * (fixup.norm(X) + 0.1) ** 2 - 0.2)
    piece: Any = nn.Linear(8, 8).double()
    gated: Any = GRU(SHAPE, lambda: NoNorm(8), Piece(piece)).double()
    h, y = array(X), affine(piece, array(X))
    u, r = (sigmoid(affine(part, np.concatenate([h, y], -1))) for part in (gated.gate.update, gated.gate.reset))
    candidate = sigmoid(affine(gated.gate.candidate, np.concatenate([r * h, y], -1)))
    np.testing.assert_allclose(array(gated(X, now)), h + (1 - u) * y + u * candidate, rtol=1e-12)


SIZE = "size={width: 32, layers: 3, heads: 4, vocabulary: 61, length: 24}"
BARE = ["model.block.norm=NoNorm", "model.stack.norm=NoNorm"]


def started(*changes: str, parametrization: Any = None, family: str = "encoder_decoder") -> Any:
    config = load(family, [SIZE, *BARE, *changes])
    return initialise(config.build("model", config["size"]), parametrization or T5(), 0)


@pytest.mark.parametrize("residual", ["ReZero", "Fixup"])
def test_a_model_starts_as_the_identity(residual):
    model, seen = started(f"model.block.residual={residual}"), []
    tokens = torch.randint(0, 61, (2, 6), generator=torch.Generator().manual_seed(0))
    with model.decoder.embedding.register_forward_hook(lambda *call: seen.append(call[-1])):
        assert torch.equal(model(Batch(tokens, tokens, source=tokens)).hidden, seen[0])


def test_the_rules_of_fixup_act():
    fixup, plain = (
        {spec.name: p for spec, p in parameters(started(*residual, "model.tie=[]"))}
        for residual in (["model.block.residual=Fixup"], [])
    )
    branches = 3 * 2 + 3 * 3
    for name, parameter in fixup.items():
        kind = name.split(".")[-2]
        if kind == "out" or name == "head.weight":
            assert not parameter.any(), name
        elif kind in ("query", "key", "value"):  # four matrices with `out`
            torch.testing.assert_close(parameter, plain[name] * branches ** (-1 / 6))
        elif kind == "hidden" and parameter.ndim == 2:  # two
            torch.testing.assert_close(parameter, plain[name] * branches ** (-1 / 2))
        elif parameter.ndim > 1:
            assert torch.equal(parameter, plain[name]), name
    line = ["model.block.residual=Fixup", "model.block.channel={kind: Gated, activation: Swish}"]
    for further in ([], ["model.stack.distinct=1"]):  # a shared block counts each of its runs
        model = started(*line, *further, family="decoder", parametrization=Standard())
        each = [spec for spec, _ in parameters(model) if ".channel.piece." in spec.name]
        start = {spec.name.split(".")[-2]: spec.start for spec in each}
        assert start == {"gate": 6 ** (-1 / 4), "hidden": 6 ** (-1 / 4), "out": 0.0}


# Experts

ROWS, LENGTH, EXPERTS = 3, 10, 4
EXPERT = shape(6, LENGTH, hidden=16)
ROUTED = torch.tensor([[1] * LENGTH, [0] * 3 + [1] * 7, [1] * 4 + [2] * 4 + [0] * 2])
KINDS = pytest.mark.parametrize("kind", ["MixtureOfExperts", "Switch"])


def layer(kind: str, **keys: Any) -> Any:
    return made("channel", {"kind": kind, "activation": "ReLU", "experts": EXPERTS, **keys}, EXPERT)


def routed(documents: torch.Tensor | None = None, rows: int = ROWS) -> Any:
    return context(EXPERT, "Bidirectional", rows=rows, documents=documents)


def x(seed: int = 1) -> torch.Tensor:
    return draw(ROWS, LENGTH, 6, seed=seed)


def transcribed(piece: Any, given: torch.Tensor, documents: torch.Tensor, capacity: int | None) -> np.ndarray:
    """The papers' layer, position by position, each going to its experts while they have seats in its row."""
    gate, up, down = (array(p) for p in (piece.gate.weight, piece.experts.hidden.weight, piece.experts.out.weight))
    found = np.zeros(given.shape)
    for row, vectors in enumerate(given.numpy()):
        taken = np.zeros(len(gate), int)
        for place, vector in enumerate(vectors):
            if documents[row, place] == 0:
                continue
            chances = np.exp(gate @ vector)
            chances /= chances.sum()
            chosen = np.argsort(-chances)[: piece.choices]
            weights = chances[chosen] / (1 if piece.choices == 1 else chances[chosen].sum())
            for expert, weight in zip(chosen, weights, strict=True):
                if capacity is None or taken[expert] < capacity:
                    found[row, place] += weight * down[expert] @ np.maximum(up[expert] @ vector, 0)
                taken[expert] += 1
    return found


@KINDS
@pytest.mark.parametrize("capacity", [0.4, 1.2, 4.0])
def test_experts_equal_their_formula_and_see_neither_other_rows_nor_later_positions_nor_padding(kind, capacity):
    piece, each = layer(kind, capacity=capacity), max(1, int(capacity * LENGTH / EXPERTS))
    found, close = piece(x(), routed(ROUTED)), partial(torch.testing.assert_close, rtol=0, atol=1e-12)
    np.testing.assert_allclose(array(found), transcribed(piece, x(), ROUTED, each), rtol=1e-12, atol=1e-12)
    close(piece(x()[:1], routed(ROUTED[:1], 1)), found[:1])
    close(piece(torch.cat([x()[:, :6], x(7)[:, 6:]], 1), routed(ROUTED))[:, :6], found[:, :6])
    close(piece(torch.where(ROUTED[..., None] > 0, x(), x(7)), routed(ROUTED)), found)
    found = array(piece.eval()(x(), routed(ROUTED)))
    np.testing.assert_allclose(found, transcribed(piece, x(), ROUTED, None), rtol=1e-12, atol=1e-12)


def test_the_loss_of_balance():
    even, everything = torch.full((1, 4, 4), 0.25), torch.ones(1, 4, dtype=torch.bool)
    assert imbalance(even, torch.tensor([[0, 1, 2, 3]]), everything) == 1
    # f = (3/4, 1/4, 0, 0), P = (.4, .3, .2, .1): 4 (.3 + .075); where the last is padding f = (2/3, 1/3, 0, 0).
    uneven = torch.tensor([0.4, 0.3, 0.2, 0.1]).expand(1, 4, 4)
    assert imbalance(uneven, torch.tensor([[0, 0, 1, 0]]), everything).item() == pytest.approx(1.5)
    found = imbalance(uneven, torch.tensor([[0, 0, 1, 3]]), torch.tensor([[True, True, True, False]])).item()
    assert found == pytest.approx(4 * (0.4 * 2 / 3 + 0.3 / 3))
    assert imbalance(even, torch.zeros(1, 4, dtype=torch.long), torch.zeros(1, 4, dtype=torch.bool)) == 0


@KINDS
def test_the_loss_of_balance_joins_that_of_other_layers_by_its_weight(kind):
    piece, once, twice = layer(kind, capacity=4.0, balance=1.0), routed(), routed()
    piece(x(), once)
    piece.balance = 0.5
    piece(x(), twice)
    assert twice.notes.losses["balance"] == once.notes.losses["balance"] / 2
    piece(x(), twice)
    assert twice.notes.losses["balance"] == once.notes.losses["balance"]


BASE = shape(768, 512, 12)


def more(line: dict[str, Any], tokens: int) -> float:
    """How many T of Mesh TensorFlow's operations a channel has beyond the dense one in its place, forwards."""
    with torch.device("meta"):
        piece = made("channel", line, BASE, None)
    return (piece.mesh_operations(tokens) - tokens * 2 * 768 * 3072) / 1e12


def test_what_mesh_tensorflow_counts():
    """12 + 12 layers of width 768: the published counts, from the baseline's 11.073T. Every fourth layer is a mixture
    of 32 experts, or the 11th of the decoder has product keys.
    """
    inputs, targets = 128 * 512, 128 * 114
    for line, encoder, published in (
        ({"kind": "MixtureOfExperts", "hidden_times": 0.5}, 2.0, 11.710),
        ({"kind": "Switch"}, 1.2, 11.751),
    ):
        whole = {"activation": "ReLU", **line}
        total = more({**whole, "capacity": encoder}, inputs) + more({**whole, "capacity": 1.25}, targets)
        assert 11.073 + 3 * total == pytest.approx(published, rel=2e-4)
    line = {"kind": "ProductKeys", "norm": "LayerNorm"}
    assert 11.073 + more(line, targets) == pytest.approx(387.050, abs=1e-3)
    with torch.device("meta"):
        numbers = sum(parameter.numel() for parameter in made("channel", line, BASE, None).parameters())
    assert numbers - 2 * 768 * 3072 - 3072 - 768 == 197_260_160


@pytest.mark.parametrize(("nearest", "norm"), [(1, "NoNorm"), (3, "LayerNorm"), (7, "LayerNorm")])
def test_product_keys_equal_a_search_of_every_pair(nearest, norm):
    own, heads, keys, half = shape(6, 5), 2, 7, 4
    line = {"kind": "ProductKeys", "norm": norm, "heads": heads, "keys": keys, "key_width": 8, "nearest": nearest}
    piece, given = made("channel", line, own), draw(2, 5, 6)
    table, values = array(piece.keys), array(piece.out.weight)
    expected = np.zeros((2, 5, 6))
    for place in itertools.product(range(2), range(5)):
        query = affine(piece.query, array(given[place])).reshape(heads, 2, half)
        for head in range(heads):
            parts = normed(query[head], piece.norm)
            pairs = itertools.product(range(keys), range(keys))
            scores = {(a, b): parts[0] @ table[head, 0, a] + parts[1] @ table[head, 1, b] for a, b in pairs}
            best = sorted(scores, key=lambda pair: -scores[pair])[:nearest]
            weights = np.exp([scores[pair] - scores[best[0]] for pair in best])
            for pair, weight in zip(best, weights / weights.sum(), strict=True):
                expected[place] += weight * values[pair]
    found = array(piece(given, context(own, "Bidirectional", rows=2)))
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)
