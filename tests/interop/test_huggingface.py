"""Folders of transformers: read, written, and refused where they are not what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import ScalingError
from scaling.cli import main
from scaling.config.compose import load
from scaling.config.schema import build, overlay
from scaling.interop import huggingface, weights
from scaling.interop.formats import ClassifyingGPT2
from scaling.interop.huggingface import Saved
from tests.interop import parity

transformers = pytest.importorskip("transformers")

SHARED = {"vocab_size": 61, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
GPT = {**SHARED, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 20}
LONG = {
    **SHARED,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 36,
    "max_position_embeddings": 22,
}
T5 = {**SHARED, "d_model": 24, "d_kv": 5, "d_ff": 36, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}
BART = {
    **SHARED,
    "d_model": 24,
    "decoder_start_token_id": 2,
    "max_position_embeddings": 20,
    "scale_embedding": True,
    **{f"encoder_{key}": value for key, value in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 36))},
    **{f"decoder_{key}": value for key, value in (("layers", 3), ("attention_heads", 2), ("ffn_dim", 20))},
}
GALACTICA = {**LONG, "ffn_dim": 36, "enable_bias": False, "layer_norm_elementwise_affine": False}
GROUPED = {"num_key_value_heads": 2, "head_dim": 8, "rope_theta": 500.0, "tie_word_embeddings": True}
DISTILBERT = {"vocab_size": 61, "dim": 24, "n_layers": 2, "n_heads": 4, "hidden_dim": 36, "max_position_embeddings": 20}
UNTIED = {"tie_word_embeddings": False}
# Configs of transformers that turn what can be turned; tests/interop/parity.py compares the plain ones.
THEIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", {**GPT, "n_inner": 30, "activation_function": "relu"}),
    "bert": ("BertForPreTraining", LONG),
    "bert masked": ("BertForMaskedLM", {**LONG, "type_vocab_size": 3, "hidden_act": "relu", "layer_norm_eps": 1e-3}),
    "bert classifying": ("BertForSequenceClassification", {**LONG, "num_labels": 3, "classifier_dropout": 0.3}),
    "bert tagging": ("BertForTokenClassification", {**LONG, "num_labels": 9, "type_vocab_size": 3}),
    "bert answering": ("BertForQuestionAnswering", LONG),
    "roberta classifying": ("RobertaForSequenceClassification", {**LONG, "num_labels": 3}),
    "xlm-r": ("XLMRobertaForMaskedLM", {**LONG, "type_vocab_size": 1}),
    "t5 gated": ("T5ForConditionalGeneration", {**T5, **UNTIED, "feed_forward_proj": "gated-gelu"}),
    "bart": ("BartForConditionalGeneration", {**BART, "activation_function": "relu"}),
    "marian": ("MarianMTModel", {**BART, "activation_function": "swish"}),
    "llama": ("LlamaForCausalLM", {**LONG, "rms_norm_eps": 1e-3}),
    "llama grouped": ("LlamaForCausalLM", {**LONG, **GROUPED, "attention_bias": True}),
    "neox serial": ("GPTNeoXForCausalLM", {**LONG, "use_parallel_residual": False, "hidden_act": "gelu_new"}),
    "galactica": ("OPTForCausalLM", {**GALACTICA, **UNTIED, "activation_function": "gelu"}),
    "bloom": ("BloomForCausalLM", {**SHARED, **UNTIED, "hidden_size": 24, "n_layer": 2, "n_head": 3, "seq_length": 40}),
    "distilbert": ("DistilBertForMaskedLM", {**DISTILBERT, **UNTIED, "activation": "relu"}),
    "distilbert classifying": ("DistilBertForSequenceClassification", {**DISTILBERT, "num_labels": 4}),
    "electra plain": ("ElectraForMaskedLM", {**LONG, "embedding_size": 24, "hidden_act": "relu"}),
    "albert masked": ("AlbertForMaskedLM", {**LONG, "embedding_size": 8, "hidden_act": "gelu", "type_vocab_size": 1}),
    "mistral windowless": ("MistralForCausalLM", {**LONG, **GROUPED, "sliding_window": None}),
    "gemma": ("GemmaForCausalLM", {**LONG, **UNTIED, "num_key_value_heads": 2, "head_dim": 10, "hidden_act": "gelu"}),
}
# Models that another format expresses as well.
WRITTEN = {name: THEIRS[name][0] for name in ("xlm-r", "electra plain", "mistral windowless")}


def theirs(name: str) -> Any:
    architecture, config = THEIRS[name]
    kind = getattr(transformers, architecture)
    torch.manual_seed(0)
    model = kind(kind.config_class(**config)).eval()
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def logits(model: Any, tokens: Tensor) -> Tensor:
    given = {"decoder_input_ids": tokens} if model.config.is_encoder_decoder else {}
    said = model(input_ids=tokens, **given)
    if "start_logits" in said:
        return torch.stack([said.start_logits, said.end_logits], 1)
    return said.prediction_logits if "prediction_logits" in said else said.logits


@pytest.mark.parametrize("name", THEIRS)
def test_what_transformers_saves_is_read_and_written_again(name: str, tmp_path: Path) -> None:
    model = theirs(name)
    model.save_pretrained(tmp_path / "theirs")
    described = huggingface.read(tmp_path / "theirs")
    tokens = torch.randint(3, 61, (2, 17))
    with torch.no_grad():
        expected = logits(model, tokens)
        found = described.model().logits(Batch(tokens, torch.full_like(tokens, IGNORE), source=tokens))
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    form = huggingface.write(tmp_path / "ours", described, WRITTEN.get(name))
    assert form.architecture == THEIRS[name][0]
    again = getattr(transformers, form.architecture).from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        torch.testing.assert_close(logits(again, tokens), expected)
    kept = {key: value for key, value in model.config.to_dict().items() if key in SHARED and key in THEIRS[name][1]}
    assert kept.items() <= again.config.to_dict().items()


def test_the_bias_of_a_classifier_is_a_part_of_gpt2s_last_norm(tmp_path: Path) -> None:
    head = {"kind": "Sequence", "classes": 3, "dropout": 0.1}
    sections = {"model": overlay(load("gpt2")["model"], {"head": head, "tie": []}), "size": parity.SIZE}
    ours = build("model", sections["model"], sections["size"]).eval()
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    described = Saved(sections, weights.of(ours), {"pad": 1}, ("red", "green", "blue"))
    assert huggingface.write(tmp_path, described).architecture == "GPT2ForSequenceClassification"
    tokens = torch.randint(2, 97, (2, 17))
    batch = Batch(tokens, tokens, reads=torch.full((2, 1), 16))
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert model.config.id2label == {0: "red", 1: "green", 2: "blue"}
    with torch.no_grad():
        torch.testing.assert_close(model(tokens).logits, ours.logits(batch), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(huggingface.read(tmp_path).model().logits(batch), ours.logits(batch))


@pytest.mark.parametrize(
    ("lines", "key", "has"),
    [
        ({"position": "ALiBi"}, "model.position.kind", "Rotary"),
        ({"block": {"norm": "LayerNorm"}}, "model.block.norm.kind", "RMSNorm"),
        ({"stack": {"distinct": 1}}, "model.stack.distinct", "None"),
        ({"block": {"mixer": {"scale": "width"}}}, "model.block.mixer.scale", "sqrt"),
    ],
)
def test_a_model_that_transformers_lacks_is_told_by_its_first_difference(lines: dict, key: str, has: str) -> None:
    model = overlay(load("llama")["model"], lines)
    with pytest.raises(ScalingError, match=f"the nearest, LlamaForCausalLM, has {has}") as caught:
        huggingface.choose({"model": model, "size": parity.SIZE})
    assert caught.value.key == key


def test_old_words_second_names_and_masks_are_understood(tmp_path: Path) -> None:
    model = theirs("bert")
    model.save_pretrained(tmp_path)
    table = model.bert.embeddings.word_embeddings.weight.detach().clone()

    def older(tensors: dict[str, Tensor]) -> None:
        for name in [name for name in tensors if "LayerNorm" in name]:
            old = name.replace("weight", "gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[old] = tensors.pop(name)
        tensors["cls.predictions.decoder.weight"] = table.clone()
        tensors["bert.embeddings.position_ids"] = torch.arange(22)[None]

    before = huggingface.read(tmp_path).tensors
    change(tmp_path, older)
    after = huggingface.read(tmp_path).tensors
    assert all(torch.equal(before[name], after[name]) for name in before)
    change(tmp_path, lambda tensors: tensors["cls.predictions.decoder.weight"].add_(1))
    with pytest.raises(ScalingError, match=r"cls\.predictions\.decoder\.weight should be bert\.embeddings"):
        huggingface.read(tmp_path)


def test_tables_and_biases_that_a_format_lacks_or_keeps(tmp_path: Path) -> None:
    theirs("t5 gated").save_pretrained(tmp_path)
    tied = huggingface.read(tmp_path).tensors
    assert torch.equal(tied["head.weight"], tied["encoder.embedding.table"])
    change(tmp_path, lambda tensors: tensors.update({"lm_head.weight": torch.ones(61, 24)}))
    assert torch.equal(huggingface.read(tmp_path).tensors["head.weight"], torch.ones(61, 24))
    theirs("bart").save_pretrained(tmp_path)
    change(tmp_path, lambda tensors: tensors["final_logits_bias"].add_(1))
    with pytest.raises(ScalingError, match="final_logits_bias should be zero"):
        huggingface.read(tmp_path)
    theirs("mistral windowless").save_pretrained(tmp_path / "mistral")  # whose first format wants a window
    change(tmp_path / "mistral", lambda tensors: tensors.pop("model.norm.weight"))
    with pytest.raises(ScalingError, match=r"missing model\.norm\.weight"):
        huggingface.read(tmp_path / "mistral")


def test_shards_are_read(tmp_path: Path) -> None:
    model = theirs("llama")
    model.save_pretrained(tmp_path, max_shard_size="8KB")
    assert (tmp_path / weights.INDEX).is_file()
    described = huggingface.read(tmp_path)
    assert torch.equal(described.tensors["head.weight"], model.lm_head.weight)
    index = json.loads((tmp_path / weights.INDEX).read_text())
    index["weight_map"]["lm_head.weight"] = "../elsewhere.safetensors"
    (tmp_path / weights.INDEX).write_text(json.dumps(index))
    with pytest.raises(ScalingError, match="not next to it"):
        huggingface.read(tmp_path)


def test_wrong_tensors_are_named_each_on_one_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    theirs("gpt2").save_pretrained(tmp_path / "gpt2")

    def spoil(tensors: dict[str, Tensor]) -> None:
        del tensors["transformer.h.1.ln_2.bias"], tensors["transformer.wpe.weight"]
        tensors["transformer.h.7.ln_1.bias"] = torch.zeros(24)
        tensors["transformer.h.0.mlp.c_fc.weight"] = torch.zeros(30, 24)

    change(tmp_path / "gpt2", spoil)
    capsys.readouterr()
    assert main(["import", str(tmp_path / "gpt2"), "--to", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    for complaint in (
        "missing transformer.h.1.ln_2.bias",
        "missing transformer.wpe.weight",
        "extra transformer.h.7.ln_1.bias",
        "transformer.h.0.mlp.c_fc.weight is 30×24 instead of 24×30",
        "model.safetensors",
    ):
        assert complaint in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda config: config.pop("hidden_size"), "hidden_size: it is not there"),
        (lambda config: config.update(hidden_size="wide"), "size.width='wide'"),
        (lambda config: config.update(num_attention_heads=5), "5 heads cannot share"),
        (lambda config: config.update(hidden_act="geluu"), "hidden_act='geluu': no piece corresponds to it; did you"),
        (lambda config: config.update(rope_scaling={"factor": 2.0}), "rope_scaling"),
        (lambda config: config["rope_parameters"].update(rope_type="yarn"), "rope_parameters.rope_type='yarn'"),
    ],
)
def test_a_config_that_cannot_be_is_refused(spoil: Callable[[dict], Any], told: str, tmp_path: Path) -> None:
    theirs("llama").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    spoil(config)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ScalingError) as caught:
        huggingface.read(tmp_path)
    assert told in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "config.json"))


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, "there is no config.json"),
        ({"config.json": "{"}, "it is no JSON"),
        ({"model.safetensors": "garbage"}, "no whole safetensors file"),
        ({"model.safetensors": None}, "there is no model.safetensors"),
        ({"model.safetensors": None, "pytorch_model.bin": "x"}, "pickles are not read"),
        ({"model.safetensors": None, "model.safetensors.index.json": "{}"}, "does not list the weight files"),
    ],
)
def test_a_folder_that_is_none_is_refused(files: dict[str, str | None], told: str, tmp_path: Path) -> None:
    if files:
        theirs("gpt2").save_pretrained(tmp_path)
    for name, content in files.items():
        (tmp_path / name).unlink(missing_ok=True)
        if content is not None:
            (tmp_path / name).write_text(content)
    with pytest.raises(ScalingError, match=told):
        huggingface.read(tmp_path)


def change(folder: Path, by: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = load_file(folder / weights.FILE)
    by(tensors)
    save_file(tensors, folder / weights.FILE, {"format": "pt"})


def test_all_models_of_record_that_have_a_format_are_compared() -> None:
    for model in parity.MODELS:
        size = parity.SIZES.get(model, parity.SIZE)
        with torch.device("meta"):
            build("model", load(model)["model"], size)
    forms = {huggingface.choose(parity.sections(name), parity.NAMED.get(name))[0] for name in parity.COMPARED}
    every = huggingface.formats().values()
    assert forms == set(every) - {ClassifyingGPT2}  # whose head has no bias, so that its gradients are others
    for form in every:
        assert len({pair.theirs for pair in form.names}) == len(form.names)
        assert len({name for pair in form.names for name in pair.ours}) == sum(len(pair.ours) for pair in form.names)
