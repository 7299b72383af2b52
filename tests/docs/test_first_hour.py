"""docs/first_hour.md: its commands, in their order, on a fresh ledger, and what is said to come of them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from scaling.cli import main
from tests.docs.blocks import ROOT, blocks, words

# A corpus of a few files and a model of a few steps, laid over whatever reads `python`.
SMALL_DATA = [
    *("data.corpus.reach=standard", "data.corpus.limit=400k", "data.validation=0.3"),
    *("data.tokenizer.vocabulary=600", "data.tokenizer.sample=200k"),
]
SMALL_RUN = ["trainer.max_steps=4", "train.batch=4", "evaluate.windows=16"]
PAGE = ROOT / "docs" / "first_hour.md"
# What each command prints, by a part of the command.
PROMISED = {
    "inspect vaswani": ("vaswani", "gpt2", "t5", "parameters", "FLOPs"),
    "explain block.channel": ("Gated",),
    "diff gpt2 llama": ("vocabulary",),
    "data prepare": ("bytes per token",),
    "data show": ("reads",),
    "scaling runs": ("1 run: 1 finished",),
    "scaling export": ("LlamaForCausalLM",),
    "scaling fit": ("best at C",),
}


def test_the_first_hour_at_a_small_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("docs", "configs", "sweeps"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCALING_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "100")

    def run(command: str) -> str:
        _, *rest = words(command)
        rest += SMALL_DATA if {"python", "data=python"} & set(rest) else []
        rest += SMALL_RUN if rest[0] == "train" else []
        code = main(rest)
        out, error = capsys.readouterr()
        assert code == 0, f"{command}: {error}"
        return out

    printed: dict[str, str] = {}
    name = "RUN"
    for command in blocks(PAGE)[0].commands:
        printed[command] = run(command.replace("RUN", name))
        if command.startswith("scaling train"):
            found = re.search(r"^run ([0-9a-f]+): finished", printed[command], re.MULTILINE)
            assert found is not None, printed[command]
            name = found[1][:6]
            assert "finished before" in run(command), "the same command again returns its result"

    def of(part: str) -> str:
        (command,) = (command for command in printed if part in command)
        return printed[command]

    for part, promises in PROMISED.items():
        assert [promise for promise in promises if promise not in of(part)] == []
    written = of("generate RUN")
    assert written.startswith("def main(")
    assert of("generate mine") == written, "the exported folder, read again, writes the same"


def test_the_mistake_is_the_line_that_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    block = next(block for block in blocks(PAGE) if "Rotery" in block.text)
    command, line = block.text.splitlines()
    assert main(shlex.split(command)[2:]) == 2
    assert capsys.readouterr().err.strip() == line
