"""Formats: which one a model is written in, and those that join from outside."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch

from scaling.cli import main
from scaling.config import schema
from scaling.config.compose import load
from scaling.config.schema import overlay
from scaling.interop import run as runs
from scaling.interop import weights
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


def extension(text: str = MINE) -> str:
    Path("mine.py").write_text(text)
    return "mine.py"


def refused(capsys: pytest.CaptureFixture, *words: str) -> str:
    capsys.readouterr()
    assert main(list(words)) == 2
    (error,) = capsys.readouterr().err.splitlines()
    return error


def test_a_format_of_ones_own_is_written_read_and_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    was, before = described(sections("llama", {"position": "ALiBi"})), os.umask(0o022)
    try:
        runs.write("mine", was, "here")
        mine = extension()
        assert "the nearest, LlamaForCausalLM, has Rotary" in refused(capsys, "export", "mine")
        assert main(["export", "mine", "--extend", mine, "--json"]) == 0
    finally:
        os.umask(before)
    assert json.loads(capsys.readouterr().out)["architecture"] == "SkewedForCausalLM"
    files = [path for folder in ("mine", "mine-hf") for path in Path(folder).iterdir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o644}
    assert json.loads(Path("mine-hf/config.json").read_text())["model_type"] == "skewed"
    assert "trunk.embed_tokens.weight" in weights.read(Path("mine-hf/model.safetensors"))
    monkeypatch.setattr(schema, "_joined", {})
    assert "model_type='skewed': no table for it" in refused(capsys, "import", "mine-hf", "--to", "again")
    assert main(["import", "mine-hf", "--to", "again", "--extend", mine]) == 0
    again = runs.read("again")
    assert again.sections["model"]["position"] == "ALiBi"
    assert all(torch.equal(again.tensors[name], tensor) for name, tensor in was.tensors.items())
    capsys.readouterr()
    assert main(["explain", "format", "--extend", mine]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("Skewed", "A paper, 2026", "GPT2", "Radford et al. 2019"))


def test_a_format_can_be_named_and_what_is_none_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    runs.write("mine", described(sections("llama")), "here")
    mine = extension(MINE.replace('"position": "ALiBi"', '"pattern": "Causal"'))
    assert main(["export", "mine", "--to", "first", "--extend", mine]) == 0
    assert main(["export", "mine", "--to", "named", "--extend", mine, "--format", "Llama"]) == 0
    types = [json.loads(Path(folder, "config.json").read_text())["model_type"] for folder in ("first", "named")]
    assert types == ["skewed", "llama"]  # who names a file wants what is in it
    for name, message in {"GPT2": "GPT2LMHeadModel has", "Lama": "did you mean 'Llama'?"}.items():
        assert message in refused(capsys, "export", "mine", "--to", "none", "--format", name)
    derived = "from scaling.interop.formats import Llama\nclass Half(Llama):\n    config = {}"
    for text, message in {
        derived: "needs model_type in config",
        'class Half:\n    slot = "format"': "Half is no format",
    }.items():
        assert message in refused(capsys, "export", "mine", "--extend", extension(text))
