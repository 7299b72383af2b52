"""Real processes, really killed: no run is lost, none is done twice, and every loss is what it would have been."""

from __future__ import annotations

import random
import time
from multiprocessing.context import ForkProcess

from scaling.ledger import Ledger
from tests.ledger import worker


def test_eight_workers_race_for_two_hundred_runs(ledger: Ledger) -> None:
    moments = random.Random(1)
    names = [ledger.add({"seed": number}) for number in range(200)]

    def start(seed: int) -> ForkProcess:
        process = ForkProcess(target=worker.work, args=(ledger, 0.001, random.Random(seed)), daemon=True)
        process.start()
        return process

    workers = [start(number) for number in range(8)]
    for number in range(20):
        time.sleep(moments.uniform(0.02, 0.1))
        victim = moments.randrange(8)
        workers[victim].kill()
        workers[victim].join()
        workers[victim] = start(8 + number)
    for process in workers:
        process.join(300)
        assert process.exitcode == 0
    for run in names:
        attempts, result = ledger.attempts(run), ledger.result(run)
        assert result is not None
        losses = [entry["loss"] for entry in ledger.history(run) if entry["kind"] == "train"]
        assert losses == worker.expected(run)
        assert result["loss"] == losses[-1]
        assert [record.number for record in attempts] == list(range(1, len(attempts) + 1))
        # The one that published is the last, and the only one that came to an end: those before it were killed.
        assert result["attempt"] == attempts[-1].number
        assert all(record.end is None for record in attempts[:-1])
