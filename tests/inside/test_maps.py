"""Attention maps are those of transformers, and looking changes no output; what parts of a model do: heads and blocks
left out, the logit lens, activations of one text in another, the loss around the weights.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch

import scaling
from scaling.base.batch import Batch
from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.inside.effects import ablate, direction, landscape, lens, patch
from scaling.inside.look import Map, maps, scores
from scaling.model.parameters import parameters
from scaling.model.tuned import build_model
from tests.inside.conftest import SIZE


def drawn(name="decoder", *changes, **sections) -> Any:
    config = load(name, [f"size={SIZE}", *changes])
    torch.manual_seed(0)
    return build_model({"model": config["model"], "size": config["size"], **sections}).eval()


def batch_for(model, seed=0, rows=1):
    generator = torch.Generator().manual_seed(seed)
    tokens, source = (torch.randint(3, 61, (rows, count), generator=generator) for count in (10, 12))
    return Batch(tokens, tokens.roll(-1, 1), source=source if model.family == "encoder_decoder" else None)


def loss_of(model, batch):
    return pytest.approx(float(model.losses(batch).mean()), rel=1e-5)


@pytest.mark.parametrize("name", ["bert masked", "gpt2", "llama grouped", "bloom", "t5 gated"])
def test_maps_are_those_of_transformers(tmp_path, name):
    saved = pytest.importorskip("tests.interop.test_huggingface").theirs(name)
    saved.set_attn_implementation("eager")
    saved.save_pretrained(tmp_path / "model")
    ours: Any = scaling.load(tmp_path / "model").module
    batch = batch_for(ours)
    found = {(f"{each.tower} {each.slot}", each.layer): each.weights for each in maps(ours, batch)}
    parts = {f"{ours.family} mixer": "attentions"}
    inputs = {"input_ids": batch.tokens}
    if batch.source is not None:
        inputs = {"input_ids": batch.source, "decoder_input_ids": batch.tokens}
        parts = {"encoder mixer": "encoder_attentions", "decoder mixer": "decoder_attentions"}
        parts["decoder cross"] = "cross_attentions"
    output = saved(**inputs, output_attentions=True)
    expected = {(part, n): each for part, key in parts.items() for n, each in enumerate(getattr(output, key))}
    assert found.keys() == expected.keys()
    for key, weights in expected.items():
        np.testing.assert_allclose(found[key], weights[0].detach().numpy(), atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        "model.position=Shaw",
        "model.pattern={kind: Window, size: 4, pattern: Causal}",
        "model.block.mixer={kind: Longformer, window: 2, dilation: 2}",
        "size.key_heads=1",
        "model.blocks={every 2: {mixer: {kind: LightweightConvolution}}}",
    ],
)
@torch.no_grad()
def test_who_looks_changes_nothing_and_nothing_stays_in_the_model(change):
    model = drawn("decoder", change).double()
    batch = batch_for(model)
    before, seen, looked = model.logits(batch), maps(model, batch), []
    model.decoder.weights = looked.append
    torch.testing.assert_close(model.logits(batch), before, rtol=1e-10, atol=1e-10)
    model.decoder.weights = None
    assert seen or "Longformer" in change  # which has two softmaxes, one for each dilation
    assert all(np.allclose(each.weights.sum(-1), 1, atol=1e-5) for each in seen)
    assert {each.name for each in seen} <= dict(model.named_modules()).keys()
    assert torch.equal(model.logits(batch), before)
    assert not [module for module in model.modules() if module._forward_hooks or module._forward_pre_hooks]


def test_a_learned_prefix_stands_before_the_tokens_and_a_convolution_has_no_map():
    model = drawn(tuning={"kind": "Prefix", "length": 3})
    for number, each in enumerate(maps(model, batch_for(model))):
        assert (each.layer, each.before, each.weights.shape[-1], each.of_tokens.shape[-1]) == (number, 3, 13, 10)
    without = drawn("decoder", "model.block.mixer={kind: LightweightConvolution, kernel: 3}")
    assert maps(without, batch_for(without)) == []


def test_the_scores_of_heads_whose_weights_are_known():
    def of(weights, slot="mixer"):
        return Map("decoder.stack.blocks.0", "decoder", 0, slot, weights[None])

    T = 8
    previous = np.eye(T, k=-1) + np.eye(T)[0][:, None] * np.eye(T)[0]
    (score,) = scores([of(previous)], [of(previous)])
    assert score["previous"] == score["positional"] == 1.0
    assert (score["offset"], score["induction"]) == (-1, 0.0)
    assert score["entropy"] == pytest.approx(0, abs=1e-12)
    assert score["distance"] == pytest.approx((T - 1) / T)
    (score,) = scores([of(np.full((T, T), 1 / T))])
    assert score["entropy"] == pytest.approx(math.log(T))
    assert score["previous"] == pytest.approx(1 / T)
    assert score["distance"] == pytest.approx(np.abs(np.subtract.outer(np.arange(T), np.arange(T))).mean())
    following = previous.copy()
    following[T // 2 :] = np.eye(T)[1 : T // 2 + 1]
    assert scores([of(previous)], [of(following)])[0]["induction"] == 1.0
    (score,) = scores([of(np.full((T, 3), 1 / 3), "cross")])
    assert score["entropy"] == pytest.approx(math.log(3))
    assert score["distance"] is score["previous"] is score["induction"] is None


@pytest.mark.parametrize("name", ["decoder", "bert", "decoder model.stack.distinct=1", "t5"])
@torch.no_grad()
def test_a_head_is_left_out_as_if_its_columns_were_zero_and_the_last_logits_of_the_lens_are_the_models(name):
    model = drawn(*name.split())
    batch = batch_for(model, rows=2)
    effects = [effect for effect in ablate(model, [batch]) if effect["head"] is not None]
    assert len(effects) == len({(effect["name"], effect["head"]) for effect in effects}) > 0
    for effect in effects:
        out = model.get_submodule(f"{effect['name']}.out")
        kept, width = out.weight.clone(), out.weight.shape[1] // SIZE["heads"]
        out.weight[:, effect["head"] * width : (effect["head"] + 1) * width] = 0
        assert effect["loss"] == loss_of(model, batch)
        out.weight.copy_(kept)
    assert effects[0]["loss"] - effects[0]["effect"] == loss_of(model, batch)
    logits = lens(model, batch)
    assert len(logits) == SIZE["layers"]
    assert torch.equal(logits[-1], model.logits(batch))
    assert not torch.allclose(logits[0], logits[-1])


@torch.no_grad()
def test_all_activations_of_a_layer_give_the_logits_of_the_other_text_and_a_block_is_left_out():
    model, layer = drawn(), "decoder.stack.blocks.1"
    batch, other = batch_for(model), batch_for(model, seed=1)
    before = model.logits(batch)
    assert torch.equal(patch(model, batch, other, layer), model.logits(other))
    some = patch(model, batch, other, layer, tokens=[4])
    assert torch.equal(some[:, :4], before[:, :4])
    assert not torch.allclose(some[:, 4:], before[:, 4:])
    with pytest.raises(ScalingError, match="same number of tokens"):
        patch(model, batch, other.map(lambda tensor: tensor[:, :7]), layer)
    effect = next(effect for effect in ablate(model, [batch]) if effect["name"] == layer)
    del model.decoder.stack.blocks[1]
    model.decoder.stack.order = [0, 1]
    assert effect["loss"] == loss_of(model, batch)


def test_a_loaded_model_is_asked_by_text(folders):
    model = scaling.load(folders / "gpt2", device="cpu")
    assert [each.shape for each in model.lens("a law")] == [(6, SIZE["vocabulary"])] * 3
    assert torch.equal(model.patch("a law", "a cow", "decoder.stack"), model.lens("a cow")[-1])
    effects = model.ablate([batch_for(model.module)])
    assert (list(effects.columns), len(effects)) == (["name", "head", "loss", "effect"], 3 + 3 * 2)
    with pytest.raises(ScalingError, match=r"no such activation; did you mean .decoder\.stack."):
        model.patch("a law", "a cow", "decoder.stak")


@torch.no_grad()
def test_a_point_of_a_landscape_is_the_loss_of_the_moved_weights():
    model = drawn("bert")
    batch = batch_for(model, rows=3)
    loss = landscape(model, [batch, batch], side=3, reach=0.5, seed=2)
    assert loss[1, 1] == loss_of(model, batch)  # the model stays
    first, second = direction(model, 4), direction(model, 5)
    for spec, parameter in parameters(model):
        one, other = first[spec.name], second[spec.name]
        if parameter.ndim > 1:
            norms = parameter.flatten(1).norm(dim=1)
            torch.testing.assert_close(one.flatten(1).norm(dim=1), norms)
            assert parameter.numel() < 100 or abs(float((one * other).sum())) < norms.square().sum()
        else:
            assert not one.any()
        parameter += 0.5 * one - 0.5 * other
    assert loss[2, 0] == loss_of(model, batch)
