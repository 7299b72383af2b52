"""Warm workers race for runs, are killed and suspended: each run is done once, as if nothing had been."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scaling.ledger import Ledger, run_id
from scaling.ledger.run import LOOK
from scaling.studies.plan import Plan, plan
from scaling.studies.question import read
from scaling.studies.work import work
from scaling.training.experiment import assemble
from scaling.training.module import FamilyModule
from scaling.training.run import train_run
from tests.training.conftest import Child, Done, done, left, load, same, words

SMALL = Path(__file__).parents[1] / "studies" / "small.yaml"
WORKERS = 8
SHORT = ("trainer.max_steps=4", "train.checkpoint_every=2", "schedule.warmup=1", "evaluate.windows=8", "log.every=1")


@pytest.fixture(scope="module")
def alone() -> dict[str, Done]:
    """What each run leaves behind where nothing happens to it; filled as far as it is asked for."""
    return {}


def planned(runs: int, folder: Path) -> tuple[Ledger, Plan]:
    grid = {"size": [{"width": 8, "heads": 1}], "seed": list(range(runs))}
    asked = replace(read(str(SMALL)), name="race", grid=grid, held_out={}, laws=())
    found = plan(asked, [f"runs={folder}", "log.wandb=disabled", *SHORT])
    ledger = found.ledger()
    for one in found.runs:
        ledger.add(one.experiment.spec)
    return ledger, found


def race(folder: Path, runs: int, kills: int, seed: int) -> tuple[Ledger, Plan]:
    draw = random.Random(seed)
    ledger, found = planned(runs, folder)

    def deed() -> None:
        work(Ledger.open(folder), found)

    # So many runs are done when a worker is killed: a fast machine's race must not be over before the last kill.
    moments = sorted(draw.randrange(runs // 2) for _ in range(kills))
    workers = [Child(deed) for _ in range(WORKERS)]
    try:
        for moment in moments:
            while sum(ledger.result(one.run) is not None for one in found.runs) < moment:
                assert any(child.poll() is None for child in workers), "all workers ended"
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 0.02))
            living = [number for number, child in enumerate(workers) if child.poll() is None]
            assert living, "the race was over before the last kill"
            victim = draw.choice(living)
            workers[victim].kill()
            workers[victim].wait()
            workers[victim] = Child(deed)
        assert [child.wait(600) for child in workers] == [0] * WORKERS
    finally:
        for child in workers:
            if child.poll() is None:
                child.kill()
                child.wait()
    return ledger, found


def one_race(tmp_path: Path, alone: dict[str, Done], runs: int, kills: int, seed: int) -> None:
    ledger, found = race(tmp_path / "raced", runs, kills, seed)
    if len(alone) < runs:
        undisturbed, same = planned(runs, tmp_path / "alone")
        work(undisturbed, same)
        alone |= {one.run: done(undisturbed, one.run) for one in same.runs}
    for one in found.runs:
        assert done(ledger, one.run) == alone[one.run]
        attempts, result = ledger.attempts(one.run), ledger.result(one.run)
        assert result is not None
        assert result["attempt"] == attempts[-1].number == len(attempts)
        assert all(record.end is None for record in attempts[:-1]), "those before were killed"
    assert len(ledger.runs()) == runs


@pytest.mark.slow
def test_eight_workers_race(tmp_path, alone):
    one_race(tmp_path, alone, runs=24, kills=6, seed=0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(1, 11))
def test_eight_workers_race_for_two_hundred_runs(seed, tmp_path, alone):
    one_race(tmp_path, alone, runs=200, kills=40, seed=seed)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def a_stale_worker_wakes(step: int, runs: Path) -> tuple[dict[str, Any], Ledger]:
    """Stopped at a step, done by another that was let in, then awake again: the result that stood before, and all."""
    experiment = assemble(load(words(runs)))
    ledger = Ledger.create(runs)

    def sleeper() -> None:
        before = FamilyModule.training_step

        def stopped(self, batch, number):
            if number == step - 1:
                os.kill(os.getpid(), signal.SIGSTOP)
            return before(self, batch, number)

        FamilyModule.training_step = stopped  # type: ignore[method-assign]
        train_run(experiment, Ledger.open(runs))

    def other() -> None:
        train_run(experiment, Ledger.open(runs))

    stale = Child(sleeper)
    try:
        while state(stale.pid) != "T":
            assert stale.poll() is None
            time.sleep(0.01)
        (ledger.folder(run_id(experiment.spec)) / "lock").unlink()
        assert Child(other).wait() == 0
        first = ledger.result(run_id(experiment.spec))
        assert first is not None
        time.sleep(LOOK)
        stale.kill(signal.SIGCONT)
        assert stale.wait() == 0
    finally:
        stale.kill()
    return first, ledger


@pytest.mark.parametrize("step", [6, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 13) if n != 6)])
def test_a_stale_worker_wakes(step, tmp_path, unbroken):
    first, ledger = a_stale_worker_wakes(step, tmp_path / "runs")
    (run,) = ledger.runs()
    assert ledger.result(run) == first, "the first valid result stands"
    late, early = ledger.attempts(run)
    assert first["attempt"] == early.number == 2
    assert late.end is not None
    assert (late.end["outcome"], late.end["reason"]) == ("stopped", "another worker has taken the run over")
    assert not (ledger.folder(run) / "lock").exists()
    same(left(tmp_path / "runs"), unbroken)
