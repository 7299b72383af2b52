"""Status: one run in one row, for people to look at. Nothing is decided by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from scaling.ledger import lock
from scaling.ledger.document import last_entry
from scaling.ledger.lock import Lease, Machine
from scaling.ledger.run import CIRCUMSTANCES, INTERRUPTIONS, LOCK, LOG, RESULT, Record, read_result

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


def status(
    run: Path, spec: Mapping[str, Any] | None, attempts: Sequence[Record], lease: Lease, machine: Machine
) -> Row:
    """The row of the run in this folder."""
    result, name = read_result(run), _name(spec or {})
    if result is not None:
        numbers = {"steps": result.get("step"), **(result.get(CIRCUMSTANCES) or {}), **result}
        state, seen = result["outcome"], _touched(run / RESULT)
        attempt = next((each for each in attempts if each.number == result["attempt"]), Record(result["attempt"], {}))
        rival = next((each.number for each in attempts if each.end and each.end.get("differences")), None)
        reason = None if rival is None else f"attempt {rival} found another result"
    elif attempts:
        attempt = attempts[-1]
        numbers = {**(last_entry(run / LOG, "score") or {}), **(last_entry(run / LOG, "loss") or {})}
        state, seen = _state(attempt, run, lease, machine), lock.last_touch(run / LOCK) or _touched(run / LOG)
        reason = _short((attempt.end or {}).get("reason"))
    else:
        return Row(run.name, name, "waiting", seen=_touched(run))
    return Row(
        run=run.name,
        name=name,
        state=state,
        host=_short(attempt.start.get("host")),
        attempt=attempt.number,
        seen=seen,
        reason=reason,
        **{key: numbers.get(key) for key in ("step", "steps", "loss", "tokens_per_second", "score")},
    )


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


def _state(newest: Record, run: Path, lease: Lease, machine: Machine) -> State:
    """How the last attempt at a run without a result ended, or whether it seems to run."""
    if newest.end is not None:
        outcome: Any = newest.end.get("outcome")
        # An end that speaks of a result whose file is gone or damaged leaves the run to be done again.
        return outcome if outcome in INTERRUPTIONS else "stopped"
    states: dict[lock.State, State] = {"held": "running", "abandoned": "stale", "free": "stopped"}
    return states[lock.state(run / LOCK, lease, machine)]


def _name(spec: Mapping[str, Any]) -> str | None:
    """What the spec calls the run: its own `name`, else the one it is logged under."""
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
