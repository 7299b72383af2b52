"""docs/first_hour.md: its commands, in their order, on a fresh ledger, and what is said to come of them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
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


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of a clone, and neither data nor runs."""
    for name in ("docs", "configs", "sweeps"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCALING_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def walked(run: Callable[[str], str]) -> dict[str, str]:
    """What each command prints, with the id that training prints in the place of RUN."""
    printed: dict[str, str] = {}
    name = "RUN"
    for command in blocks(PAGE)[0].commands:
        printed[command] = run(command.replace("RUN", name))
        if command.startswith("scaling train"):
            found = re.search(r"^run ([0-9a-f]+): finished", printed[command], re.MULTILINE)
            assert found is not None, printed[command]
            name = found[1][:6]
    return printed


def promised(printed: dict[str, str], run: Callable[[str], str]) -> None:
    """Each thing that the page says of a command."""

    def of(part: str) -> str:
        (command,) = (command for command in printed if part in command)
        return printed[command]

    assert all(model in of("inspect vaswani") for model in ("vaswani", "gpt2", "t5", "parameters", "FLOPs"))
    assert "Gated" in of("explain block.channel")
    assert "vocabulary" in of("diff gpt2 llama")
    assert "bytes per token" in of("data prepare")
    assert "reads" in of("data show")
    assert "1 run: 1 finished" in of("scaling runs")
    written = of("generate RUN")
    assert written.startswith("def main(")
    assert of("generate mine") == written, "the exported folder, read again, writes the same"
    assert "LlamaForCausalLM" in of("scaling export")
    assert "best at C" in of("scaling fit")
    training = next(command for command in printed if command.startswith("scaling train"))
    assert "finished before" in run(training), "the same command again returns its result"


def test_the_first_hour_at_a_small_size(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(command: str) -> str:
        _, *rest = words(command)
        rest += SMALL_DATA if {"python", "data=python"} & set(rest) else []
        rest += SMALL_RUN if rest[0] == "train" else []
        code = main(rest)
        out, error = capsys.readouterr()
        assert code == 0, f"{command}: {error}"
        return out

    promised(walked(run), run)


@pytest.mark.slow
def test_the_first_hour_as_it_is_typed(clone: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=clone, env={**os.environ, "PATH": path}, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    promised(walked(run), run)


def test_the_mistake_is_the_line_that_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    block = next(block for block in blocks(PAGE) if "Rotery" in block.text)
    command, line = block.text.splitlines()
    assert main(shlex.split(command)[2:]) == 2
    assert capsys.readouterr().err.strip() == line
