"""Two real ranks: the losses of one, samples in the same order, signals agreed, and no rank outliving another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from scaling.ledger import Ledger
from scaling.train.experiment import assemble
from scaling.train.supervisor import RankFailed, supervise
from tests.train.conftest import load, words
from tests.train.test_step import logged

STILL = {"model.block.mixer.dropout": 0}

# A rank that goes wrong at step 3 in the way it is told to.
SABOTEUR = """
import os, time
from scaling.train.module import TrainingModule

before = TrainingModule.training_step

def broken(self, batch, number):
    if number == 3 and os.environ["RANK"] == "1":
        {deed}
    return before(self, batch, number)

TrainingModule.training_step = broken

class Unused:
    slot = "optimizer"
"""


def two(runs: Path, steps: int, **changes) -> None:
    supervise(load(words(runs, train__devices=2, train__steps=steps, **STILL, **changes)), 2)


@pytest.mark.parametrize("steps", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_two_ranks_learn_as_one(steps, tmp_path, run):
    two(tmp_path / "two", steps)
    run(runs=tmp_path / "one", train__steps=steps, **STILL)
    one, both = logged(tmp_path / "one"), logged(tmp_path / "two")
    assert len(one) == len(both) == steps
    assert both[0] == pytest.approx(one[0], rel=1e-6)
    assert both[-1] == pytest.approx(one[-1], rel=1e-4)
    ledger = Ledger.open(tmp_path / "two")
    (name,) = ledger.runs()
    (attempt,) = ledger.attempts(name)
    assert attempt.exit is not None
    assert ledger.result(name) is not None


def test_the_rows_of_the_ranks_are_the_global_batch():
    batches = assemble(load(words(Path("unused")))).batches
    for step in range(5):
        whole = batches.batch(step).tokens
        parts = [batches.batch(step, rank, 2).tokens for rank in range(2)]
        assert torch.equal(torch.cat(parts), whole)


def sabotaged(tmp_path: Path, deed: str, silence: float = 45.0) -> tuple[str, float]:
    extension = tmp_path / "saboteur.py"
    extension.write_text(SABOTEUR.format(deed=deed))
    config = load(words(tmp_path / "runs", train__devices=2, train__steps=50))
    from dataclasses import replace

    begun = time.monotonic()
    with pytest.raises(RankFailed) as failed:
        supervise(replace(config, extend=str(extension)), 2, silence=silence)
    return str(failed.value), time.monotonic() - begun


def test_a_rank_that_raises_ends_all_and_is_told(tmp_path):
    told, _ = sabotaged(tmp_path, 'raise ValueError("the first trouble")')
    assert told.startswith("rank 1 of 2")
    assert "ValueError: the first trouble" in told
    none_left(tmp_path)


@pytest.mark.slow
def test_a_rank_that_hangs_ends_all(tmp_path):
    told, seconds = sabotaged(tmp_path, "time.sleep(1000)", silence=4.0)
    assert "sign of life" in told
    assert seconds < 90
    none_left(tmp_path)


def none_left(tmp_path: Path) -> None:
    """No process of this run is alive: the ledger's claim is known to be of the dead."""
    ledger = Ledger.open(tmp_path / "runs")
    (run,) = ledger.runs()
    assert all(ledger.is_gone(record) or record.exit for record in ledger.attempts(run))


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param(signal.SIGUSR1, 138, marks=pytest.mark.slow),
    ],
    ids=["SIGTERM", "SIGINT", "SIGUSR1"],
)
def test_a_signal_is_agreed_on(number, code, tmp_path):
    told = words(tmp_path / "runs", train__devices=2, train__steps=100000, train__checkpoint_every=100000)
    process = subprocess.Popen(
        [sys.executable, "-m", "scaling", "train", *told], stderr=subprocess.DEVNULL, env={**os.environ}
    )
    try:
        end = time.monotonic() + 120
        while not any("loss" in path.read_text() for path in tmp_path.glob("runs/store/*/attempts/*/log.jsonl")):
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(40) == code
    finally:
        process.kill()
    ledger = Ledger.open(tmp_path / "runs")
    (run,) = ledger.runs()
    (attempt,) = ledger.attempts(run)
    assert attempt.exit is not None
    assert attempt.exit["outcome"] == "stopped"
    assert list(attempt.folder.glob("checkpoints/*/manifest.json"))
