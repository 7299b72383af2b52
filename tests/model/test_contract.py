"""Contracts and roles: every shipped piece keeps its slot's contract, the page names what the code declares, and what a
parameter is for is declared where it is made: initialisation, rates, counts and tunings read no names.
"""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from scaling.base.batch import Batch
from scaling.base.errors import ScalingError
from scaling.config import schema
from scaling.config.compose import load
from scaling.config.schema import kinds
from scaling.config.shape import Shape
from scaling.model import contract
from scaling.model.context import Pattern
from scaling.model.contract import CONSTANT, Added, declare, role
from scaling.model.cost import cost
from scaling.model.mixer.attention import attend
from scaling.model.parameters import parameters
from scaling.model.tuned import build_model
from scaling.training.parametrization import BERT, GPT2, T5, Glorot, MuP, Standard, initialise
from tests.model.test_variants import flow

PAGE = (Path(__file__).parents[2] / "docs" / "pieces.md").read_text()
SLOTS = {
    **{slot: getattr(contract, slot.title()) for slot in ("activation", "norm", "mixer", "channel", "residual")},
    **{slot: getattr(contract, slot.title()) for slot in ("block", "stack", "position", "embedding", "halting")},
    **dict.fromkeys(("head", "sentence", "boundary", "language"), contract.Head),
    "memory": contract.Memory,
    "cross": contract.Mixer,
}
SIZE = "size={width: 64, layers: 3, heads: 4, vocabulary: 61, length: 24}"
SHAPE = Shape.of({"width": 32, "layers": 2, "heads": 4, "vocabulary": 61, "length": 24})


def test_every_shipped_piece_keeps_the_contract_of_its_slot_and_the_page_names_it():
    for slot, own in SLOTS.items():
        for name, kind in kinds(slot).items():
            if kind.__module__.startswith("scaling."):
                assert own in kind.__mro__, name
                assert issubclass(kind, nn.Module)
    for name in kinds("pattern"):
        assert isinstance(schema.build("pattern", yaml.safe_load(flow("pattern", name))), Pattern)
    for slot, own in (*SLOTS.items(), ("pattern", Pattern)):
        assert f"`{slot}`" in PAGE
        for name in vars(own).get("__annotations__", {}):
            assert name in PAGE, f"docs/pieces.md lacks {name} of {own.__name__}"


@pytest.mark.parametrize("slot", ["mixer", "channel"])
def test_every_shipped_piece_declares_the_matrix_that_it_ends_with(slot):
    for kind in kinds(slot):
        line = {**yaml.safe_load(flow(slot, kind)), **({"projected": 8} if kind == "Linformer" else {})}
        piece = schema.build(slot, line, SHAPE)
        modules = [(module, name) for module in piece.modules() for name, _ in module.named_parameters(recurse=False)]
        assert "output" in {role(module, name) for module, name in modules}, kind


class Bare(nn.Module):
    """A stack that declares nothing."""

    slot = "stack"

    def __init__(self, shape, block, position):
        super().__init__()
        self.blocks = nn.ModuleList([block(0)])


class Halved(nn.Module):
    """φ(x) = x / 2: a class that inherits from nn.Module alone."""

    slot = "activation"

    def forward(self, x):
        return x / 2


class Gauged(nn.Module):
    """A norm with a constant of its own."""

    slot = "norm"

    def __init__(self, width):
        super().__init__()
        self.gain, self.lift, self.shift = (nn.Parameter(torch.empty(width)) for _ in range(3))
        self.constants = {"lift": 0.25}
        declare(self, shift="bias")


class Projections(nn.Module):
    """Attention whose projections have unusual names, those of other slots among them."""

    slot = "mixer"

    def __init__(self, shape):
        super().__init__()
        self.heads = shape.heads
        roles = {"ask": "query", "answer": "key", "embedding": "value", "proj": "output"}
        for name, own in roles.items():
            setattr(self, name, declare(nn.Linear(shape.width, shape.width, bias=False), weight=own))

    def forward(self, x, context):
        q, k, v = (part(x).unflatten(-1, (self.heads, -1)) for part in (self.ask, self.answer, self.embedding))
        here = context.places.positions
        q, k = context.position.rotate(q, k, here, here)
        return self.proj(attend(q, k, v, context, scale=q.shape[-1] ** -0.5, dropout=0.0).flatten(2))


