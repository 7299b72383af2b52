"""Folders of transformers: read, written, and refused where they are not what they say; and parity with it."""

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file, save_file

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import ScalingError
from scaling.config import schema
from scaling.config.compose import load
from scaling.config.schema import build, overlay
from scaling.interop import huggingface, weights
from scaling.interop.formats import ClassifyingGPT2, Llama
from scaling.interop.huggingface import Saved
from scaling.interop.template import Name
from tests.command_line import refused
from tests.interop import parity

transformers = pytest.importorskip("transformers")

IDS = {"vocab_size": 61, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
GPT = {**IDS, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 20}
LAYERS = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 36}
LONG = {**IDS, **LAYERS, "max_position_embeddings": 22}
T5 = {**IDS, "d_model": 24, "d_kv": 5, "d_ff": 36, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}
TOWERS = {"layers": (2, 3), "attention_heads": (4, 2), "ffn_dim": (36, 20)}
BART = {**IDS, "d_model": 24, "decoder_start_token_id": 2, "max_position_embeddings": 20, "scale_embedding": True}
BART |= {f"{t}_{key}": value[n] for n, t in enumerate(("encoder", "decoder")) for key, value in TOWERS.items()}
GALACTICA = {**LONG, "ffn_dim": 36, "enable_bias": False, "layer_norm_elementwise_affine": False}
GROUPED = {"num_key_value_heads": 2, "head_dim": 8, "rope_theta": 500.0, "tie_word_embeddings": True}
UNTIED = {"tie_word_embeddings": False}
NEAR = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12}
# Configs of transformers that turn what can be turned; tests/interop/parity.py compares the plain ones.
THEIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", {**GPT, "n_inner": 30, "activation_function": "relu"}),
    "bert": ("BertForPreTraining", LONG),
    "bert masked": ("BertForMaskedLM", {**LONG, "type_vocab_size": 3, "hidden_act": "relu", "layer_norm_eps": 1e-3}),
    "bert classifying": ("BertForSequenceClassification", {**LONG, "num_labels": 3, "classifier_dropout": 0.3}),
    "bert answering": ("BertForQuestionAnswering", LONG),
    "roberta": ("RobertaForMaskedLM", {**LONG, "hidden_act": "relu"}),
    "t5 gated": ("T5ForConditionalGeneration", {**T5, **UNTIED, **NEAR, "feed_forward_proj": "gated-gelu"}),
    "bart": ("BartForConditionalGeneration", {**BART, "activation_function": "relu"}),
    "llama grouped": ("LlamaForCausalLM", {**LONG, **GROUPED, "attention_bias": True, "rms_norm_eps": 1e-3}),
    "neox serial": ("GPTNeoXForCausalLM", {**LONG, "use_parallel_residual": False, "hidden_act": "gelu_new"}),
    "galactica": ("OPTForCausalLM", {**GALACTICA, **UNTIED, "activation_function": "gelu"}),
    "bloom": ("BloomForCausalLM", {**IDS, **UNTIED, "hidden_size": 24, "n_layer": 2, "n_head": 3, "seq_length": 40}),
    "mistral windowless": ("MistralForCausalLM", {**LONG, **GROUPED, "sliding_window": None}),
}


def theirs(name) -> Any:
    architecture, config = THEIRS[name]
    kind = getattr(transformers, architecture)
    torch.manual_seed(0)
    model = kind(kind.config_class(**config)).eval()
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


