"""Real processes, really killed: no run is lost, none is done twice, and every loss is what it would have been."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable

from scaling.ledger import Ledger
from tests.ledger import worker

Start = Callable[..., subprocess.Popen[str]]


def _assert_as_never_killed(ledger: Ledger, run: str) -> None:
    result = ledger.result(run)
    assert result is not None
    assert result["loss"] == worker.expected(run)[-1]
    losses = [entry["loss"] for entry in ledger.history(run) if entry["kind"] == "train"]
    assert losses == worker.expected(run)


def test_eight_workers_race_for_two_hundred_runs(ledger: Ledger, start: Start) -> None:
    moments = random.Random(1)
    names = [ledger.add({"seed": number}) for number in range(200)]
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
