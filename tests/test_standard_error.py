"""Lines that nobody reads stop no command, and a pipe that breaks inside of one is no reader that left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scaling.cli import main
from scaling.ledger import Ledger
from tests.training.conftest import SABOTEUR, words

SCALING = [sys.executable, "-m", "scaling"]


def outcomes(runs: Path) -> list[str]:
    ledger = Ledger.open(runs)
    return [record.end["outcome"] for run in ledger.runs() for record in ledger.attempts(run) if record.end]


@pytest.mark.slow
def test_training_whose_lines_cannot_be_shown_or_nobody_reads_is_finished(tmp_path: Path):
    with open("/dev/full", "w") as full:
        command = [*SCALING, "train", *words(tmp_path / "one")]
        done = subprocess.run(command, stderr=full, stdout=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 0
    assert "finished, held-out loss" in done.stdout
    reader, writer = os.pipe()
    os.close(reader)
    command = [*SCALING, "train", *words(tmp_path / "runs")]
    assert subprocess.run(command, stderr=writer, stdout=writer, timeout=300).returncode == 0
    os.close(writer)
    assert outcomes(tmp_path / "runs") == ["finished"]


def test_a_pipe_that_breaks_in_training_fails_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd):
    (tmp_path / "saboteur.py").write_text(SABOTEUR)
    monkeypatch.setenv("FAULT", "raise BrokenPipeError(32, 'a pipe')")
    monkeypatch.setenv("CALL", "3")
    line = ["model.block.channel=Saboteur", "--extend", str(tmp_path / "saboteur.py")]
    with pytest.raises(BrokenPipeError):
        main(["train", *words(tmp_path / "runs"), *line])
    assert outcomes(tmp_path / "runs") == ["failed"]
