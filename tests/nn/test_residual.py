"""ReZero and Fixup against their papers: the formula, the identity that both start as, and Fixup's starts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scaling.batch import Batch
from scaling.config import load
from scaling.model.parameters import parameters
from scaling.nn.blocks import Fixup, LayerNorm, NoNorm, ReZero, RMSNorm
from scaling.nn.context import NOWHERE, Context, Mask, Places
from scaling.shape import Shape
from scaling.training.parametrization import T5, Standard, initialise

SHAPE = Shape.of({"width": 8, "layers": 1, "heads": 1, "vocabulary": 5, "length": 8})
SIZE = "size={width: 32, layers: 3, heads: 4, vocabulary: 61, length: 24}"
BARE = ["model.block.norm=NoNorm", "model.stack.norm=NoNorm"]
X = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


class Doubled(torch.nn.Module):
    def forward(self, x, context):
        return 2 * x**2


def nowhere() -> Context:
    at = Places.of(torch.zeros(2, 4, dtype=torch.long))
    return Context(at, at, Mask(), NOWHERE)


def made(*changes: str, parametrization=None, family: str = "encoder_decoder") -> Any:
    config = load(family, [SIZE, *changes])
    return initialise(config.build("model", config["size"]), parametrization or T5(), 0)


@pytest.mark.parametrize("norm", [NoNorm, LayerNorm, RMSNorm])
def test_rezero_equals_the_formula(norm):
    residual = ReZero(SHAPE, lambda: norm(8), Doubled()).double()
    assert torch.equal(residual(X, nowhere()), X)
    residual.alpha.data.fill_(0.3)
    torch.testing.assert_close(residual(X, nowhere()), X + 0.3 * 2 * residual.norm(X) ** 2)


def test_fixup_equals_the_formula():
    residual = Fixup(SHAPE, lambda: NoNorm(8), Doubled()).double()
    torch.testing.assert_close(residual(X, nowhere()), X + 2 * X**2)
    for parameter, value in ((residual.shift, 0.1), (residual.scale, 0.7), (residual.offset, -0.2)):
        parameter.data.fill_(value)
    torch.testing.assert_close(residual(X, nowhere()), X + 0.7 * 2 * (X + 0.1) ** 2 - 0.2)


@pytest.mark.parametrize("residual", ["ReZero", "Fixup"])
@pytest.mark.parametrize("family", ["decoder", "encoder", "encoder_decoder"])
def test_a_model_starts_as_the_identity(residual, family):
    model = made(f"model.block.residual={residual}", *BARE, family=family)
    tokens = torch.randint(0, 61, (2, 6), generator=torch.Generator().manual_seed(0))
    batch = Batch(tokens, tokens, source=tokens if family == "encoder_decoder" else None)
    last = model.encoder if family == "encoder" else model.decoder
    with last.embedding.register_forward_hook(lambda *call: seen.append(call[-1])):
        seen: list[torch.Tensor] = []
        hidden = model(batch).hidden
    torch.testing.assert_close(hidden, seen[0], rtol=0, atol=0)


def test_the_rules_of_fixup_act():
    fixup = {spec.name: p for spec, p in parameters(made("model.block.residual=Fixup", *BARE, "model.tie=[]"))}
    plain = {spec.name: p for spec, p in parameters(made(*BARE, "model.tie=[]"))}
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


def test_a_gated_layer_has_three_matrices():
    line = "model.block.channel={kind: Gated, activation: Swish}"
    model = made("model.block.residual=Fixup", *BARE, line, family="decoder", parametrization=Standard())
    start = {spec.name.split(".")[-2]: spec.start for spec, _ in parameters(model) if ".channel.piece." in spec.name}
    assert start == {"gate": 6 ** (-1 / 4), "hidden": 6 ** (-1 / 4), "out": 0.0}


def test_a_shared_block_counts_each_of_its_runs():
    shared = made("model.block.residual=Fixup", *BARE, "model.stack.distinct=1", family="decoder")
    hidden = next(spec for spec, _ in parameters(shared) if spec.name.endswith("channel.piece.hidden.weight"))
    assert hidden.start == 6 ** (-1 / 4)  # a decoder's channel is gated
