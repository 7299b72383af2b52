"""LoRA folders of peft: what its model computes ours computes, in both directions, and a wrong base is refused."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

from scaling.base.batch import Batch
from scaling.base.errors import ScalingError
from scaling.cli import main
from scaling.interop import huggingface, peft, weights
from scaling.interop.huggingface import Saved
from scaling.interop.run import read
from scaling.model.tuning import IA3, LoRA, Prompt

transformers = pytest.importorskip("transformers")
library: Any = pytest.importorskip("peft")

GPT2 = {"vocab_size": 61, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 20}
LAYERS = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 36}
LONG = {"vocab_size": 61, **LAYERS, "max_position_embeddings": 22}
T5 = {"vocab_size": 61, "d_model": 24, "d_kv": 5, "d_ff": 36, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}
# The model, its config, what peft tunes of it, and what we do.
MODELS: dict[str, tuple[str, dict[str, Any], list[str], list[str]]] = {
    "gpt2": ("GPT2LMHeadModel", GPT2, ["c_attn", "c_proj"], ["query", "value"]),
    "llama": (
        *("LlamaForCausalLM", {**LONG, "num_key_value_heads": 2}, ["q_proj", "v_proj"]),
        ["query", "key", "out", "channel"],
    ),
    "bert": ("BertForMaskedLM", LONG, ["query", "value", "intermediate.dense"], ["all"]),
    "t5": ("T5ForConditionalGeneration", {**T5, "decoder_start_token_id": 0}, ["q", "v", "wo"], ["cross", "key"]),
    "neox": ("GPTNeoXForCausalLM", LONG, ["query_key_value", "dense"], ["value"]),
}


def saved_base(name: str, folder: Path, **changes: Any) -> Any:
    kind = getattr(transformers, MODELS[name][0])
    torch.manual_seed(0)
    base = kind(kind.config_class(**{**MODELS[name][1], **changes})).eval()
    base.save_pretrained(folder)
    return base


@torch.no_grad()
def disturbed(model: Any, word: str) -> Any:
    draw = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if word in name:
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.3)
    return model


def logits_of(model: Any, name: str) -> torch.Tensor:
    tokens = torch.randint(3, 61, (2, 9), generator=torch.Generator().manual_seed(2))
    extra = {"decoder_input_ids": tokens.flip(1)} if name == "t5" else {}
    with torch.no_grad():
        return deepcopy(model).double()(input_ids=tokens, **extra).logits


def our_logits(saved: Saved, name: str) -> torch.Tensor:
    tokens = torch.randint(3, 61, (2, 9), generator=torch.Generator().manual_seed(2))
    batch = Batch(tokens.flip(1), tokens, source=tokens) if name == "t5" else Batch(tokens, tokens)
    with torch.no_grad():
        return saved.model().double().logits(batch)


@pytest.mark.parametrize("name", MODELS)
def test_an_adapter_of_peft_computes_the_same_here(tmp_path, name):
    config = library.LoraConfig(r=3, lora_alpha=5, target_modules=MODELS[name][2], fan_in_fan_out=name == "gpt2")
    tuned = disturbed(library.get_peft_model(saved_base(name, tmp_path / "base"), config), "lora_")
    tuned.save_pretrained(tmp_path / "adapter")
    ours = peft.read(tmp_path / "adapter", huggingface.read(tmp_path / "base"))
    expected = logits_of(tuned.eval(), name)
    torch.testing.assert_close(our_logits(ours, name), expected, rtol=1e-4, atol=2e-5)
    torch.testing.assert_close(our_logits(peft.merged(ours), name), expected, rtol=1e-4, atol=5e-5)
    # and back again
    peft.write(tmp_path / "again", ours)
    again = library.PeftModel.from_pretrained(saved_base(name, tmp_path / "base"), tmp_path / "again").eval()
    torch.testing.assert_close(logits_of(again, name), expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
def test_our_adapter_computes_the_same_in_peft(tmp_path, name):
    base = saved_base(name, tmp_path / "base")
    ours = tuned_here(huggingface.read(tmp_path / "base"), MODELS[name][3])
    peft.write(tmp_path / "adapter", ours)
    model = library.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    expected = our_logits(ours, name)
    assert not torch.allclose(expected, our_logits(huggingface.read(tmp_path / "base"), name), atol=1e-3)
    torch.testing.assert_close(logits_of(model, name), expected, rtol=1e-4, atol=2e-5)
    back = peft.read(tmp_path / "adapter", huggingface.read(tmp_path / "base"))
    assert back.tensors.keys() == ours.tensors.keys()
    torch.testing.assert_close(back.tensors, ours.tensors, rtol=1e-6, atol=1e-7)


def tuned_here(base: Saved, targets: list[str]) -> Saved:
    line: dict[str, Any] = {"rank": 2, "alpha": 3.0, "targets": targets}
    model = base.model()
    LoRA(**line).apply(model)
    disturbed(model, ".lora.")
    tensors = {name: tensor.detach() for name, tensor in weights.of(model).items()}
    return Saved({**base.sections, "tuning": {"kind": "LoRA", **line}}, tensors, base.ids)


def test_ranks_that_differ_and_rank_stabilised_scales_are_read(tmp_path):
    ranks = {"rank_pattern": {"layers.1.self_attn.q_proj": 4}, "alpha_pattern": {"v_proj": 7}}
    config = library.LoraConfig(r=2, lora_alpha=4, use_rslora=True, target_modules=["q_proj", "v_proj"], **ranks)
    tuned = disturbed(library.get_peft_model(saved_base("llama", tmp_path / "base"), config), "lora_")
    tuned.save_pretrained(tmp_path / "adapter")
    ours = peft.read(tmp_path / "adapter", huggingface.read(tmp_path / "base"))
    torch.testing.assert_close(our_logits(ours, "llama"), logits_of(tuned.eval(), "llama"), rtol=1e-4, atol=2e-5)


def test_an_adapter_of_another_base_is_refused(tmp_path):
    saved_base("gpt2", tmp_path / "base")
    base = huggingface.read(tmp_path / "base")
    peft.write(tmp_path / "adapter", tuned_here(base, ["query"]))
    other = Saved(base.sections, {name: tensor + 0.1 for name, tensor in base.tensors.items()}, base.ids)
    with pytest.raises(ScalingError, match="trained on another base; name the model"):
        peft.read(tmp_path / "adapter", other)
    for name, changes in (("other", {"initializer_range": 0.3}), ("wide", {"n_embd": 28})):
        saved_base("gpt2", tmp_path / name, **changes)  # a folder that is here is compared, or the shapes are
        named = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / name)
        tuned = library.get_peft_model(named, library.LoraConfig(target_modules=["c_attn"], fan_in_fan_out=True))
        tuned.save_pretrained(tmp_path / f"of_{name}")
        with pytest.raises(ScalingError, match=r"of another|another base"):
            peft.read(tmp_path / f"of_{name}", base)
    assert peft.read(tmp_path / "of_other", huggingface.read(tmp_path / "other")).sections["tuning"]["rank"] == 8
    saved_base("llama", tmp_path / "llama")
    with pytest.raises(ScalingError, match=r"another base|has no map transformer\.h\.0"):
        peft.read(tmp_path / "adapter", huggingface.read(tmp_path / "llama"))


def test_what_is_not_lora_is_refused_in_one_line(tmp_path):
    saved_base("gpt2", tmp_path / "base")
    base = huggingface.read(tmp_path / "base")
    peft.write(tmp_path / "adapter", tuned_here(base, ["query"]))
    file = tmp_path / "adapter" / peft.CONFIG
    config = json.loads(file.read_text())
    for key, value, words in (
        ("peft_type", "IA3", "LoRA alone is exchanged"),
        ("use_dora", True, "no tuning corresponds to it"),
        ("bias", "all", "no tuning corresponds to it"),
        ("init_lora_weights", "pissa", "this start changes the base"),
        ("lora_alpha", "x", "expected a number"),
        ("lora_dropout", [1], "expected a number"),
        ("alpha_pattern", 5, "expected keys with values"),
        ("alpha_pattern", {"(": 3}, "expected patterns of names"),
        ("base_model_name_or_path", 5, "expected text"),
    ):
        file.write_text(json.dumps({**config, key: value}))
        with pytest.raises(ScalingError) as refused:
            peft.read(tmp_path / "adapter", base)
        assert str(refused.value).startswith(f"{file}: {key}=")
        assert words in str(refused.value)
        assert "\n" not in str(refused.value)


def test_the_commands_carry_adapters(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    base = saved_base("gpt2", tmp_path / "base")
    config = library.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    tuned = disturbed(library.get_peft_model(base, config), "lora_").eval()
    tuned.save_pretrained("adapter")
    assert main(["import", "base", "--adapter", "adapter", "--to", "ours"]) == 0
    assert main(["export", "ours", "--adapter", "--to", "back"]) == 0
    assert main(["export", "ours", "--to", "whole"]) == 0
    expected = logits_of(tuned, "gpt2")
    torch.testing.assert_close(our_logits(read("ours"), "gpt2"), expected, rtol=1e-4, atol=2e-5)
    back = library.PeftModel.from_pretrained(saved_base("gpt2", tmp_path / "base"), "back").eval()
    torch.testing.assert_close(logits_of(back, "gpt2"), expected, rtol=1e-4, atol=2e-5)
    whole = transformers.AutoModelForCausalLM.from_pretrained("whole").eval()
    torch.testing.assert_close(logits_of(whole, "gpt2"), expected, rtol=1e-4, atol=5e-5)
    assert main(["import", "base", "--to", "plain"]) == 0
    assert main(["export", "plain", "--adapter"]) == 2
    assert "the model is not tuned" in capsys.readouterr().err


def test_gains_are_those_of_peft(tmp_path):
    targets = ["k_proj", "v_proj", "down_proj"]
    config = library.IA3Config(target_modules=targets, feedforward_modules=["down_proj"])
    tuned = disturbed(library.get_peft_model(saved_base("llama", tmp_path / "base"), config), "ia3_l").eval()
    saved = huggingface.read(tmp_path / "base")
    model = saved.model()
    IA3().apply(model)
    theirs_by_end = {"key.ia3.gain": "k_proj", "value.ia3.gain": "v_proj", "out.ia3.gain": "down_proj"}
    found = dict(tuned.named_parameters())
    for name, parameter in model.named_parameters():
        for end, module in theirs_by_end.items():
            if name.endswith(end):
                block = name.split(".")[3]
                (own,) = (gain for key, gain in found.items() if f"layers.{block}." in key and f"{module}.ia3" in key)
                parameter.data.copy_(own.flatten())
    tokens = torch.randint(3, 61, (2, 9), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        ours = model.double().logits(Batch(tokens, tokens))
    torch.testing.assert_close(ours, logits_of(tuned, "llama"), rtol=1e-4, atol=2e-5)


def test_a_prompt_is_that_of_peft_where_positions_are_relative(tmp_path):
    config = library.PromptTuningConfig(
        task_type="SEQ_2_SEQ_LM", num_virtual_tokens=4, num_transformer_submodules=1, token_dim=24
    )
    tuned = disturbed(library.get_peft_model(saved_base("t5", tmp_path / "base"), config), "prompt_encoder").eval()
    model = huggingface.read(tmp_path / "base").model()
    Prompt(length=4).apply(model)
    (vectors,) = (tensor for name, tensor in tuned.named_parameters() if "prompt_encoder" in name)
    model.get_parameter("encoder.prompt.vectors").data.copy_(vectors)
    tokens = torch.randint(3, 61, (2, 9), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(tokens)
    mask[0, 6:] = 0
    with torch.no_grad():
        expected = tuned.double()(input_ids=tokens, attention_mask=mask, decoder_input_ids=tokens.flip(1)).logits
        ours = model.double().logits(Batch(tokens.flip(1), tokens, source=tokens, source_documents=mask))
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=2e-5)
