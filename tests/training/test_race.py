"""A worker that was suspended, and whose run another has done, wakes: the run is done once, as if nothing had been."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from scaling.ledger import Ledger, run_id
from scaling.ledger.run import LOOK
from scaling.training.experiment import assemble
from scaling.training.module import FamilyModule
from scaling.training.run import train_run
from tests.training.conftest import Child, left, load, same, words


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
