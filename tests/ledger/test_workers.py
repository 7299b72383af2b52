"""Real processes, really killed: no run is lost, none is done twice, and every loss is what it would have been.

A worker "trains" whatever runs the ledger still has open. The training is a chain of checksums, so that a state lost,
repeated wrongly or mixed up shows in every later loss.
"""

import random
import time
import zlib
from itertools import accumulate
from multiprocessing.context import ForkProcess

from scaling.ledger import Attempt, Ledger

STEPS, EVERY = 12, 4


def advance(state: int, step: int) -> int:
    return zlib.crc32(b"%d" % step, state)


def train(attempt: Attempt) -> None:
    start = attempt.resume()
    state = int(attempt.run_id, 16) if start is None else int((start.folder / "state").read_text())
    for step in range(1 if start is None else start.step + 1, STEPS + 1):
        state = advance(state, step)
        attempt.log.write({"kind": "train", "step": step, "steps": STEPS, "loss": state})
        time.sleep(0.001)
        if attempt.superseded:
            return attempt.end("stopped", "another worker has the run")
        if step % EVERY == 0:
            with attempt.checkpoint(step) as folder:
                (folder / "state").write_text(str(state))
    attempt.finish("finished", {"loss": state, "step": STEPS, "circumstances": {"started": time.time()}})


def work(ledger: Ledger, order: random.Random) -> None:
    """Go round the open runs until every one has a result."""
    while open_runs := [run for run in ledger.runs() if ledger.result(run) is None]:
        order.shuffle(open_runs)
        for run in open_runs:
            if (attempt := ledger.claim(run)) is not None:
                with attempt:
                    train(attempt)
        time.sleep(0.02)


def test_eight_workers_race_for_a_hundred_runs(ledger: Ledger) -> None:
    moments, names = random.Random(1), [ledger.add({"seed": number}) for number in range(100)]

    def start(seed: int) -> ForkProcess:
        process = ForkProcess(target=work, args=(ledger, random.Random(seed)), daemon=True)
        process.start()
        return process

    workers = [start(number) for number in range(8)]
    for number in range(20):
        time.sleep(moments.uniform(0.01, 0.05))
        victim = moments.randrange(8)
        workers[victim].kill()
        workers[victim].join()
        workers[victim] = start(8 + number)
    for process in workers:
        process.join(300)
        assert process.exitcode == 0
    for run in names:
        losses = [*accumulate(range(1, STEPS + 1), advance, initial=int(run, 16))][1:]
        attempts, result = ledger.attempts(run), ledger.result(run) or {}
        assert [entry["loss"] for entry in ledger.history(run) if entry["kind"] == "train"] == losses
        assert result["loss"] == losses[-1]
        assert [record.number for record in attempts] == list(range(1, len(attempts) + 1))
        # The one that published is the last, and the only one that came to an end: those before it were killed.
        assert result["attempt"] == attempts[-1].number
        assert all(record.end is None for record in attempts[:-1])
