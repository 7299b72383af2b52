"""Listing: the runs of a ledger in rows, and the disk space that can be had back without losing what is needed.

`index.tsv` is a cache of finished runs, so that ten thousand of them are listed in a moment. Delete it at any time. It
has a line a run: id, what its folder looked like, row, spec, result (three as JSON), and the line's CRC-32. A finished
run does not change: the folder of one gets its last entry with the end of its attempt. So a line holds as long as the
folder has the inode and the modification time that it had. Each reader takes from a line only what it asks for.

Freed are the checkpoints of runs that have a result, and of idle trunks whose every branch has one, except steps that a
branch of any study still starts from, and weights that another run needs; and what killed processes left half-written,
anywhere in the ledger. The final weights of finished runs stay unless asked for. Specs, logs and results always stay.
"""

from __future__ import annotations

import os
import shutil
import time
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from scaling import atomic
from scaling.errors import ScalingError
from scaling.ledger import checkpoint
from scaling.ledger.document import disk, parse, text
from scaling.ledger.identity import RUN_ID
from scaling.ledger.run import AGAIN, RESULTS
from scaling.ledger.store import Ledger, Row

INDEX = "index.tsv"
SHARED = ("predictions", "studies", "sweeps")  # folders next to the store
HOUR = 3600.0  # seconds: beyond what two clocks differ by, and what one file takes to write

_Line = list[str]  # id, look, row, spec, result


def rows(ledger: Ledger, runs: Collection[str] | None = None) -> list[Row]:
    """The rows of all runs, or of these in their order."""
    lines, others = _lines(ledger, runs)
    by_run = {run: Row(**parse(line[2])) for run, line in lines.items()} | others
    return [by_run[run] for run in (sorted(by_run) if runs is None else runs)]


def results(
    ledger: Ledger, runs: Collection[str] | None = None
) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Each run that has a result, in the order of `rows`, with its spec and result."""
    lines, _ = _lines(ledger, runs)
    for run in sorted(lines) if runs is None else runs:
        if run in lines:
            yield run, parse(lines[run][3]), parse(lines[run][4])


def hardware(circumstances: Mapping[str, Any]) -> str:
    """A result's machine in words."""
    ranks = circumstances.get("ranks", 1)
    if circumstances.get("device", "cpu") != "cpu":
        return f"{ranks} × {circumstances['device']}"
    parts = [f"{circumstances.get('processor', 'a processor')} CPU", f"{circumstances.get('cores', '?')} cores"]
    parts += [circumstances["instructions"]] if circumstances.get("instructions") else []
    threads = circumstances.get("threads", "?")
    return f"{', '.join(parts)}, {threads} thread{'' if threads == 1 else 's'} a worker"


def _lines(ledger: Ledger, runs: Collection[str] | None) -> tuple[dict[str, _Line], dict[str, Row]]:
    """The lines of finished runs, and the rows of the others; what was not in the index is read and added."""
    index, others = ledger.root / INDEX, dict[str, Row]()
    cached = _load(index)
    if runs is None:
        with os.scandir(ledger.root / "store") as entries:
            looks = {entry.name: _look(entry) for entry in entries if RUN_ID.fullmatch(entry.name)}
    else:
        looks = {run: _look(ledger.folder(run)) for run in dict.fromkeys(runs)}
    lines = {run: cached[run] for run, look in looks.items() if run in cached and cached[run][1] == look}
    fresh: dict[str, _Line] = {}
    for run in looks.keys() - lines.keys():
        row, spec = ledger.status(run), None
        if row.state in RESULTS:
            with suppress(ScalingError):  # a damaged spec
                spec = ledger.spec(run)
            fresh[run] = [run, looks[run], text(asdict(row)), text(spec), text(ledger.result(run))]
        else:
            others[run] = row
    if fresh:
        # A folder that may only be read, or is full, has no index; nothing but time is lost.
        with suppress(OSError):
            bodies = ("\t".join(line) for line in (cached | fresh).values())
            atomic.write(index, "".join(f"{body}\t{_crc(body)}\n" for body in bodies))
    return lines | fresh, others


def _look(folder: Path | os.DirEntry[str]) -> str:
    """A folder's inode and time of change; empty, as in no line, where it is not there."""
    try:
        seen = folder.stat()
    except FileNotFoundError:
        return ""
    return f"{seen.st_ino}:{seen.st_mtime_ns}"


