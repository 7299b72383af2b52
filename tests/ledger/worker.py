"""A worker for the tests: it "trains" whatever runs the ledger still has open.

The training is a chain of hashes, so that a state lost, repeated wrongly or mixed up shows in every later loss.
"""

from __future__ import annotations

import hashlib
import random
import time

from scaling.ledger import Attempt, Ledger

STEPS, EVERY = 12, 4


def advance(state: bytes, step: int) -> bytes:
    return hashlib.sha256(state + step.to_bytes(4, "big")).digest()


def loss_of(state: bytes) -> float:
    return int.from_bytes(state[:6], "big") / 2**48


def expected(run: str, steps: int = STEPS) -> list[float]:
    """The losses of a run that nothing ever happened to."""
    state, losses = run.encode(), []
    for step in range(1, steps + 1):
        state = advance(state, step)
        losses.append(loss_of(state))
    return losses


def claimed(ledger: Ledger, run: str) -> Attempt:
    """An attempt at a run that no one else works on."""
    attempt = ledger.claim(run)
    assert attempt is not None
    return attempt


def train(attempt: Attempt, pause: float, steps: int = STEPS) -> None:
    start = attempt.resume()
    state = attempt.run_id.encode() if start is None else (start.folder / "state").read_bytes()
    for step in range(1 if start is None else start.step + 1, steps + 1):
        state = advance(state, step)
        attempt.log.write({"kind": "train", "step": step, "steps": steps, "loss": loss_of(state)})
        time.sleep(pause)
        if attempt.superseded:
            return attempt.end("stopped", "another worker has the run")
        if step % EVERY == 0:
            with attempt.checkpoint(step) as folder:
                (folder / "state").write_bytes(state)
    attempt.finish("finished", {"loss": loss_of(state), "step": steps, "circumstances": {"started": time.time()}})


def work(ledger: Ledger, pause: float, order: random.Random) -> None:
    """Go round the open runs until every one has a result."""
    while open_runs := [run for run in ledger.runs() if ledger.result(run) is None]:
        order.shuffle(open_runs)
        claimed = False
        for run in open_runs:
            attempt = ledger.claim(run)
            if attempt is not None:
                claimed = True
                with attempt:
                    train(attempt, pause)
        if not claimed:
            time.sleep(0.05)
