"""Formats: which one a model is written in, and those that join from outside."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch

from scaling.base.errors import ScalingError
from scaling.cli import main
from scaling.config import schema
from scaling.config.compose import load
from scaling.config.schema import overlay
from scaling.interop import huggingface, weights
from scaling.interop import run as runs
from scaling.interop.huggingface import Saved
from tests.interop import parity

MINE = '''
from scaling.interop.formats import Llama
from scaling.interop.template import Name


class Skewed(Llama):
    """Llama whose positions are ALiBi's, with a table of another name. (A paper, 2026)"""

    architecture = "SkewedForCausalLM"
    config = {"model_type": "skewed"}
    model = {**Llama.model, "position": "ALiBi"}
    names = tuple(Name(n.ours, n.theirs.replace("model.", "trunk."), n.layout) for n in Llama.names)
    prefix = "trunk."
'''


def sections(model: str, lines: dict[str, Any] | None = None, /, **sizes: Any) -> dict[str, Any]:
    return {"model": overlay(load(model)["model"], lines or {}), "size": {**parity.SIZE, **sizes}}


def described(parts: dict[str, Any]) -> Saved:
    torch.manual_seed(0)
    return Saved(parts, weights.of(schema.build("model", parts["model"], parts["size"])))


@pytest.fixture
def llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Saved:
    """A model, in the folder `mine` of the working directory."""
    monkeypatch.chdir(tmp_path)
    saved = described(sections("llama"))
    runs.write("mine", saved, "here")
    return saved


def extension(text: str = MINE) -> str:
    Path("mine.py").write_text(text)
    return "mine.py"


def test_sizes_that_one_format_cannot_have_hide_no_other() -> None:
    odd = {"width": 32, "heads": 3, "head_width": 8, "layers": 2}
    assert huggingface.choose(sections("llama", **odd))[0].architecture == "LlamaForCausalLM"
    segments = {"embedding": {"segments": 0}}
    refused = {"size.heads": sections("gpt2", **odd), "model.embedding.segments": sections("bert", segments, hidden=8)}
    for key, parts in refused.items():
        with pytest.raises(ScalingError, match=r"32 is not divisible by 3 heads|has 2") as caught:
            huggingface.choose(parts)
        assert caught.value.key == key


def test_files_have_the_mode_that_the_umask_leaves(llama: Saved) -> None:
    before = os.umask(0o022)
    try:
        runs.write("ours", llama, "here")
        assert main(["export", "ours", "--to", "theirs"]) == 0
    finally:
        os.umask(before)
    files = [path for folder in ("ours", "theirs") for path in Path(folder).iterdir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o644}


def test_a_format_of_ones_own_is_written_read_and_explained(
    llama: Saved, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    was = described(sections("llama", {"position": "ALiBi"}))
    runs.write("mine", was, "here")
    mine = extension()
    assert main(["export", "mine"]) == 2
    assert "the nearest, LlamaForCausalLM, has Rotary" in capsys.readouterr().err
    assert main(["export", "mine", "--extend", mine, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["architecture"] == "SkewedForCausalLM"
    assert json.loads(Path("mine-hf/config.json").read_text())["model_type"] == "skewed"
    assert "trunk.embed_tokens.weight" in weights.read(Path("mine-hf/model.safetensors"))
    monkeypatch.setattr(schema, "_joined", {})
    assert main(["import", "mine-hf", "--to", "again"]) == 2
    assert "model_type='skewed': no table for it" in capsys.readouterr().err
    assert main(["import", "mine-hf", "--to", "again", "--extend", mine]) == 0
    again = runs.read("again")
    assert again.sections["model"]["position"] == "ALiBi"
    assert all(torch.equal(again.tensors[name], tensor) for name, tensor in was.tensors.items())
    capsys.readouterr()
    assert main(["explain", "format", "--extend", mine]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("Skewed", "A paper, 2026", "GPT2", "Radford et al. 2019"))


def test_a_format_can_be_named(llama: Saved, capsys: pytest.CaptureFixture) -> None:
    mine = extension(MINE.replace('"position": "ALiBi"', '"pattern": "Causal"'))
    assert main(["export", "mine", "--to", "first", "--extend", mine]) == 0
    assert main(["export", "mine", "--to", "named", "--extend", mine, "--format", "Llama"]) == 0
    types = [json.loads(Path(folder, "config.json").read_text())["model_type"] for folder in ("first", "named")]
    assert types == ["skewed", "llama"]  # who names a file wants what is in it
    refused = {"GPT2": "GPT2LMHeadModel has", "BERT": "BERT has no model of this kind", "Lama": "did you mean 'Llama'?"}
    for name, message in refused.items():
        capsys.readouterr()
        assert main(["export", "mine", "--to", "none", "--format", name]) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert message in error


def test_a_mistral_without_a_window_is_a_llama_unless_named(tmp_path: Path) -> None:
    was = described(sections("mistral", {"pattern": "Causal"}, key_heads=2))
    names = (None, "MistralForCausalLM", "WindowlessMistral", "LlamaForCausalLM")
    forms = [huggingface.write(tmp_path / str(name), was, name).architecture for name in names]
    assert forms == ["LlamaForCausalLM", "MistralForCausalLM", "MistralForCausalLM", "LlamaForCausalLM"]
    assert json.loads((tmp_path / "WindowlessMistral/config.json").read_text())["sliding_window"] is None
    for name in names:
        again = huggingface.read(tmp_path / str(name)).tensors
        assert all(torch.equal(again[key], tensor) for key, tensor in was.tensors.items())


_TEMPLATE, _LLAMA = "from scaling.interop.template import Format\n", "from scaling.interop.formats import Llama\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{_TEMPLATE}class Half(Format):\n    config = {{}}", "the format Half needs"),
        (f"{_LLAMA}class Half(Llama):\n    config = {{}}", "needs model_type in config"),
        ('class Half:\n    slot = "format"', "Half is no format"),
        (f"{_LLAMA}class Llama(Llama):\n    pass", "has a kind Llama already"),
    ],
)
def test_what_is_no_format_is_one_line(text: str, message: str, llama: Saved, capsys: pytest.CaptureFixture) -> None:
    assert main(["export", "mine", "--extend", extension(text)]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert message in error
