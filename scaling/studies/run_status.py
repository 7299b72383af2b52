"""What has become of a run of a study, and when it is left alone."""

from __future__ import annotations

from scaling.ledger import Ledger

RETRIES = 1  # of a run that failed; a divergence is a result and is not tried again


def settled(ledger: Ledger, run: str) -> bool:
    """Whether nothing is left to do: it has a result, or has failed too often."""
    return ledger.result(run) is not None or hopeless(ledger, run)


def finished_loss(ledger: Ledger, run: str) -> float | None:
    """The loss of a run that has finished."""
    result = ledger.result(run)
    return None if result is None or result["outcome"] != "finished" else result["loss"]


def hopeless(ledger: Ledger, run: str) -> bool:
    """Whether a run has failed more often than it is tried again."""
    return failures(ledger, run) > RETRIES


def failures(ledger: Ledger, run: str) -> int:
    """How often a run has failed since someone asked to try it again (`Ledger.retry`)."""
    return sum(record.failed for record in ledger.attempts(run))
