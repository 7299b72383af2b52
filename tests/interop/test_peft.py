"""LoRA folders of peft: what its model computes ours computes, in both directions, and a wrong base is refused."""

import json
from typing import Any

import pytest
import torch

from scaling.base.batch import Batch
from scaling.interop import huggingface, peft, weights
from scaling.interop.huggingface import Saved
from scaling.interop.run import read
from scaling.model.tuning import IA3, LoRA, Prompt
from scaling.verbs.command_line import main
from tests.command_line import refused, refuses
from tests.interop.test_huggingface import theirs, transformers

library: Any = pytest.importorskip("peft")

# A model of test_huggingface.py, what peft tunes of it, and what we do: maps of a role, name, slot or pattern.
MODELS = {
    "gpt2": ("gpt2", ["c_attn", "c_proj"], ["query", "value"]),
    "llama": ("llama grouped", ["q_proj", "v_proj"], ["query", "channel"]),
    "bert": ("bert masked", ["query", "value", "intermediate.dense"], ["all"]),
    "t5": ("t5 gated", ["q", "v", "wo"], ["cross", "key"]),
    "neox": ("neox serial", ["query_key_value", "dense"], ["*.blocks.1.*.value"]),
}
TOKENS = torch.randint(3, 61, (2, 9), generator=torch.Generator().manual_seed(2))


def saved_base(name, folder):
    base = theirs(MODELS[name][0])
    base.save_pretrained(folder)
    return base


@torch.no_grad()
def disturbed(model, word):
    draw = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if word in name:
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.3)
    return model.eval()


def tuned_by_peft(name, folder, **settings):
    """A model that peft tunes, in `adapter` beside its base."""
    base = type(saved_base(name, folder / "base")).from_pretrained(folder / "base")
    settings = {"r": 3, "target_modules": MODELS[name][1], "fan_in_fan_out": name == "gpt2", **settings}
    tuned = disturbed(library.get_peft_model(base, library.LoraConfig(**settings)), "lora_")
    tuned.save_pretrained(folder / "adapter")
    return tuned


def tuned_here(base, targets):
    line: dict[str, Any] = {"rank": 2, "alpha": 3.0, "targets": targets}
    model = base.model()
    LoRA(**line).apply(model)
    disturbed(model, ".lora.")
    tensors = {name: tensor.detach() for name, tensor in weights.of(model).items()}
    return Saved({**base.sections, "tuning": {"kind": "LoRA", **line}}, tensors, base.ids)


@torch.no_grad()
def check(tuned, ours, name, mask=None):
    """The logits of peft's model and of ours, a model or what a folder holds, are the same."""
    extra: dict[str, Any] = {"decoder_input_ids": TOKENS.flip(1), "attention_mask": mask} if name == "t5" else {}
    both = {"source": TOKENS, "source_documents": mask} if name == "t5" else {}
    batch = Batch(TOKENS.flip(1) if both else TOKENS, TOKENS, **both)
    model = (ours.model() if isinstance(ours, Saved) else ours).double()
    expected = tuned.double()(input_ids=TOKENS, **extra).logits
    torch.testing.assert_close(model.logits(batch), expected, rtol=1e-4, atol=5e-5)


@pytest.mark.parametrize("name", MODELS)
def test_an_adapter_of_peft_computes_the_same_here_and_ours_in_peft_and_both_go_back(tmp_path, name):
    tuned = tuned_by_peft(name, tmp_path, lora_alpha=5)
    ours = peft.read(tmp_path / "adapter", huggingface.read(tmp_path / "base"))
    check(tuned, ours, name)
    check(tuned, peft.merged(ours), name)
    for adapter in (ours, own := tuned_here(huggingface.read(tmp_path / "base"), MODELS[name][2])):
        peft.write(tmp_path / "again", adapter)
        base = saved_base(name, tmp_path / "base")
        check(library.PeftModel.from_pretrained(base, tmp_path / "again").eval(), adapter, name)
    back = peft.read(tmp_path / "again", huggingface.read(tmp_path / "base"))
    assert back.tensors.keys() == own.tensors.keys()
    torch.testing.assert_close(back.tensors, own.tensors, rtol=1e-6, atol=1e-7)


