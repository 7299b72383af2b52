"""Status: one run in one row, for people to look at. Nothing is decided by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from scaling.ledger import lock
from scaling.ledger.document import last_entry
from scaling.ledger.lock import Lease, Machine
from scaling.ledger.run import CIRCUMSTANCES, INTERRUPTIONS, LOCK, LOG, RESULT, Record, read_result, records

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


def status(folder: Path, spec: Any, lease: Lease, machine: Machine) -> Row:
    """The row of the run in this folder."""
    result, attempts = read_result(folder), records(folder)
    if result is not None:
        return _finished(folder, spec, attempts, result)
    return _unfinished(folder, spec, attempts, lock.state(folder / LOCK, lease, machine))


def _finished(folder: Path, spec: Any, attempts: Iterable[Record], result: Mapping[str, Any]) -> Row:
    circumstances = result.get(CIRCUMSTANCES) or {}
    by = next((record for record in attempts if record.number == result["attempt"]), None)
    rival = next((record for record in attempts if record.end and record.end.get("differences")), None)
    return Row(
        run=folder.name,
        name=_name(spec),
        state=result["outcome"],
        step=result.get("step"),
        steps=result.get("steps", result.get("step")),
        loss=result.get("loss"),
        tokens_per_second=circumstances.get("tokens_per_second"),
        host=None if by is None else _short(by.start.get("host")),
        attempt=result["attempt"],
        seen=_touched(folder / RESULT),
        reason=None if rival is None else f"attempt {rival.number} found another result",
        score=result.get("score"),
    )


def _unfinished(folder: Path, spec: Any, attempts: list[Record], locked: lock.State) -> Row:
    if not attempts:
        return Row(run=folder.name, name=_name(spec), state="waiting", seen=_touched(folder))
    newest = attempts[-1]
    logged, evaluated = (last_entry(folder / LOG, key) or {} for key in ("loss", "score"))
    return Row(
        run=folder.name,
        name=_name(spec),
        state=_state(newest, locked),
        step=logged.get("step"),
        steps=logged.get("steps"),
        loss=logged.get("loss"),
        tokens_per_second=logged.get("tokens_per_second"),
        host=_short(newest.start.get("host")),
        attempt=newest.number,
        seen=lock.last_touch(folder / LOCK) or _touched(folder / LOG),
        reason=None if newest.end is None else _short(newest.end.get("reason")),
        score=evaluated.get("score"),
    )


def _state(newest: Record, locked: lock.State) -> State:
    """How the last attempt at a run without a result ended, or whether it seems to run."""
    if newest.end is not None:
        outcome: Any = newest.end.get("outcome")
        # An end that speaks of a result whose file is gone or damaged leaves the run to be done again.
        return outcome if outcome in INTERRUPTIONS else "stopped"
    return "running" if locked == "held" else "stale" if locked == "abandoned" else "stopped"


def _name(spec: Any) -> str | None:
    """What the spec calls the run: its own `name`, else the one it is logged under."""
    spec = spec or {}
    log = spec.get("log")
    name = spec.get("name") or (log.get("name") if isinstance(log, dict) else None)
    return _short(name) if isinstance(name, str) else None


def _short(reason: object) -> str | None:
    """The beginning of a reason, in one line; the log has the whole of it."""
    text = printable(" ".join(str(reason or "")[: 2 * LONGEST].split()))
    return (text if len(text) <= LONGEST else text[: LONGEST - 1] + "…") or None


def _touched(path: Path) -> float | None:
    with suppress(OSError):
        return path.stat().st_mtime
    return None


def printable(text: str) -> str:
    """What a terminal shows and does not obey."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def hardware(circumstances: Mapping[str, Any]) -> str:
    """A result's machine in words."""
    ranks = circumstances.get("ranks", 1)
    if circumstances.get("device", "cpu") != "cpu":
        return f"{ranks} × {circumstances['device']}"
    parts = [f"{circumstances.get('processor', 'a processor')} CPU", f"{circumstances.get('cores', '?')} cores"]
    parts += [circumstances["instructions"]] if circumstances.get("instructions") else []
    threads = circumstances.get("threads", "?")
    return f"{', '.join(parts)}, {threads} thread{'' if threads == 1 else 's'} a worker"