@torch.no_grad()
def logits(model, tokens):
    said = model(input_ids=tokens, **({"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {}))
    if "start_logits" in said:
        return torch.stack([said.start_logits, said.end_logits], 1)
    return said.prediction_logits if "prediction_logits" in said else said.logits


@pytest.mark.parametrize("name", THEIRS)
def test_what_transformers_saves_is_read_and_written_again(name, tmp_path):
    model, tokens = theirs(name), torch.randint(3, 61, (2, 17))
    model.save_pretrained(tmp_path / "theirs")
    described, expected = huggingface.read(tmp_path / "theirs"), logits(model, tokens)
    found = described.model().logits(Batch(tokens, torch.full_like(tokens, IGNORE), source=tokens))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    named = THEIRS[name][0] if "windowless" in name else None  # which another format expresses as well
    form = huggingface.write(tmp_path / "ours", described, named)
    assert form.architecture == THEIRS[name][0]
    again = getattr(transformers, form.architecture).from_pretrained(tmp_path / "ours").eval()
    torch.testing.assert_close(logits(again, tokens), expected)
    kept = {key: value for key, value in model.config.to_dict().items() if key in IDS and key in THEIRS[name][1]}
    assert kept.items() <= again.config.to_dict().items()


@torch.no_grad()
def test_the_bias_of_a_classifier_is_a_part_of_gpt2s_last_norm(tmp_path):
    head = {"kind": "Sequence", "classes": 3, "dropout": 0.1}
    sections = {"model": overlay(load("gpt2")["model"], {"head": head, "tie": []}), "size": parity.SIZE}
    ours = build("model", sections["model"], sections["size"]).eval()
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    described = Saved(sections, weights.of(ours), {"pad": 1}, ("red", "green", "blue"))
    assert huggingface.write(tmp_path, described).architecture == "GPT2ForSequenceClassification"
    tokens = torch.randint(2, 97, (2, 17))
    expected = ours.logits(batch := Batch(tokens, tokens, reads=torch.full((2, 1), 16)))
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert model.config.id2label == {0: "red", 1: "green", 2: "blue"}
    torch.testing.assert_close(model(tokens).logits, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(huggingface.read(tmp_path).model().logits(batch), expected)
    wide = overlay(sections["model"], {"head": {**head, "classes": parity.SIZE["width"] + 9}})
    many = build("model", wide, sections["size"])
    torch.nn.init.normal_(many.head.out.bias)
    with pytest.raises(ScalingError, match="with more classes than width no norm has the effect"):
        huggingface.write(tmp_path, Saved({**sections, "model": wide}, weights.of(many), {"pad": 1}, ()))


def test_a_model_that_transformers_lacks_is_told_by_its_first_difference():
    for lines, key, has in (
        ({"position": "ALiBi"}, "model.position.kind", "Rotary"),
        ({"block": {"mixer": {"scale": "width"}}}, "model.block.mixer.scale", "sqrt"),
    ):
        model = overlay(load("llama")["model"], lines)
        with pytest.raises(ScalingError, match=f"the nearest, LlamaForCausalLM, has {has}") as caught:
            huggingface.choose({"model": model, "size": parity.SIZE})
        assert caught.value.key == key


def test_a_format_of_ones_own_is_tried_first_and_read_by_its_own_names(tmp_path, monkeypatch):
    class Skewed(Llama):
        architecture = "SkewedForCausalLM"
        config: ClassVar = {"model_type": "skewed"}
        names = tuple(Name(n.ours, n.theirs.replace("model.", "trunk."), n.layout) for n in Llama.names)
        prefix = "trunk."

    monkeypatch.setattr(schema, "_joined", {("format", "Skewed"): ("", Skewed)})
    sections = {"model": load("llama")["model"], "size": parity.SIZE}
    was = weights.of(build("model", sections["model"], sections["size"]))
    assert huggingface.write(tmp_path, Saved(sections, was)) is Skewed
    assert "trunk.embed_tokens.weight" in weights.read(tmp_path / FILE)
    again = huggingface.read(tmp_path).tensors
    assert all(torch.equal(again[name], tensor) for name, tensor in was.items())


def changed(folder, by):
    stored = load_file(folder / FILE)
    by(stored)
    save_file(stored, folder / FILE, {"format": "pt"})


def configured(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def elsewhere(folder):
    (folder / FILE).rename(folder.parent / "other.safetensors")
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "../other.safetensors"}}))


def spoil(tensors):
    del tensors["transformer.h.1.ln_2.bias"]
    tensors["transformer.h.7.ln_1.bias"] = torch.zeros(24)
    tensors["transformer.h.0.mlp.c_fc.weight"] = torch.zeros(30, 24)


def eighth(tensors):
    tensors["transformer.wte.weight"] = tensors["transformer.wte.weight"].to(torch.int8)


FILE, INDEX, COPY = weights.FILE, weights.INDEX, "cls.predictions.decoder.weight"
DAMAGED: list[tuple[str, Any, str]] = [
    ("gpt2", lambda folder: (folder / FILE).write_text("garbage"), f"{FILE}: it is not a whole safetensors file"),
    ("gpt2", lambda folder: (folder / FILE).rename(folder / "pytorch_model.bin"), "pickles are not read"),
    ("gpt2", elsewhere, "lists ../other.safetensors, which is not next to it"),
    ("gpt2", lambda folder: changed(folder, spoil), "transformer.h.0.mlp.c_fc.weight is 30×24 instead of 24×30"),
    ("gpt2", lambda folder: changed(folder, spoil), "missing transformer.h.1.ln_2.bias, extra transformer.h.7"),
    ("gpt2", lambda folder: changed(folder, eighth), "transformer.wte.weight is of type int8, which is not read"),
    ("bert", lambda folder: changed(folder, lambda t: t.update({COPY: torch.ones(61, 24)})), f"{COPY} should be bert"),
    ("bart", lambda folder: changed(folder, lambda t: t["final_logits_bias"].add_(1)), "bias should be zero"),
    # A format of two, the first of which wants a window.
    ("mistral windowless", lambda folder: changed(folder, lambda t: t.pop("model.norm.weight")), "missing model.norm"),
    ("llama grouped", lambda folder: configured(folder, num_attention_heads=5), "5 heads cannot share"),
    ("llama grouped", lambda folder: configured(folder, rope_parameters={"rope_type": "yarn"}), "rope_type='yarn'"),
    ("bert", lambda folder: configured(folder, architectures=5), "architectures=5: expected a list of"),
    ("bert", lambda folder: configured(folder, model_type="skewed"), "model_type='skewed': no table for it"),
]


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGED, ids=[message for *_, message in DAMAGED])
def test_a_damaged_folder_is_refused_in_one_line(name, damage, message, tmp_path, capsys):
    theirs(name).save_pretrained(tmp_path / "theirs")
    damage(tmp_path / "theirs")
    error = refused(capsys, "import", tmp_path / "theirs", "--to", tmp_path / "out")
    assert message in error
    assert error.startswith(f"scaling: {tmp_path / 'theirs'}")
    assert not (tmp_path / "out").exists()


