"""The ledger: which runs exist, who works on which, what came out. Many workers on many machines, one folder.

    runs/ledger.json                  version of this layout
    runs/store/<run_id>/spec.json     written once
                       /attempts/NNN/{claim.json, heartbeat, log.jsonl, checkpoints/, exit.json}
                       /result.json   exclusive: present and valid means done
    runs/studies/<study>/plan.json    which runs, and why
    runs/index.tsv                    a cache; delete it at any time

A worker's life:

    ledger = Ledger.create("runs")
    run = ledger.add(spec)                        # nested dict -> run id; equal experiments share one run
    if (result := ledger.result(run)) is not None:
        return result                             # done before, by whomever
    attempt = ledger.claim(run)                   # None: done meanwhile, or another worker has it; ask again later
    if attempt is None:
        return None
    with attempt:                                 # beats in a thread; leaves an exit behind, whatever happens
        start = attempt.resume()                  # latest whole checkpoint (.step, .folder, .note) of any attempt
        for step in range(start.step if start else 0, steps):
            loss = train(step)
            entry = {"kind": "train", "step": step + 1, "steps": steps, "loss": loss, "tokens_per_second": speed}
            attempt.log.write(entry)
            if (step + 1) % every == 0:
                with attempt.checkpoint(step + 1, note={"tokens": tokens}) as folder:
                    save(model, folder / "model.pt")       # any files; synced, hashed and renamed into place afterwards
            if attempt.superseded:                # others thought this worker dead; going on is harmless, and wasted
                return attempt.end("stopped", "taken over by a later attempt")
        verdict = attempt.finish("finished", {"loss": loss, "step": steps, "tokens": tokens, "circumstances": {...}})
    # verdict.first: this result is kept; else verdict.stands is, and verdict.differences lists where this one differs

A run ends in a result by `finish` ("finished", "diverged", "pruned"), or is interrupted by `end` ("out_of_memory",
"failed", "stopped") and can be claimed again. `ledger.attempts(run)` shows how often that happened; how often to retry
is the caller's policy. A disk that is full or failing is a ScalingError with code 74.

The process that claims is the one that trains: its heartbeat is a thread, which does not survive a fork. In a run of
many ranks, rank 0 claims and hands the others the folder.

A trunk is a run whose spec has no horizon. It publishes no result: its worker stops it (`end("stopped", …)`) once the
last step that `ledger.needed(trunk)` names is saved, and can go on later. A branch reads its start by
`ledger.checkpoint(trunk, step)`.
"""

from scaling.ledger.attempt import Attempt, Record
from scaling.ledger.checkpoint import Checkpoint
from scaling.ledger.heartbeat import Lease
from scaling.ledger.identity import run_id, run_ids
from scaling.ledger.machine import Machine
from scaling.ledger.result import RESULTS, Verdict
from scaling.ledger.status import Row
from scaling.ledger.store import Ledger

__all__ = [
    "RESULTS",
    "Attempt",
    "Checkpoint",
    "Lease",
    "Ledger",
    "Machine",
    "Record",
    "Row",
    "Verdict",
    "run_id",
    "run_ids",
]
