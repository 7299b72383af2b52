"""Embeddings against their papers' formulas in float64 numpy, and heads and towers that are tied to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from scaling.batch import IGNORE, Batch
from scaling.config import load
from scaling.cost import cost
from scaling.model.parameters import parameters
from scaling.training.parametrization import T5, MuP, initialise

V, W = 61, 32
SIZE = f"size={{width: {W}, layers: 1, heads: 4, vocabulary: {V}, length: 24}}"
FACTORIZED = "model.embedding={kind: Factorized, rank: 8}"
ADAPTIVE = "model.embedding={kind: Adaptive, cutoffs: [20, 40], widths: [32, 16, 8]}"
LINES = [FACTORIZED, ADAPTIVE]
TIES = ["[]", "[encoder, decoder]", "[decoder, head]", "[encoder, decoder, head]"]


def made(*changes: str) -> Any:
    config = load("encoder_decoder", [SIZE, *changes])
    return initialise(config.build("model", config["size"]), T5(), 0).double()


def table(embedding) -> np.ndarray:
    """The whole V × w table that an embedding in clusters stands for."""
    rows = embedding.rows
    found = []
    for c, own in enumerate(rows.tables):
        vectors = own.detach().double().numpy()
        found.append(vectors @ rows.ups[str(c)].weight.detach().double().numpy().T if str(c) in rows.ups else vectors)
    return np.concatenate(found)


def ids(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, V, (rows, length), generator=torch.Generator().manual_seed(seed))


def embedded(tower, tokens: torch.Tensor) -> torch.Tensor:
    found = []
    with tower.embedding.register_forward_hook(lambda *call: found.append(call[-1])):
        tower(tokens)
    return found[0].detach()


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("scale", ["none", "sqrt_width"])
def test_look_up_equals_the_formula(line, scale):
    model = made(line, f"model.embedding.scale={scale}")
    tokens = torch.arange(V)[None]
    expected = table(model.encoder.embedding) * (W**0.5 if scale == "sqrt_width" else 1)
    np.testing.assert_allclose(embedded(model.encoder, tokens)[0].numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("line", LINES)
def test_tied_logits_and_losses_equal_the_formula(line):
    model = made(line)
    hidden = torch.randn(2, 5, W, dtype=torch.float64)
    logits = hidden.numpy() @ table(model.encoder.embedding).T * W**-0.5
    np.testing.assert_allclose(model.head(hidden).detach().numpy(), logits, atol=1e-12)
    targets = ids(2, 5)
    targets[0, 0] = IGNORE
    for smoothing in (0.0, 0.1):
        chances = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        chosen = np.take_along_axis(chances, targets.clamp(min=0).numpy()[..., None], -1)[..., 0]
        expected = -(1 - smoothing) * chosen - smoothing * chances.mean(-1)
        expected[0, 0] = 0
        found = model.head.loss(hidden, targets, smoothing).detach().numpy()
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("tie", TIES)
def test_every_tie(line, tie):
    model = made(line, f"model.tie={tie}", "model.head=Linear")
    own = sum(p.numel() for p in model.encoder.embedding.rows.parameters())
    shared = len([name for name in ("encoder", "decoder") if name in tie]) > 1
    tables = own * (1 if shared else 2) + (0 if "head" in tie else V * W)
    assert sum(p.numel() for spec, p in parameters(model) if spec.slot in ("embedding", "head")) == tables
    assert (model.encoder.embedding.rows is model.decoder.embedding.rows) == shared
    assert (model.head.rows is model.decoder.embedding.rows) == ("head" in tie)
    tokens = ids(2, 6)
    model.loss(Batch(tokens, tokens, source=tokens)).total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_tables_are_no_part_of_n_without_embeddings_and_projections_are():
    plain = cost(load("decoder", [SIZE]))
    narrow = cost(load("decoder", [SIZE, FACTORIZED]))
    assert narrow.parameters_non_embedding == plain.parameters_non_embedding + 8 * W
    assert narrow.parameters_by_slot["embedding"] == 8 * (V + W)


def test_a_projection_of_fixed_rank_learns_alike_at_every_width_under_mup():
    up = next(spec for spec, _ in parameters(made(FACTORIZED, "model.tie=[]")) if ".ups." in spec.name)
    assert MuP(base=8).rate(up) == 1
    assert MuP(base=8).draw(up)[0] == 8**-0.5
