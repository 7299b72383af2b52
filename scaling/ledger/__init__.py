"""The ledger: which runs exist, who works on which, what came out. Many workers on many machines, one folder.

    runs/store/<run_id>/spec.json     written once: what the run is
                       /lock          who works on it
                       /log.jsonl     what happened
                       /checkpoints/  what the next attempt goes on from
                       /result.json   present and valid means done
    runs/studies/<study>/plan.json    which runs, and why

A worker's life:

    ledger = Ledger.create("runs")
    run = ledger.add(spec)                        # nested dict -> run id; equal experiments share one run
    if (result := ledger.result(run)) is not None:
        return result                             # done before, by whomever
    attempt = ledger.claim(run)                   # None: done meanwhile, or another worker has it; ask again later
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
        kept = attempt.finish("finished", {"loss": loss, "step": steps, "tokens": tokens, "circumstances": {...}})
    # the first result is kept; where this one differs from it, the end in the log has the differences

A run ends in a result by `finish` ("finished", "diverged", "pruned"), or is interrupted by `end` ("out_of_memory",
"failed", "stopped") and can be claimed again. `ledger.attempts(run)` shows how often that happened; how often to retry
is the caller's policy. A disk that is full or failing is a ScalingError with code 74.

The process that claims is the one that trains. In a run of many ranks, rank 0 claims and hands the others the folder.

A trunk is a run whose spec has no horizon. It publishes no result: its worker stops it (`end("stopped", …)`) once the
last step that `ledger.needed(trunk)` names is saved, and can go on later. A branch reads its start by
`ledger.checkpoint(trunk, step)`.
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
