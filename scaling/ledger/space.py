"""Space: what can be freed on the disk without losing what is needed.

Freed are the checkpoints of runs that have a result, and of idle trunks whose every branch has one, except steps that a
branch of any study still starts from, and weights that another run needs; and what killed processes left half-written,
anywhere in the ledger. The final weights of finished runs stay unless asked for. Specs, logs and results always stay.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

from scaling.base import atomic
from scaling.base.errors import ScalingError, disk
from scaling.base.json_lines import flat
from scaling.ledger import checkpoint
from scaling.ledger.store import Ledger

HOUR = 3600.0  # seconds: beyond what two clocks differ by, and what one file takes to write


@dataclass(frozen=True)
class Waste:
    """A folder or a file that can go, and the run that it is of, where it is one's."""

    run: str | None
    path: Path
    kind: Literal["checkpoint", "final weights", "half-written"]
    bytes: int


def waste(ledger: Ledger, weights: bool = False) -> tuple[list[Waste], list[Waste]]:
    """The files that can go, and those that other runs still need; nothing is touched.

    A damaged plan is refused: what its branches need is not known. `weights`: also the last checkpoint of each finished
    run, without which it cannot be exported or generate.
    """
    spent, needed = list(_spent(ledger, weights)), _bases(ledger)
    waiting = [item for item in spent if (item.run, item.path.name) in needed]
    return [item for item in spent if item not in waiting], waiting


def free(items: Iterable[Waste]) -> int:
    """Remove what `waste` found, and return how many bytes that were."""
    total = 0
    for item in items:
        with disk("cannot free"):
            if item.kind == "half-written" and (item.path.is_symlink() or not item.path.is_dir()):
                item.path.unlink(missing_ok=True)
            else:
                checkpoint.drop(item.path)
        total += item.bytes
    return total


def _bases(ledger: Ledger) -> set[tuple[str | None, str]]:
    """The runs, and the names of their checkpoints, that other runs need: as a start or a teacher those that have no
    result, as a start also those whose checkpoints hold what they trained alone.
    """
    needed: set[tuple[str | None, str]] = set()
    for run in ledger.runs():
        try:
            spec = ledger.spec(run)
        except ScalingError:
            continue  # it cannot be trained or read either
        start, teacher, is_open = spec.get("start"), flat(spec).get("objective.teacher"), ledger.result(run) is None
        if teacher is not None and is_open:
            with suppress(ScalingError):  # it is not a run of this ledger
                folder = ledger.folder(ledger.find(Path(teacher).name))
                needed |= {(folder.name, path.name) for path in checkpoint.steps(folder).values()}
        if start is not None:
            bases = [start] if is_open else []
            bases += [checkpoint.note(path).get("start", {}) for path in checkpoint.steps(ledger.folder(run)).values()]
            needed |= {(base["run"], checkpoint.name(base["step"])) for base in bases if {"run", "step"} <= base.keys()}
    return needed


def _spent(ledger: Ledger, weights: bool) -> Iterator[Waste]:
    for study in ledger.studies():
        ledger.plan(study)
    trunks, idle = ledger.trunks(), True
    for run in ledger.runs():
        if ledger.is_held(run):
            idle = False
            continue
        folder, result, needed = ledger.folder(run), ledger.result(run), ledger.needed(run)
        final = None if result is None or result["outcome"] != "finished" else _final_weights(folder, result)
        if result is not None or (run in trunks and not needed):
            for step, path in checkpoint.steps(folder).items():
                if step not in needed and (path != final or weights):
                    yield Waste(run, path, "final weights" if path == final else "checkpoint", _size(path))
        for place in (folder, folder / checkpoint.FOLDER):
            yield from _unfinished(place.glob("*"), run)
    if idle:
        shared = ((ledger.root / name).rglob("*") for name in ("predictions", "studies", "sweeps"))
        yield from _unfinished(chain(ledger.root.iterdir(), *shared))


def _final_weights(folder: Path, result: dict) -> Path | None:
    """The checkpoint with a finished run's weights. A damaged one is not it where a whole one is there."""
    paths = list(checkpoint.steps(folder).values())
    if len(paths) == 1:
        return paths[0]  # nothing to choose, so its bytes need not be read
    weights = checkpoint.final(folder, result)
    return None if weights is None else weights.folder


def _unfinished(paths: Iterable[Path], run: str | None = None) -> Iterator[Waste]:
    """The files that a killed process was writing."""
    for path in paths:
        if path.name.startswith(atomic.TEMPORARY):
            with suppress(FileNotFoundError):  # finished meanwhile
                if time.time() - path.lstat().st_mtime > HOUR:
                    yield Waste(run, path, "half-written", _size(path))


def _size(path: Path) -> int:
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(inner.lstat().st_size for inner in path.rglob("*") if not inner.is_dir())
