"""LoRA folders of peft: what its model computes ours computes, in both directions, and a wrong base is refused."""

from __future__ import annotations

import json
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

LAYERS = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 36}
LONG = {"vocab_size": 61, **LAYERS, "max_position_embeddings": 22}
T5 = {"d_model": 24, "d_kv": 5, "d_ff": 36, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
# The model, its config, what peft tunes of it, and what we do.
MODELS: dict[str, tuple[str, dict[str, Any], list[str], list[str]]] = {
    "gpt2": (
        *("GPT2LMHeadModel", {"vocab_size": 61, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 20}),
        *(["c_attn", "c_proj"], ["query", "value"]),
    ),
    "llama": ("LlamaForCausalLM", {**LONG, "num_key_value_heads": 2}, ["q_proj", "v_proj"], ["query", "channel"]),
    "bert": ("BertForMaskedLM", LONG, ["query", "value", "intermediate.dense"], ["all"]),
    "t5": ("T5ForConditionalGeneration", {"vocab_size": 61, **T5}, ["q", "v", "wo"], ["cross", "key"]),
    "neox": ("GPTNeoXForCausalLM", LONG, ["query_key_value", "dense"], ["value"]),
}
TOKENS = torch.randint(3, 61, (2, 9), generator=torch.Generator().manual_seed(2))
EACH = pytest.mark.parametrize("name", MODELS)


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
    return model.eval()


def tuned_by_peft(name: str, folder: Path, **settings: Any) -> Any:
    """A model that peft tunes, in `adapter` beside its base."""
    base = type(saved_base(name, folder / "base")).from_pretrained(folder / "base")
    settings = {"r": 3, "target_modules": MODELS[name][2], "fan_in_fan_out": name == "gpt2", **settings}
    tuned = disturbed(library.get_peft_model(base, library.LoraConfig(**settings)), "lora_")
    tuned.save_pretrained(folder / "adapter")
    return tuned


def tuned_here(base: Saved, targets: list[str]) -> Saved:
    line: dict[str, Any] = {"rank": 2, "alpha": 3.0, "targets": targets}
    model = base.model()
    LoRA(**line).apply(model)
    disturbed(model, ".lora.")
    tensors = {name: tensor.detach() for name, tensor in weights.of(model).items()}
    return Saved({**base.sections, "tuning": {"kind": "LoRA", **line}}, tensors, base.ids)


@torch.no_grad()
def check(theirs: Any, ours: Any, name: str, mask: torch.Tensor | None = None) -> None:
    """The logits of peft's model and of ours, a model or what a folder holds, are the same."""
    extra: dict[str, Any] = {"decoder_input_ids": TOKENS.flip(1), "attention_mask": mask} if name == "t5" else {}
    batch = Batch(TOKENS, TOKENS)
    if name == "t5":
        batch = Batch(TOKENS.flip(1), TOKENS, source=TOKENS, source_documents=mask)
    model = (ours.model() if isinstance(ours, Saved) else ours).double()
    expected = theirs.double()(input_ids=TOKENS, **extra).logits
    torch.testing.assert_close(model.logits(batch), expected, rtol=1e-4, atol=5e-5)


@EACH
def test_an_adapter_of_peft_computes_the_same_here_and_back(tmp_path, name):
    tuned = tuned_by_peft(name, tmp_path, lora_alpha=5)
    ours = peft.read(tmp_path / "adapter", huggingface.read(tmp_path / "base"))
    check(tuned, ours, name)
    check(tuned, peft.merged(ours), name)
    peft.write(tmp_path / "again", ours)
    check(library.PeftModel.from_pretrained(saved_base(name, tmp_path / "base"), tmp_path / "again").eval(), ours, name)


@EACH
def test_our_adapter_computes_the_same_in_peft_and_back(tmp_path, name):
    base = saved_base(name, tmp_path / "base")
    ours = tuned_here(huggingface.read(tmp_path / "base"), MODELS[name][3])
    peft.write(tmp_path / "adapter", ours)
    check(library.PeftModel.from_pretrained(base, tmp_path / "adapter").eval(), ours, name)
    back = peft.read(tmp_path / "adapter", huggingface.read(tmp_path / "base"))
    assert back.tensors.keys() == ours.tensors.keys()
    torch.testing.assert_close(back.tensors, ours.tensors, rtol=1e-6, atol=1e-7)


def test_ranks_that_differ_and_rank_stabilised_scales_are_read(tmp_path):
    ranks = {"rank_pattern": {"layers.1.self_attn.q_proj": 4}, "alpha_pattern": {"v_proj": 7}}
    tuned = tuned_by_peft("llama", tmp_path, r=2, lora_alpha=4, use_rslora=True, **ranks)
    check(tuned, peft.read(tmp_path / "adapter", huggingface.read(tmp_path / "base")), "llama")


def test_an_adapter_of_another_base_is_refused(tmp_path):
    tuned_by_peft("gpt2", tmp_path)
    base = huggingface.read(tmp_path / "base")
    other = Saved(base.sections, {name: tensor + 0.1 for name, tensor in base.tensors.items()}, base.ids)
    with pytest.raises(ScalingError, match=r"another base|of another"):  # the folder that it names is here
        peft.read(tmp_path / "adapter", other)
    peft.write(tmp_path / "ours", tuned_here(base, ["query"]))
    with pytest.raises(ScalingError, match="trained on another base; name the model"):
        peft.read(tmp_path / "ours", other)
    saved_base("llama", tmp_path / "llama")
    with pytest.raises(ScalingError, match=r"another base|has no map transformer\.h\.0"):
        peft.read(tmp_path / "ours", huggingface.read(tmp_path / "llama"))


def test_what_is_not_lora_is_refused_in_one_line(tmp_path):
    saved_base("gpt2", tmp_path / "base")
    base = huggingface.read(tmp_path / "base")
    peft.write(tmp_path / "adapter", tuned_here(base, ["query"]))
    file = tmp_path / "adapter" / peft.CONFIG
    config = json.loads(file.read_text())
    for key, value, words in (
        ("peft_type", "IA3", "LoRA alone is exchanged"),
        ("use_dora", True, "no tuning corresponds to it"),
        ("init_lora_weights", "pissa", "this start changes the base"),
        ("lora_alpha", "x", "expected a number"),
        ("alpha_pattern", {"(": 3}, "expected patterns of names"),
    ):
        file.write_text(json.dumps({**config, key: value}))
        with pytest.raises(ScalingError) as refused:
            peft.read(tmp_path / "adapter", base)
        assert str(refused.value).startswith(f"{file}: {key}=")
        assert words in str(refused.value)
        assert "\n" not in str(refused.value)


def test_the_commands_carry_adapters(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tuned = tuned_by_peft("gpt2", tmp_path)
    assert main(["import", "base", "--adapter", "adapter", "--to", "ours"]) == 0
    assert main(["export", "ours", "--adapter", "--to", "back"]) == 0
    assert main(["export", "ours", "--to", "whole"]) == 0
    check(tuned, ours := read("ours"), "gpt2")
    check(library.PeftModel.from_pretrained(saved_base("gpt2", tmp_path / "base"), "back").eval(), ours, "gpt2")
    check(transformers.AutoModelForCausalLM.from_pretrained("whole").eval(), ours, "gpt2")
    assert main(["import", "base", "--to", "plain"]) == 0
    assert main(["export", "plain", "--adapter"]) == 2
    assert "the model is not tuned" in capsys.readouterr().err


def test_gains_are_those_of_peft(tmp_path):
    targets = ["k_proj", "v_proj", "down_proj"]
    config = library.IA3Config(target_modules=targets, feedforward_modules=["down_proj"])
    tuned = disturbed(library.get_peft_model(saved_base("llama", tmp_path / "base"), config), "ia3_l")
    model, found = huggingface.read(tmp_path / "base").model(), dict(tuned.named_parameters())
    IA3().apply(model)
    for name, parameter in model.named_parameters():
        for end, module in zip(("key.ia3.gain", "value.ia3.gain", "out.ia3.gain"), targets, strict=True):
            if name.endswith(end):
                block = name.split(".")[3]
                (own,) = (gain for key, gain in found.items() if f"layers.{block}." in key and f"{module}.ia3" in key)
                parameter.data.copy_(own.flatten())
    check(tuned, model, "llama")


def test_a_prompt_is_that_of_peft_where_positions_are_relative(tmp_path):
    config = library.PromptTuningConfig(
        task_type="SEQ_2_SEQ_LM", num_virtual_tokens=4, num_transformer_submodules=1, token_dim=24
    )
    tuned = disturbed(library.get_peft_model(saved_base("t5", tmp_path / "base"), config), "prompt_encoder")
    model = huggingface.read(tmp_path / "base").model()
    Prompt(length=4).apply(model)
    (vectors,) = (tensor for name, tensor in tuned.named_parameters() if "prompt_encoder" in name)
    model.get_parameter("encoder.prompt.vectors").data.copy_(vectors)
    mask = torch.ones_like(TOKENS)
    mask[0, 6:] = 0
    check(tuned, model, "t5", mask)
