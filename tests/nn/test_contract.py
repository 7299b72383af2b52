"""Contracts: every shipped piece keeps its slot's, the page names what the code declares, and a gap is one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from scaling import schema
from scaling.config import load
from scaling.errors import ScalingError
from scaling.nn import contract
from scaling.nn.context import Pattern
from scaling.schema import kinds
from tests.model.test_variants import LINES

PAGE = (Path(__file__).parents[2] / "docs" / "pieces.md").read_text()
SLOTS = {
    "activation": contract.Activation,
    "norm": contract.Norm,
    "mixer": contract.Mixer,
    "cross": contract.Mixer,
    "channel": contract.Channel,
    "residual": contract.Residual,
    "block": contract.Block,
    "stack": contract.Stack,
    "position": contract.Position,
    "embedding": contract.Embedding,
    "head": contract.Head,
    "sentence": contract.Head,
    "boundary": contract.Head,
    "language": contract.Head,
    "halting": contract.Halting,
    "memory": contract.Memory,
}
SIZE = "size={width: 32, layers: 2, heads: 4, vocabulary: 61, length: 24}"


@pytest.mark.parametrize("slot", SLOTS)
def test_every_shipped_piece_inherits_from_the_contract_of_its_slot(slot):
    for name, kind in kinds(slot).items():
        assert SLOTS[slot] in kind.__mro__, name
        assert issubclass(kind, nn.Module)


def test_every_pattern_keeps_its_contract():
    for name in kinds("pattern"):
        line = {"kind": name, **LINES.get(("pattern", name), {})}
        assert isinstance(schema.build("pattern", line), Pattern)


@pytest.mark.parametrize("slot", [*SLOTS, "pattern"])
def test_the_page_names_every_slot_and_ability(slot):
    assert f"`{slot}`" in PAGE
    own = SLOTS.get(slot, Pattern)
    for name in {*vars(own).get("__annotations__", {})}:
        assert name in PAGE, f"docs/pieces.md lacks {name} of {own.__name__}"


class Bare(nn.Module):
    """A stack that declares nothing."""

    slot = "stack"

    def __init__(self, shape, block, position):
        super().__init__()
        self.blocks = nn.ModuleList([block(0)])


def test_a_stack_without_its_contract_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(schema, "_joined", {"stack": {"Bare": Bare}})
    config = load("decoder", [SIZE, "model.stack=Bare", "size.layers=1"])
    with pytest.raises(ScalingError, match=r"stack\.kind.*Bare.*inherit from scaling\.nn\.contract\.Stack"):
        config.build("model", config["size"])


class Halved(nn.Module):
    """φ(x) = x / 2: a class that inherits from nn.Module alone."""

    slot = "activation"

    def forward(self, x):
        return x / 2


@pytest.mark.parametrize("channel", ["Gated", "Dense"])
def test_an_activation_of_a_users_own_needs_no_contract(channel, monkeypatch):
    monkeypatch.setattr(schema, "_joined", {"activation": {"Halved": Halved}})
    config = load("decoder", [SIZE, f"model.block.channel={{kind: {channel}, activation: Halved}}"])
    config.build("model", config["size"])
