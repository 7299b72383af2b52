"""Real processes, really killed: no run is lost, none is done twice, and every loss is what it would have been."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from scaling.ledger import Ledger
from tests.ledger import worker

Start = Callable[..., subprocess.Popen[str]]


def spec_of(number: int) -> dict[str, object]:
    return {"model": {"kind": "Chain"}, "seed": number}


def _wait(condition: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def _assert_as_never_killed(ledger: Ledger, run: str) -> None:
    result = ledger.result(run)
    assert result is not None
    assert result["loss"] == worker.expected(run)[-1]
    told = [entry["loss"] for entry in ledger.history(run) if entry["kind"] == "train"]
    assert told == worker.expected(run)


@pytest.mark.parametrize(("seed", "kills"), [(0, 1), (1, 1), (2, 1), (100, 5)])
def test_a_killed_run_goes_on_as_if_nothing_had_been(ledger: Ledger, start: Start, seed: int, kills: int) -> None:
    moments = random.Random(seed)
    run = ledger.add(spec_of(seed))
    for _ in range(kills):
        process = start(ledger.root, "--pause", 0.005)
        before = len(ledger.attempts(run))
        _wait(lambda n=before, p=process: len(ledger.attempts(run)) > n or p.poll() is not None)
        time.sleep(moments.uniform(0, 0.08))
        process.kill()
        process.wait()
    assert start(ledger.root).wait() == 0
    _assert_as_never_killed(ledger, run)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_eight_workers_race_for_two_hundred_runs(ledger: Ledger, start: Start, seed: int) -> None:
    moments = random.Random(seed)
    names = [ledger.add(spec_of(1000 * seed + number)) for number in range(200)]
    workers = [start(ledger.root, "--seed", number, "--pause", 0.001) for number in range(8)]
    for number in range(20):
        time.sleep(moments.uniform(0.02, 0.1))
        victim = moments.randrange(8)
        workers[victim].kill()
        workers[victim].wait()
        workers[victim] = start(ledger.root, "--seed", 8 + number, "--pause", 0.001)
    assert [process.wait(timeout=300) for process in workers] == [0] * 8
    for run in names:
        _assert_as_never_killed(ledger, run)
        attempts, result = ledger.attempts(run), ledger.result(run)
        assert result is not None
        assert [record.number for record in attempts] == list(range(1, len(attempts) + 1))
        # The one that published is the last, and the only one that came to an end: those before it were killed.
        assert result["attempt"] == attempts[-1].number
        assert all(record.end is None for record in attempts[:-1])


@pytest.mark.parametrize("seed", range(2))
def test_a_worker_that_lost_its_lock_wakes(ledger: Ledger, start: Start, seed: int) -> None:
    run = ledger.add(spec_of(seed))
    sleeper = start(ledger.root, "--pause", 0.05)
    _wait(lambda: ledger.history(run))
    os.kill(sleeper.pid, signal.SIGSTOP)
    (ledger.folder(run) / "lock").unlink()
    assert start(ledger.root).wait(timeout=60) == 0
    first = ledger.result(run)
    time.sleep(1.0)  # so that the sleeper looks again
    os.kill(sleeper.pid, signal.SIGCONT)
    assert sleeper.wait(timeout=60) == 0
    assert first is not None
    assert ledger.result(run) == first, "the first valid result stands"
    late, early = ledger.attempts(run)
    assert first["attempt"] == early.number == 2
    assert late.end is not None
    assert (late.end["outcome"], late.end["reason"]) == ("stopped", "another worker has the run")
    assert not (ledger.folder(run) / "lock").exists()
    _assert_as_never_killed(ledger, run)