def test_an_adapter_keeps_its_rank_where_maps_share_it_and_one_that_is_not_trained_is_read(tmp_path):
    tuned_by_peft("gpt2", tmp_path)
    theirs, base = weights.read(tmp_path / "adapter" / peft.FILE), huggingface.read(tmp_path / "base")
    for scale in (1.0, 0.0):
        changed = {name: tensor * scale if "lora_B" in name else tensor for name, tensor in theirs.items()}
        weights.save(tmp_path / "adapter" / peft.FILE, changed)
        peft.write(tmp_path / "again", peft.read(tmp_path / "adapter", base))
        torch.testing.assert_close(weights.read(tmp_path / "again" / peft.FILE), changed)


def test_ranks_that_differ_and_rank_stabilised_scales_are_read(tmp_path):
    ranks = {"rank_pattern": {"layers.1.self_attn.q_proj": 4}, "alpha_pattern": {"v_proj": 7}}
    tuned = tuned_by_peft("llama", tmp_path, r=2, lora_alpha=4, use_rslora=True, **ranks)
    check(tuned, peft.read(tmp_path / "adapter", huggingface.read(tmp_path / "base")), "llama")


def test_the_commands_carry_adapters_and_another_base_and_what_is_not_lora_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tuned = tuned_by_peft("gpt2", tmp_path)
    assert main(["import", "base", "--adapter", "adapter", "--to", "tuned"]) == 0
    assert main(["export", "tuned", "--adapter", "--to", "back"]) == 0
    assert main(["export", "tuned", "--to", "whole"]) == 0
    check(tuned, imported := read("tuned"), "gpt2")
    check(library.PeftModel.from_pretrained(saved_base("gpt2", tmp_path / "base"), "back").eval(), imported, "gpt2")
    check(transformers.AutoModelForCausalLM.from_pretrained("whole").eval(), imported, "gpt2")
    assert main(["import", "base", "--to", "plain"]) == 0
    assert "the model is not tuned" in refused(capsys, "export", "plain", "--adapter")
    base = huggingface.read(tmp_path / "base")
    other = Saved(base.sections, {name: tensor + 0.1 for name, tensor in base.tensors.items()}, base.ids)
    peft.write(tmp_path / "ours", tuned_here(base, ["query"]))
    for folder in ("adapter", "ours"):  # the folder that the first names is here, and the second has a hash
        refuses("trained on another base", peft.read, tmp_path / folder, other)
    file = tmp_path / "ours" / peft.CONFIG
    config = json.loads(file.read_text())
    for key, value, words in (
        ("peft_type", "IA3", "LoRA alone is exchanged"),
        ("use_dora", True, "no tuning corresponds to it"),
        ("alpha_pattern", {"(": 3}, "expected patterns of names"),
    ):
        file.write_text(json.dumps({**config, key: value}))
        refuses(rf"^{file}: {key}=.*{words}", peft.read, tmp_path / "ours", base)


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
    keys = {"num_virtual_tokens": 4, "num_transformer_submodules": 1, "token_dim": 24}
    config = library.PromptTuningConfig(task_type="SEQ_2_SEQ_LM", **keys)
    tuned = disturbed(library.get_peft_model(saved_base("t5", tmp_path / "base"), config), "prompt_encoder")
    model = huggingface.read(tmp_path / "base").model()
    Prompt(length=4).apply(model)
    (vectors,) = (tensor for name, tensor in tuned.named_parameters() if "prompt_encoder" in name)
    model.get_parameter("encoder.prompt.vectors").data.copy_(vectors)
    mask = torch.ones_like(TOKENS)
    mask[0, 6:] = 0
    check(tuned, model, "t5", mask)