def test_old_words_second_names_masks_shards_left_out_tables_and_several_ids_are_understood(tmp_path):
    model = theirs("bert")
    model.save_pretrained(tmp_path)
    before = huggingface.read(tmp_path).tensors

    def older(tensors):
        for name in [name for name in tensors if "LayerNorm" in name]:
            old = name.replace("weight", "gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[old] = tensors.pop(name)
        tensors[COPY] = model.bert.embeddings.word_embeddings.weight.detach().clone()
        tensors["bert.embeddings.position_ids"] = torch.arange(22)[None]

    changed(tmp_path, older)
    configured(tmp_path, eos_token_id=[7, 2])  # as Llama 3's
    after = huggingface.read(tmp_path)
    assert after.ids["eos"] == 7
    assert all(torch.equal(after.tensors[name], tensor) for name, tensor in before.items())
    (tmp_path / FILE).unlink()
    model.save_pretrained(tmp_path, max_shard_size="8KB")
    assert (tmp_path / INDEX).is_file()
    assert all(torch.equal(before[name], tensor) for name, tensor in huggingface.read(tmp_path).tensors.items())
    theirs("t5 gated").save_pretrained(tmp_path / "t5")
    tied = huggingface.read(tmp_path / "t5").tensors
    assert torch.equal(tied["head.weight"], tied["encoder.embedding.table"])
    changed(tmp_path / "t5", lambda tensors: tensors.update({"lm_head.weight": torch.ones(61, 24)}))
    assert torch.equal(huggingface.read(tmp_path / "t5").tensors["head.weight"], torch.ones(61, 24))


def test_all_formats_are_compared():
    forms = {huggingface.choose(parity.sections(name), parity.NAMED.get(name))[0] for name in parity.COMPARED}
    # The head of the one left out has no bias, so that its gradients are others.
    assert forms == set(huggingface.formats().values()) - {ClassifyingGPT2}


COMPARED = [*parity.MODELS, *(pytest.param(name, marks=pytest.mark.slow) for name in parity.VARIANTS)]


@pytest.mark.parametrize("dtype", parity.BOUNDS, ids=str)
@pytest.mark.parametrize("model", COMPARED)
def test_logits_and_gradients_agree(model, dtype):
    both = parity.pair(model, dtype)
    for case in (case for case in parity.cases(model) if case.dtype == dtype):
        assert parity.difference(case, both) < parity.BOUNDS[dtype], case
        if case.reading == "whole" and (dtype == torch.float64 or case.padding == "none"):
            assert parity.gradient_difference(case, both) < parity.BOUNDS[dtype], case


def test_the_document_holds_every_comparison_within_its_bound():
    text = (Path(__file__).parents[2] / "docs" / "parity.md").read_text()
    for model in parity.COMPARED:
        for padding in {case.padding for case in parity.cases(model)}:
            (row,) = re.findall(rf"^\| {model} \| {padding} \|(.*)\|$", text, re.MULTILINE)
            for cell, bound in zip(row.split("|"), [1e-4] * 3 + [1e-9] * 3, strict=True):
                assert cell.strip() == "–" or float(cell) < bound
