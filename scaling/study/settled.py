"""Settled: when a run of a study is left alone."""

from __future__ import annotations

from scaling.ledger import Ledger

FAILURES = ("failed", "out_of_memory")
RETRIES = 1  # of a run that failed; a divergence is a result and is not tried again


def settled(ledger: Ledger, run: str) -> bool:
    """Whether nothing is left to do: it has a result, or has failed too often."""
    return ledger.result(run) is not None or hopeless(ledger, run)


def hopeless(ledger: Ledger, run: str) -> bool:
    """Whether a run has failed more often than it is tried again."""
    failures = [record for record in ledger.attempts(run) if record.exit and record.exit["outcome"] in FAILURES]
    return len(failures) > RETRIES
