"""Training a finished run again: from its first step, compared with the result that stands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scaling.cli import main
from scaling.ledger import Ledger
from scaling.training.run import train
from tests.training.conftest import left, load, same, words


def _files(ledger: Ledger, run: str) -> set[Path]:
    return set((ledger.folder(run) / "checkpoints").glob("[0-9]*"))


def test_a_run_whose_weights_were_freed_is_trained_again_to_the_same_bit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    name = train(load(words(runs)))["run"]
    was = left(runs)
    assert main(["gc", "--free", "--weights", f"runs={runs}"]) == 0
    capsys.readouterr()
    assert main(["export", name, "--to", str(tmp_path / "out"), "--runs", str(runs)]) == 2
    assert "--again" in capsys.readouterr().err
    assert main(["train", *words(runs)]) == 0
    assert "finished before" in capsys.readouterr().out
    assert main(["train", *words(runs), "--again"]) == 0
    assert "trained again, with the same result" in capsys.readouterr().out
    same(left(runs), was)


def test_training_again_while_the_weights_are_there_keeps_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    name = train(load(words(runs)))["run"]
    was, ledger = left(runs), Ledger.open(runs)
    before = _files(ledger, name)
    assert main(["train", *words(runs), "--again", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["already"] is False
    assert result["differences"] == {}
    assert result["attempt"] == 1, "the first result stands"
    assert ledger.attempts(name)[-1].number == 2
    assert _files(ledger, name) == before
    assert not (ledger.folder(name) / "again").exists()
    same(left(runs), was)


def test_a_result_that_is_not_reproduced_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs"
    name = train(load(words(runs)))["run"]
    ledger = Ledger.open(runs)
    folder = ledger.folder(name)
    result = {
        key: value for key, value in (ledger.result(name) or {}).items() if key not in ("run", "attempt", "outcome")
    }
    (folder / "result.json").unlink()
    attempt = ledger.claim(name)
    assert attempt is not None
    with attempt:
        attempt.finish("finished", {**result, "loss": 1.25})
    assert main(["train", *words(runs), "--again"]) == 0
    assert "1.25" in capsys.readouterr().out
    assert main(["runs", f"runs={runs}"]) == 0
    assert "found another result" in capsys.readouterr().out


@pytest.mark.parametrize("devices", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_again_trains_a_run_that_is_not_done_and_compares_one_that_is(
    devices: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", *words(tmp_path / "runs", trainer__devices=devices), "--again", "--json"]
    assert main(command) == 0
    assert "differences" not in json.loads(capsys.readouterr().out)
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["differences"] == {}
