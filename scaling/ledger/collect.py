"""Collect: what disk space can be had back without losing anything that is still needed.

Freed are the checkpoints of runs that have a result, and of idle trunks whose every branch has one, except steps that a
branch of any study still starts from; and checkpoints that killed workers left half-written. Specs, logs and results
stay.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from scaling.ledger import checkpoint
from scaling.ledger.exclusive import TEMPORARY, disk
from scaling.ledger.store import Ledger


@dataclass(frozen=True)
class Waste:
    """A folder that can go."""

    run: str
    path: Path
    kind: Literal["checkpoint", "half-written"]
    bytes: int


def waste(ledger: Ledger) -> Iterator[Waste]:
    """What can go, run by run; nothing is touched. A damaged plan is refused: what its branches need is not known."""
    for study in ledger.studies():
        ledger.plan(study)
    trunks = ledger.trunks()
    for run in ledger.runs():
        done, needed, row = ledger.result(run) is not None, ledger.needed(run), ledger.status(run)
        spent = done or (run in trunks and not needed and row.state != "running")
        for record in ledger.attempts(run):
            folder = record.folder / "checkpoints"
            if spent:
                for step, path in checkpoint.steps(folder).items():
                    if step not in needed:
                        yield Waste(run, path, "checkpoint", _size(path))
            if done or record.exit is not None or ledger.is_gone(record):
                for path in folder.glob(f"{TEMPORARY}*"):
                    yield Waste(run, path, "half-written", _size(path))


def free(found: Iterable[Waste]) -> int:
    """Remove what `waste` found, and return how many bytes that were."""
    total = 0
    for item in found:
        with disk("cannot free"):
            if item.kind == "checkpoint":
                checkpoint.drop(item.path)
            elif not item.path.is_symlink():
                shutil.rmtree(item.path, ignore_errors=True)
        total += item.bytes
    return total


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
