"""Attention maps: those of transformers, and the same outputs as without anyone looking."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import scaling
from scaling.base.batch import IGNORE, Batch
from scaling.config.compose import load
from scaling.inside.look import Map, maps, scores
from scaling.model.family import Family
from scaling.model.tuned import build_model

IDS = {"vocab_size": 61, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
LAYERS = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 36}
LONG = {**IDS, **LAYERS, "max_position_embeddings": 22}
T5 = {"d_model": 24, "d_kv": 5, "d_ff": 36, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}
THEIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", LONG),
    "gpt2": ("GPT2LMHeadModel", {**IDS, "n_embd": 24, "n_layer": 3, "n_head": 4, "n_positions": 20}),
    "llama": ("LlamaForCausalLM", {**LONG, "num_key_value_heads": 2}),
    "bloom": ("BloomForCausalLM", {**IDS, "hidden_size": 24, "n_layer": 2, "n_head": 4}),
    "t5": ("T5ForConditionalGeneration", {**IDS, **T5}),
}


def plain(model: Family, length: int = 12, vocabulary: int = 61) -> Batch:
    drawn = torch.Generator().manual_seed(3)
    tokens = torch.randint(3, vocabulary, (1, length), generator=drawn)
    source = torch.randint(3, vocabulary, (1, length + 3), generator=drawn)
    return Batch(tokens, torch.full_like(tokens, IGNORE), source=source if model.family == "encoder_decoder" else None)


@pytest.mark.parametrize("name", THEIRS)
def test_maps_are_those_of_transformers(tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    kind, keys = THEIRS[name]
    torch.manual_seed(0)
    config = getattr(transformers, kind).config_class(**keys)
    config._attn_implementation = "eager"
    theirs = getattr(transformers, kind)(config).eval()
    theirs.save_pretrained(tmp_path / "model")
    ours: Any = scaling.load(tmp_path / "model").module
    batch = plain(ours)
    found = {(f"{each.tower} {each.slot}", each.layer): each.weights for each in maps(ours, batch)}
    parts = {f"{ours.family} mixer": "attentions"}
    inputs = {"input_ids": batch.tokens}
    if batch.source is not None:
        inputs = {"input_ids": batch.source, "decoder_input_ids": batch.tokens}
        parts = {"encoder mixer": "encoder_attentions", "decoder mixer": "decoder_attentions"}
        parts["decoder cross"] = "cross_attentions"
    output = theirs(**inputs, output_attentions=True)
    expected = {(part, n): each for part, key in parts.items() for n, each in enumerate(getattr(output, key))}
    assert found.keys() == expected.keys()
    for key, weights in expected.items():
        np.testing.assert_allclose(found[key], weights[0].detach().numpy(), atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        ["model.position=Shaw"],
        ["model.pattern={kind: Window, size: 4, pattern: Causal}"],
        ["model.block.mixer={kind: BlockLocal, size: 4, before: 1}"],
        ["model.block.mixer={kind: Longformer, window: 2, dilation: 2}"],
        ["size.key_heads=1"],
        ["model.blocks={every 2: {mixer: {kind: LightweightConvolution}}}"],
    ],
    ids=str,
)
@torch.no_grad()
def test_who_looks_changes_nothing_and_nothing_stays_in_the_model(changes: list[str]) -> None:
    model = drawn(changes).double()
    batch = plain(model, 10)
    before, seen, looked = model.logits(batch), maps(model, batch), []
    model.decoder.weights = looked.append
    torch.testing.assert_close(model.logits(batch), before, rtol=1e-10, atol=1e-10)
    model.decoder.weights = None
    assert seen or "Longformer" in str(changes)  # which has two softmaxes, one for each dilation
    assert all(np.allclose(each.weights.sum(-1), 1, atol=1e-5) for each in seen)
    assert {each.name for each in seen} <= dict(model.named_modules()).keys()
    assert torch.equal(model.logits(batch), before)
    assert not [module for module in model.modules() if module._forward_hooks or module._forward_pre_hooks]


def drawn(changes: list[str], **sections: Any) -> Any:
    config = load("decoder", ["size=tiny", "size.vocabulary=61", "size.length=16", *changes, "data=synthetic"])
    torch.manual_seed(0)
    return build_model({"model": config["model"], "size": config["size"], **sections}).eval()


def test_a_learned_prefix_stands_before_the_tokens_and_a_convolution_has_no_map() -> None:
    model = drawn([], tuning={"kind": "Prefix", "length": 3})
    for number, each in enumerate(maps(model, plain(model, 8))):
        assert (each.layer, each.before, each.weights.shape[-1], each.of_tokens.shape[-1]) == (number, 3, 11, 8)
    without = drawn(["model.block.mixer={kind: LightweightConvolution, kernel: 3}"])
    assert maps(without, plain(without)) == []


T = 8
PREVIOUS = np.eye(T, k=-1) + np.eye(T)[0][:, None] * np.eye(T)[0]


def of(weights: np.ndarray, slot: str = "mixer") -> Map:
    return Map("decoder.stack.blocks.0", "decoder", 0, slot, weights[None])


def test_the_scores_of_heads_whose_weights_are_known() -> None:
    (score,) = scores([of(PREVIOUS)], [of(PREVIOUS)])
    assert score["previous"] == score["positional"] == 1.0
    assert (score["offset"], score["induction"]) == (-1, 0.0)
    assert score["entropy"] == pytest.approx(0, abs=1e-12)
    assert score["distance"] == pytest.approx((T - 1) / T)
    (score,) = scores([of(np.full((T, T), 1 / T))])
    assert score["entropy"] == pytest.approx(math.log(T))
    assert score["previous"] == pytest.approx(1 / T)
    assert score["distance"] == pytest.approx(np.abs(np.subtract.outer(np.arange(T), np.arange(T))).mean())
    following = PREVIOUS.copy()
    following[T // 2 :] = np.eye(T)[1 : T // 2 + 1]
    assert scores([of(PREVIOUS)], [of(following)])[0]["induction"] == 1.0
    (score,) = scores([of(np.full((T, 3), 1 / 3), "cross")])
    assert score["entropy"] == pytest.approx(math.log(3))
    assert score["distance"] is score["previous"] is score["induction"] is None