def _load(index: Path) -> dict[str, _Line]:
    with suppress(OSError, UnicodeDecodeError):
        lines = (line.rpartition("\t") for line in index.read_text(encoding="utf-8").split("\n"))
        whole = (body.split("\t") for body, _, crc in lines if crc == _crc(body))
        return {line[0]: line for line in whole if len(line) == 5}
    return {}


def _crc(line: str) -> str:
    return f"{zlib.crc32(line.encode()):08x}"


# Disk space


@dataclass(frozen=True)
class Waste:
    """A folder or a file that can go, and the run that it is of, where it is one's."""

    run: str | None
    path: Path
    kind: Literal["checkpoint", "final weights", "half-written"]
    bytes: int


def waste(ledger: Ledger, weights: bool = False) -> tuple[list[Waste], list[Waste]]:
    """What can go, and what could but for the runs that stay and start from it; nothing is touched.

    A damaged plan is refused: what its branches need is not known. `weights`: also the last checkpoint of each finished
    run, without which it cannot be exported or generate.
    """
    spent, kept = list(_spent(ledger, weights)), list[Waste]()
    while True:
        needed = _bases(ledger, {item.path for item in spent})
        more = [item for item in spent if (item.run, item.path.name) in needed]
        if not more:
            return spent, kept
        spent, kept = [item for item in spent if item not in more], kept + more


def free(items: Iterable[Waste]) -> int:
    """Remove what `waste` found, and return how many bytes that were."""
    total = 0
    for item in items:
        with disk("cannot free"):
            if item.kind != "half-written":
                checkpoint.drop(item.path)
            elif item.path.is_dir() and not item.path.is_symlink():
                shutil.rmtree(item.path, ignore_errors=True)
            else:
                item.path.unlink(missing_ok=True)
        total += item.bytes
    return total


def _bases(ledger: Ledger, gone: Collection[Path]) -> set[tuple[str | None, str]]:
    """The runs, and the names of their checkpoints, that other runs start from: those that have no result, and those
    whose checkpoints hold what they trained alone.
    """
    needed: set[tuple[str | None, str]] = set()
    for run in ledger.runs():
        try:
            start = ledger.spec(run).get("start")
        except ScalingError:
            continue  # it cannot be trained or read either
        if start is not None:
            checkpoints = [path for path in checkpoint.steps(ledger.folder(run)).values() if path not in gone]
            bases = [] if ledger.result(run) is not None else [start]
            bases += [checkpoint.note(path).get("start", {}) for path in checkpoints]
            needed |= {(base["run"], checkpoint.name(base["step"])) for base in bases if {"run", "step"} <= base.keys()}
    return needed


def _spent(ledger: Ledger, weights: bool) -> Iterator[Waste]:
    for study in ledger.studies():
        ledger.plan(study)
    trunks, idle = ledger.trunks(), True
    for run in ledger.runs():
        folder, result, needed, held = ledger.folder(run), ledger.result(run), ledger.needed(run), ledger.is_held(run)
        if not held and (result is not None or (run in trunks and not needed)):
            final = _final_weights(folder, result) if result is not None and result["outcome"] == "finished" else None
            for step, path in checkpoint.steps(folder).items():
                if step not in needed and (path != final or weights):
                    yield Waste(run, path, "final weights" if path == final else "checkpoint", _size(path))
        if not held and (folder / AGAIN).is_dir():
            yield Waste(run, folder / AGAIN, "half-written", _size(folder / AGAIN))
        for place in (folder, folder / checkpoint.FOLDER):
            yield from _unfinished(place.iterdir() if place.is_dir() else (), not held, run)
        idle = idle and not held
    for name in SHARED:
        yield from _unfinished((ledger.root / name).rglob("*"), idle)
    yield from _unfinished(ledger.root.iterdir(), idle)


def _final_weights(folder: Path, result: dict) -> Path | None:
    """The checkpoint with a finished run's weights. A damaged one is not it where a whole one is there."""
    paths = list(checkpoint.steps(folder).values())
    if len(paths) <= 1:
        return paths[0] if paths else None  # nothing to choose, so its bytes need not be read
    weights = checkpoint.final(folder, result)
    return None if weights is None else weights.folder


def _unfinished(paths: Iterable[Path], idle: bool, run: str | None = None) -> Iterator[Waste]:
    """What a process was writing that was killed."""
    for path in paths:
        if path.name.startswith(atomic.TEMPORARY):
            with suppress(FileNotFoundError):  # finished meanwhile
                if idle and time.time() - path.lstat().st_mtime > HOUR:
                    yield Waste(run, path, "half-written", _size(path))


def _size(path: Path) -> int:
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(inner.lstat().st_size for inner in path.rglob("*") if not inner.is_dir())
