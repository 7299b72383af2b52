"""Status: one run in one row, for people to look at. Nothing is decided by it.

A look is a single moment, so whether a silent worker is alive is guessed here from the age of its heartbeat file; a
takeover never is, it waits for the watch of `heartbeat.py`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from scaling.ledger.attempt import Record, records
from scaling.ledger.heartbeat import Lease, has_ended
from scaling.ledger.log import last_entry
from scaling.ledger.machine import Machine, is_gone
from scaling.ledger.result import CIRCUMSTANCES, NAME, read_result

State = Literal[
    "waiting", "running", "stale", "finished", "diverged", "pruned", "out_of_memory", "failed", "stopped"
]  # the first three are seen from outside; the others are how the last attempt ended

LONGEST = 200  # letters of a reason or a name in a row


@dataclass(frozen=True)
class Row:
    """A run as `scaling runs` lists it; None where nothing is known yet. `seen`: last sign of life, Unix time."""

    run: str
    name: str | None
    state: State
    step: int | None = None
    steps: int | None = None
    loss: float | None = None
    tokens_per_second: float | None = None
    host: str | None = None
    attempt: int | None = None
    seen: float | None = None
    reason: str | None = None
    score: float | None = None  # of a task, by its metric


def status(run: Path, spec: dict[str, Any] | None, machine: Machine, lease: Lease) -> Row:
    """The row of the run in this folder."""
    attempts = records(run)
    result = read_result(run)
    return unfinished(run, spec, attempts, machine, lease) if result is None else finished(run, spec, attempts, result)


def finished(run: Path, spec: dict[str, Any] | None, attempts: list[Record], result: dict[str, Any]) -> Row:
    circumstances = result.get(CIRCUMSTANCES)
    circumstances = circumstances if isinstance(circumstances, dict) else {}
    by = next((record for record in attempts if record.number == result["attempt"]), None)
    rival = next((record for record in attempts if record.exit and record.exit.get("differences")), None)
    return Row(
        run=run.name,
        name=_name(spec),
        state=result["outcome"],
        step=result.get("step"),
        steps=result.get("steps", result.get("step")),
        loss=result.get("loss"),
        tokens_per_second=circumstances.get("tokens_per_second"),
        host=None if by is None else short(by.claim.get("host")),
        attempt=result["attempt"],
        seen=_touched(run / NAME),
        reason=None if rival is None else f"attempt {rival.number} found another result",
        score=result.get("score"),
    )


def unfinished(run: Path, spec: dict[str, Any] | None, attempts: list[Record], machine: Machine, lease: Lease) -> Row:
    if not attempts:
        return Row(run=run.name, name=_name(spec), state="waiting", seen=_touched(run))
    newest = attempts[-1]
    seen = _seen(newest)
    logged, evaluated = (
        next((entry for record in reversed(attempts) if (entry := last_entry(record.log, key))), {})
        for key in ("loss", "score")
    )
    return Row(
        run=run.name,
        name=_name(spec),
        state=attempt_state(newest, machine, lease),
        step=logged.get("step"),
        steps=logged.get("steps"),
        loss=logged.get("loss"),
        tokens_per_second=logged.get("tokens_per_second"),
        host=short(newest.claim.get("host")),
        attempt=newest.number,
        seen=seen,
        reason=None if newest.exit is None else short(newest.exit.get("reason")),
        score=evaluated.get("score"),
    )


def attempt_state(attempt: Record, machine: Machine, lease: Lease) -> State:
    """How an attempt that has no result ended, or whether it seems to run."""
    if attempt.exit is not None:
        outcome = attempt.exit.get("outcome")
        # An exit that speaks of a result whose file is gone or damaged leaves the run to be done again.
        return outcome if outcome in ("out_of_memory", "failed", "stopped") else "stopped"
    if has_ended(attempt.heartbeat):
        return "stopped"
    seen = _seen(attempt)
    if is_gone(attempt.claim, machine) or (seen is not None and time.time() - seen > lease.silence):
        return "stale"
    return "running"


def _name(spec: dict[str, Any] | None) -> str | None:
    """What the spec calls the run: its own `name`, else the one it is logged under."""
    spec = spec or {}
    log = spec.get("log")
    name = spec.get("name") or (log.get("name") if isinstance(log, dict) else None)
    return short(name) if isinstance(name, str) else None


def printable(text: str) -> str:
    """What a terminal shows and does not obey."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def short(reason: object) -> str | None:
    """The beginning of a reason, in one line; the exit has the whole of it."""
    text = printable(" ".join(str(reason or "")[: 2 * LONGEST].split()))
    return (text if len(text) <= LONGEST else text[: LONGEST - 1] + "…") or None


def _seen(attempt: Record) -> float | None:
    return _touched(attempt.heartbeat) or _touched(attempt.folder)


def _touched(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None
