"""Copy: what was fetched, as a ledger of its own. It holds what W&B has, so a later pull may write any of it again.

store/<run>/attempts/NNN/   one folder a W&B run, in one rename; claim.json states which it shows, and how far
store/<run>/result.json     of the attempt that is kept
studies/<sweep>/plan.json   the runs of a sweep, where its command is ours
points.csv                  a row a run
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from scaling import atomic
from scaling.errors import ScalingError
from scaling.ledger import Ledger, run_id
from scaling.ledger.document import seal
from scaling.ledger.exclusive import disk
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
        if (folder / "ledger.json").exists() and not (folder / MARK).exists():
            raise ScalingError("holds runs that were trained, not pulled", file=folder, fix="name another: --to")
        with disk("cannot write there"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / MARK).touch()
        self.ledger = Ledger.create(folder)
        self.copied: dict[str, Copied] = {}
        for run in self.ledger.runs():
            for record in self.ledger.attempts(run):
                claim, ended = record.claim, record.exit
                if ended is not None and "wandb" in claim:
                    self.copied[claim["wandb"]] = Copied(record.number, claim["seen"], tuple(ended["missing"]))

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
        """An attempt, whole or not at all."""
        assert run.run is not None
        folder = self.ledger.folder(run.run) / "attempts" / f"{number:03d}"
        lacks = list(fetched.missing)
        signed = {"run": run.run, "attempt": number, "wandb": run.path, "seen": run.version, "claimed": run.created}
        ended = {"outcome": run.outcome, "reason": run.summary.get("reason"), "missing": lacks, "ended": run.created}
        with disk("cannot write a run"):
            partial = atomic.temporary(folder)
            partial.mkdir(parents=True)
            (partial / "claim.json").write_bytes(seal(signed))
            (partial / "log.jsonl").write_bytes(fetched.log)
            (partial / "exit.json").write_bytes(seal(ended))
            if folder.exists():
                aside = atomic.temporary(folder)
                folder.rename(aside)
                partial.rename(folder)
                shutil.rmtree(aside)
            else:
                partial.rename(folder)
        self.copied[run.path] = Copied(number, run.version, fetched.missing)

    def conclude(self, reconciled: Reconciled) -> None:
        """The run's spec, where W&B has all of it, and the kept result."""
        folder, first, run = self.ledger.folder(reconciled.run), reconciled.attempts[0], reconciled.stands
        folder.mkdir(parents=True, exist_ok=True)
        run_spec = spec(first)
        if _name(run_spec) == reconciled.run:
            _write(folder / "spec.json", {"run": reconciled.run, "entered": first.created, "spec": run_spec})
        if run is not None:
            number = self.copied[run.path].number
            _write(
                folder / "result.json",
                {"run": reconciled.run, "attempt": number, "outcome": run.outcome, **result(run)},
            )

    def save_plan(self, name: str, plan: Mapping[str, Any]) -> None:
        """A sweep as a study of the ledger: what was asked of each run so far; tables find their rows by it."""
        folder = self.ledger.study_folder(name)
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "plan.json", plan)


def _name(run_spec: Mapping[str, Any]) -> str | None:
    try:
        return run_id(run_spec)
    except ScalingError:
        return None


def _write(path: Path, document: Mapping[str, Any]) -> None:
    """The file with this document. A copy need not outlive a power cut; its checksum shows it, and a pull fixes it."""
    content = seal(document)
    if path.exists() and path.read_bytes() == content:
        return
    with disk("cannot write a run"):
        partial = atomic.temporary(path)
        partial.write_bytes(content)
        os.replace(partial, path)
