"""The ledger: which runs exist, who works on which, what came out. Many workers on many machines, one folder
(docs/ledger.md). A worker's life:

    ledger = Ledger.create("runs")
    run = ledger.add(spec)                        # nested dict -> run id; equal experiments share one run
    attempt = ledger.claim(run)                   # None: done (`ledger.result(run)`), or another worker has it
    if attempt is None:
        return None
    with attempt:                                 # logs an end, whatever happens
        start = attempt.resume()                  # latest whole checkpoint (.step, .folder, .note)
        for step in range(start.step if start else 0, steps):
            attempt.log.write({"kind": "train", "step": step + 1, "steps": steps, "loss": train(step)})
            if (step + 1) % every == 0:
                with attempt.checkpoint(step + 1, note={"tokens": tokens}) as folder:
                    save(model, folder)           # any files; synced, hashed and renamed into place afterwards
            if attempt.superseded:                # another worker has the run; going on is harmless, and wasted
                return attempt.end("stopped", "another worker has the run")
        attempt.finish("finished", {"loss": loss, "step": steps, "circumstances": {...}})  # the first result is kept

In a run of many ranks, rank 0 claims. A trunk is a run whose spec has no horizon: its worker stops it once the last
step that `ledger.needed(trunk)` names is saved, and can go on later.
"""

from scaling.ledger.checkpoint import Checkpoint
from scaling.ledger.identity import run_id
from scaling.ledger.run import RESULTS, Attempt, Record
from scaling.ledger.store import Ledger, Row, is_ledger

__all__ = [
    "RESULTS",
    "Attempt",
    "Checkpoint",
    "Ledger",
    "Record",
    "Row",
    "is_ledger",
    "run_id",
]
