"""What parts of a model do: heads and blocks left out, the logit lens, activations of one text in another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import scaling
from scaling.base.batch import Batch
from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.inside.effects import ablate, lens, patch
from scaling.model.tuned import build_model
from tests.inside.conftest import SIZE

STACKS = {
    "decoder": ("decoder", {}),
    "post-norm": ("bert", {}),
    "shared blocks": ("decoder", {"stack": {"kind": "Sequential", "norm": "RMSNorm", "distinct": 1}}),
    "two towers": ("t5", {}),
}


def drawn(name: str = "decoder", **own: Any) -> Any:
    torch.manual_seed(0)
    return build_model({"model": {**load(name)["model"], **own}, "size": SIZE}).eval()


def batch_for(model: Any, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    tokens, source = (torch.randint(3, 256, (2, count), generator=generator) for count in (10, 12))
    return Batch(tokens, tokens.roll(-1, 1), source=source if model.family == "encoder_decoder" else None)


@pytest.mark.parametrize("stack", STACKS)
@torch.no_grad()
def test_a_head_is_left_out_as_if_its_columns_were_zero_and_the_last_logits_of_the_lens_are_the_models(stack) -> None:
    name, own = STACKS[stack]
    model = drawn(name, **own)
    batch = batch_for(model)
    effects = [effect for effect in ablate(model, [batch]) if effect["head"] is not None]
    assert len(effects) == len({(effect["name"], effect["head"]) for effect in effects}) > 0
    for effect in effects:
        out = model.get_submodule(f"{effect['name']}.out")
        kept, width = out.weight.clone(), out.weight.shape[1] // SIZE["heads"]
        out.weight[:, effect["head"] * width : (effect["head"] + 1) * width] = 0
        assert effect["loss"] == pytest.approx(float(model.losses(batch).mean()), rel=1e-5)
        out.weight.copy_(kept)
    assert effects[0]["loss"] - effects[0]["effect"] == pytest.approx(float(model.losses(batch).mean()), rel=1e-5)
    logits = lens(model, batch)
    assert len(logits) == SIZE["layers"]
    assert torch.equal(logits[-1], model.logits(batch))
    assert not torch.allclose(logits[0], logits[-1])


@torch.no_grad()
def test_a_block_that_is_left_out_returns_what_it_is_given() -> None:
    model = drawn()
    batch = batch_for(model)
    effect = next(effect for effect in ablate(model, [batch]) if effect["name"].endswith("blocks.1"))
    del model.decoder.stack.blocks[1]
    model.decoder.stack.order = [0, 1]
    assert effect["loss"] == pytest.approx(float(model.losses(batch).mean()), rel=1e-5)


@torch.no_grad()
def test_all_activations_of_a_layer_give_the_logits_of_the_other_text() -> None:
    model, layer = drawn(), "decoder.stack.blocks.1"
    batch, other = batch_for(model), batch_for(model, 1)
    before = model.logits(batch)
    assert torch.equal(patch(model, batch, other, layer), model.logits(other))
    some = patch(model, batch, other, layer, tokens=[4])
    assert torch.equal(some[:, :4], before[:, :4])
    assert not torch.allclose(some[:, 4:], before[:, 4:])
    with pytest.raises(ScalingError, match="same number of tokens"):
        patch(model, batch, other.map(lambda tensor: tensor[:, :7]), layer)
    with pytest.raises(ScalingError, match="there are 10 tokens"):
        patch(model, batch, other, layer, tokens=[10])


def test_a_loaded_model_is_asked_by_text(folders: Path) -> None:
    model = scaling.load(folders / "gpt2", device="cpu")
    assert [each.shape for each in model.lens("a law")] == [(6, SIZE["vocabulary"])] * 3
    assert torch.equal(model.patch("a law", "a cow", "decoder.stack"), model.lens("a cow")[-1])
    effects = model.ablate([batch_for(model.module)])
    assert list(effects.columns) == ["name", "head", "loss", "effect"]
    assert len(effects) == 3 + 3 * 2
    with pytest.raises(ScalingError, match=r"no such activation; did you mean .decoder\.stack."):
        model.patch("a law", "a cow", "decoder.stak")