@pytest.fixture(autouse=True)
def joined(monkeypatch):
    own = {"mixer": Projections, "stack": Bare, "activation": Halved}
    joined = {slot: {piece.__name__: piece} for slot, piece in own.items()}
    monkeypatch.setattr(schema, "_joined", {**joined, "norm": {"Gauged": Gauged}})


def test_a_stack_without_its_contract_is_refused_in_one_line_and_an_activation_needs_none():
    config = load("decoder", [SIZE, "model.stack=Bare", "size.layers=1"])
    with pytest.raises(ScalingError, match=r"stack\.kind.*Bare.*inherit from scaling\.model\.contract\.Stack"):
        config.build("model", config["size"])
    config = load("decoder", [SIZE, "model.block.channel={kind: Gated, activation: Halved}"])
    config.build("model", config["size"])


def test_a_constant_starts_where_its_piece_says_on_meta_too():
    config = load("decoder", [SIZE, "model.stack.norm=Gauged"])
    with torch.device("meta"):
        model: Any = config.build("model", config["size"])
    own = initialise(model, Standard(), 0).decoder.stack.norm
    assert [p.unique().tolist() for p in (own.gain, own.lift, own.shift)] == [[1.0], [0.25], [0.0]]


RENAMED = {"query": "ask", "key": "answer", "value": "embedding", "out": "proj"}
FIXUP = ["model.block.residual=Fixup", "model.block.norm=NoNorm", "model.stack.norm=NoNorm"]
PARAMETRIZATIONS = [GPT2(), BERT(), T5(), Glorot(), Standard(head="normal"), MuP(base=16, head="normal")]


def both(*changes: str) -> list[Any]:
    """The config of the shipped attention, and of the one with unusual names."""
    return [load("decoder", [SIZE, f"model.block.mixer={kind}", *changes]) for kind in ("Attention", "Projections")]


def renamed(name: str) -> str:
    """The name of a parameter, or of what tuning adds to a map."""
    return ".".join(RENAMED.get(part, part) if ".mixer.piece." in name else part for part in name.split("."))


@pytest.mark.parametrize(
    ("parametrization", "changes"),
    [*((each, []) for each in PARAMETRIZATIONS), (Standard(head="normal"), FIXUP)],
    ids=lambda each: type(each).__name__,
)
def test_an_attention_with_unusual_names_starts_and_learns_like_the_shipped_one(parametrization, changes):
    shipped, own = (
        {spec.name: (spec, p) for spec, p in parameters(initialise(c.build("model", c["size"]), parametrization, 0))}
        for c in both(*changes)
    )
    assert [renamed(name) for name in shipped] == list(own)
    for name, (spec, parameter) in shipped.items():
        other, drawn = own[renamed(name)]
        assert (other.role, other.slot, other.start, other.fan_in) == (spec.role, spec.slot, spec.start, spec.fan_in)
        assert parametrization.rate(other) == parametrization.rate(spec)
        if spec.role not in CONSTANT:
            assert parametrization.draw(other) == parametrization.draw(spec)
            # Other names are other draws, of the same deviation: 4,096 numbers give it to 1%.
            torch.testing.assert_close(drawn.std(), parameter.std(), rtol=0.06, atol=1e-6)


def test_an_attention_with_unusual_names_costs_computes_and_is_tuned_as_the_shipped_one():
    shipped, own = (cost(config).to_json() for config in both())
    del shipped["memory_bytes_one_window_float32_adam"], own["memory_bytes_one_window_float32_adam"]
    assert own == shipped
    shipped, own = (initialise(c.build("model", c["size"]), Standard(head="normal"), 0) for c in both())
    own.load_state_dict({renamed(name): tensor for name, tensor in shipped.state_dict().items()})
    tokens = torch.randint(0, 61, (2, 24), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(own.loss(Batch(tokens, tokens)).total, shipped.loss(Batch(tokens, tokens)).total)
    for line in ("{kind: IA3, targets: [key, value]}", "{kind: LoRA, targets: [query, value]}"):
        models = [build_model(config.tree) for config in both(f"tuning={line}")]
        names = [[name for name, part in m.named_modules() if isinstance(part, Added)] for m in models]
        assert [renamed(name) for name in names[0]] == names[1]


def test_what_declares_nothing_is_hidden_a_bias_of_a_map_or_a_gain():
    layer, norm = nn.Linear(2, 2), nn.LayerNorm(2)
    assert (role(layer, "weight"), role(layer, "bias"), role(norm, "weight")) == ("hidden", "bias", "gain")
    with pytest.raises(ValueError, match="Linear has no parameter wieght"):
        declare(nn.Linear(2, 2), wieght="output")
