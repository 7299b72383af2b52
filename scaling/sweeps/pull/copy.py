"""Copy: what was fetched, as a ledger of its own. It holds what W&B has, so a later pull may write any of it again.

store/<run>/log.jsonl       an attempt a W&B run; its start states which it shows, and how far
store/<run>/result.json     of the attempt that is kept
studies/<sweep>/plan.json   the runs of a sweep, where its command is ours
points.csv                  a row a run
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from scaling import atomic
from scaling.errors import ScalingError
from scaling.ledger import Ledger, is_ledger, run_id
from scaling.ledger.document import disk, seal, stamp
from scaling.ledger.run import LOG
from scaling.sweeps.pull.history_check import Fetched
from scaling.sweeps.pull.reconcile import Reconciled
from scaling.sweeps.pull.wandb_run import WandbRun, result, spec

MARK = "pulled"  # a file that only copies have


@dataclass(frozen=True)
class Copied:
    """An attempt that was copied: its number, how far it was seen, and what its history lacked."""

    number: int
    version: str
    missing: tuple[str, ...]


class Copy:
    """The ledger under a folder, as a pull writes it; one pull at a time."""

    def __init__(self, folder: Path):
        if is_ledger(folder) and not (folder / MARK).exists():
            raise ScalingError("holds runs that were trained, not pulled", file=folder, fix="name another: --to")
        with disk("cannot write there"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / MARK).touch()
        self.ledger = Ledger.create(folder)
        self.copied: dict[str, Copied] = {}
        for run in self.ledger.runs():
            for record in self.ledger.attempts(run):
                start, end = record.start, record.end
                if end is not None and "wandb" in start:
                    self.copied[start["wandb"]] = Copied(record.number, start["seen"], tuple(end["missing"]))

    def wants(self, run: WandbRun) -> bool:
        """Whether the history of an ended run is yet to be fetched, or was not complete, or is longer now."""
        attempt = self.copied.get(run.path)
        return run.outcome is not None and (attempt is None or attempt.version != run.version or bool(attempt.missing))

    def numbers(self, reconciled: Reconciled) -> dict[str, int]:
        """The attempt that each W&B run of a run is: what it was, else the lowest free number, the oldest first."""
        taken = {run.path: self.copied[run.path].number for run in reconciled.attempts if run.path in self.copied}
        free = (number for number in count(1) if number not in set(taken.values()))
        return {run.path: taken.get(run.path) or next(free) for run in reconciled.attempts}

    def enter(self, run: WandbRun, number: int, fetched: Fetched) -> None:
        """An attempt, whole or not at all: the log is written anew."""
        assert run.run is not None
        log, missing = self.ledger.folder(run.run) / LOG, list(fetched.missing)
        start = {"kind": "start", "attempt": number, "time": run.created, "wandb": run.path, "seen": run.version}
        end = {"kind": "end", "attempt": number, "time": run.created, "outcome": run.outcome}
        end |= {"reason": run.summary.get("reason"), "missing": missing}
        attempts = _by_attempt(log) | {number: stamp(start) + fetched.log + stamp(end)}
        log.parent.mkdir(parents=True, exist_ok=True)
        _write(log, b"".join(attempts[each] for each in sorted(attempts)))
        self.copied[run.path] = Copied(number, run.version, fetched.missing)

    def conclude(self, reconciled: Reconciled) -> None:
        """The run's spec, where W&B has all of it, and the kept result."""
        folder, first, run = self.ledger.folder(reconciled.run), reconciled.attempts[0], reconciled.stands
        folder.mkdir(parents=True, exist_ok=True)
        run_spec = spec(first)
        if _name(run_spec) == reconciled.run:
            document = {"run": reconciled.run, "entered": first.created, "spec": run_spec}
            _write(folder / "spec.json", seal(document))
        if run is not None:
            about = {"run": reconciled.run, "attempt": self.copied[run.path].number, "outcome": run.outcome}
            _write(folder / "result.json", seal({**about, **result(run)}))

    def save_plan(self, name: str, plan: Mapping[str, Any]) -> None:
        """A sweep as a study of the ledger: what was asked of each run so far; tables find their rows by it."""
        folder = self.ledger.study_folder(name)
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "plan.json", seal(plan))


def _name(run_spec: Mapping[str, Any]) -> str | None:
    try:
        return run_id(run_spec)
    except ScalingError:
        return None


def _by_attempt(log: Path) -> dict[int, bytes]:
    """The lines of each attempt in a log that was pulled."""
    parts: dict[int, bytes] = {}
    number = 0
    for line in log.read_bytes().splitlines(keepends=True) if log.exists() else ():
        if line.startswith(b'{"kind":"start"'):
            number = json.loads(line)["attempt"]
        parts[number] = parts.get(number, b"") + line
    return parts


def _write(path: Path, content: bytes) -> None:
    """The file with this content. A copy need not outlive a power cut; its checksum shows it, and a pull fixes it."""
    if path.exists() and path.read_bytes() == content:
        return
    with disk("cannot write a run"):
        partial = atomic.temporary(path)
        partial.write_bytes(content)
        os.replace(partial, path)
