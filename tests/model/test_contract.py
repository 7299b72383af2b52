"""Every shipped piece keeps its slot's contract, and initialisation, rates and tunings read roles, not names."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from scaling.base.batch import Batch
from scaling.config import schema
from scaling.config.compose import load
from scaling.config.schema import kinds
from scaling.config.shape import Shape
from scaling.model import contract
from scaling.model.context import Pattern
from scaling.model.contract import Added, declare, role
from scaling.model.parameters import parameters
from scaling.model.tuned import build_model
from scaling.training.parametrization import BERT, GPT2, T5, Glorot, MuP, Standard, initialise
from tests.command_line import refuses
from tests.model.test_variants import build, flow

PAGE = (Path(__file__).parents[2] / "docs" / "pieces.md").read_text()
SLOTS = {
    **{slot: getattr(contract, slot.title()) for slot in ("activation", "norm", "mixer", "channel", "residual")},
    **{slot: getattr(contract, slot.title()) for slot in ("block", "stack", "position", "embedding", "halting")},
    **dict.fromkeys(("head", "sentence", "boundary", "language"), contract.Head),
    "memory": contract.Memory,
    "cross": contract.Mixer,
}
SIZE = "size={width: 64, layers: 3, heads: 4, vocabulary: 61, length: 24}"
ROLES = {"ask": "query", "answer": "key", "embedding": "value", "proj": "output"}
WIDTHS = (64, 128, 256)
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


def test_a_stack_without_its_contract_is_refused_in_one_line(monkeypatch):
    class Bare(nn.Module):
        def __init__(self, shape, block, position):
            super().__init__()

    monkeypatch.setattr(schema, "_joined", {("stack", "Bare"): ("", Bare)})
    config = load("decoder", [SIZE, "model.stack=Bare"])
    message = r"stack\.kind.*Bare.*inherit from scaling\.model\.contract\.Stack"
    refuses(message, config.build, "model", config["size"])


class Projections(nn.Module):
    """A mixer whose maps have unusual names, those of other slots among them."""

    slot = "mixer"

    def __init__(self, shape):
        super().__init__()
        for name, own in ROLES.items():
            setattr(self, name, declare(nn.Linear(shape.width, shape.width, bias=False), weight=own))

    def forward(self, x, context):
        return self.proj(self.ask(x) + self.answer(x) + self.embedding(x))


def test_a_parameter_is_initialised_counted_and_tuned_by_its_declared_role_whatever_its_name(monkeypatch):
    monkeypatch.setattr(schema, "_joined", {("mixer", "Projections"): ("", Projections)})
    config = load("decoder", [SIZE, "model.block.mixer=Projections", "tuning={kind: LoRA, targets: [query, value]}"])
    model = build_model(config.tree)
    specs = {spec.name: spec for spec, _ in parameters(model)}
    for name, declared in ROLES.items():
        own = specs[f"decoder.stack.blocks.0.branches.mixer.piece.{name}.weight"]
        assert (own.role, own.slot) == (declared, "mixer")
    added = {name.rpartition("piece.")[2] for name, part in model.named_modules() if isinstance(part, Added)}
    assert added == {"ask.lora", "embedding.lora"}


def test_a_parametrization_draws_by_its_formula():
    # Of the table, a query, a map into the stream and the head: of width 64, 4 heads, 3 layers of 2 branches.
    draws = [
        (GPT2(), [0.02, 0.02, 0.02 / 6**0.5, 0.02]),
        (BERT(), [0.02] * 4),
        (T5(), [1, (64 * 16) ** -0.5, 1 / 8, 1 / 8]),
        (Glorot(), [1 / 8, 1 / 8, 1 / 8, 1 / 8]),
        (Standard(head="normal"), [0.02, 1 / 8, 384**-0.5, 1 / 8]),
        (MuP(base=16, head="normal"), [0.02, 1 / 8, 384**-0.5, 1 / 16]),
    ]
    mixer = "decoder.stack.blocks.0.branches.mixer.piece"
    names = ("decoder.embedding.table", f"{mixer}.query.weight", f"{mixer}.out.weight", "head.weight")
    config = load("decoder", [SIZE])
    specs = {spec.name: spec for spec, _ in parameters(config.build("model", config["size"]))}
    for parametrization, deviations in draws:
        assert [parametrization.draw(specs[name])[0] for name in names] == pytest.approx(deviations), parametrization


def movement(parametrization, width: int) -> dict[str, float]:
    """Mean |change| of each layer's output and of the logits after a few Adam steps on one batch."""
    size = f"size={{width: {width}, layers: 2, heads: 4, vocabulary: 64, length: 16}}"
    config = load("decoder", [size, "model.block.mixer.scale=width", "model.block.residual=Pre"])
    model = initialise(config.build("model", config["size"]), parametrization, seed=1)
    x = torch.randint(0, 64, (8, 17), generator=torch.Generator().manual_seed(0))
    batch = Batch(x[:, :-1], x[:, 1:])
    groups = [{"params": [p], "lr": 0.01 * parametrization.rate(spec)} for spec, p in parameters(model)]
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.95))

    def activations() -> dict[str, torch.Tensor]:
        with torch.no_grad(), model.watch("decoder.stack.blocks.?") as seen:
            return {"logits": model.logits(batch), **{name: each[0] for name, each in seen.items()}}

    start = activations()
    for _ in range(4):
        optimizer.zero_grad()
        model.loss(batch).total.backward()
        optimizer.step()
    return {name: (end - start[name]).abs().mean().item() for name, end in activations().items()}


def growth(parametrization) -> dict[str, float]:
    """The exponent of width with which the movement of each activation grows."""
    moved = [movement(parametrization, width) for width in WIDTHS]
    return {name: np.polyfit(np.log(WIDTHS), np.log([one[name] for one in moved]), 1)[0] for name in moved[0]}


def test_activations_move_alike_at_every_width_under_mup_and_more_with_width_under_the_standard():
    """The coordinate check of Yang et al. 2022 (appendix D.1), over a few steps."""
    assert all(abs(slope) < 0.2 for slope in growth(MuP(base=64, head="normal")).values())
    slopes = growth(Standard(head="normal"))
    assert slopes["decoder.stack.blocks.1"] > 0.8
    assert slopes["logits"] > 0.25


def test_what_sums_as_many_inputs_at_every_width_has_one_rate_under_mup():
    finite = [("mixer", "LightweightConvolution", "taps"), ("mixer", "RandomSynthesizer", "table")]
    for slot, kind, name in (*finite, *(("channel", "ProductKeys", name) for name in ("keys", "out.weight"))):
        model = build("decoder", f"model.block.{slot}={flow(slot, kind)}")
        rates = {spec.name: MuP(base=16).rate(spec) for spec, _ in parameters(model)}
        assert rates[f"decoder.stack.blocks.0.branches.{slot}.piece.{name}"] == 1.0, (kind, name)


def test_a_draw_depends_on_the_name_and_the_seed_alone():
    plain, learned = build("decoder", ""), build("decoder", "model.position=Learned")
    a, b, c = (
        dict(initialise(model, Standard(), seed).named_parameters())
        for model, seed in ((plain, 0), (learned, 0), (build("decoder", ""), 1))
    )
    assert all(torch.equal(parameter, b[name]) for name, parameter in a.items())
    assert not torch.equal(a["decoder.embedding.table"], c["decoder.embedding.table"])
