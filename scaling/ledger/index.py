"""Index: a cache of finished runs, so that ten thousand of them are listed in a moment. Delete it at any time.

    index.tsv: a line a run: id, what its folder looked like, row, spec, result (three as JSON), and the line's CRC-32

A finished run does not change: the folder of one gets its last entry with its result. So a line holds as long as the
folder has the inode and the modification time that it had. Each reader takes from a line only what it asks for.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from scaling.errors import ScalingError
from scaling.ledger.attempt import records
from scaling.ledger.document import Damaged, parse, read, text
from scaling.ledger.exclusive import replace
from scaling.ledger.forms import SPEC, of_run
from scaling.ledger.identity import RUN_ID
from scaling.ledger.result import read_result
from scaling.ledger.status import Row, finished
from scaling.ledger.store import Ledger

NAME = "index.tsv"

_Finished = tuple[str, dict[str, Any], dict[str, Any]]  # run, spec, result
_Line = list[str]  # id, look, row, spec, result


def rows(ledger: Ledger, runs: Collection[str] | None = None) -> list[Row]:
    """The rows of all runs, or of these in their order."""
    cached, others = _lines(ledger, runs)
    by_run = {run: Row(**parse(line[2])) for run, line in cached.items()}
    by_run |= {run: ledger.status(run) for run in others}
    return [by_run[run] for run in (sorted(by_run) if runs is None else runs)]


def results(ledger: Ledger, runs: Collection[str] | None = None) -> Iterator[_Finished]:
    """Each run that has a result, in the order of `rows`, with its spec and result."""
    cached, _ = _lines(ledger, runs)
    for run in sorted(cached) if runs is None else runs:
        if run in cached:
            yield run, parse(cached[run][3]), parse(cached[run][4])


def _lines(ledger: Ledger, runs: Collection[str] | None) -> tuple[dict[str, _Line], list[str]]:
    """The lines of finished runs, and the runs that have no result; what was not in the index is read and added."""
    store = ledger.root / "store"
    cached = _load(ledger.root / NAME)
    if runs is None:
        with os.scandir(store) as entries:
            looks = {entry.name: _look(entry.stat) for entry in entries if RUN_ID.fullmatch(entry.name)}
    else:
        looks = {run: _look(ledger.folder(run).stat) for run in dict.fromkeys(runs)}
    current = {run: cached[run] for run, look in looks.items() if run in cached and cached[run][1] == look}
    fresh = {run: line for run in looks.keys() - current.keys() if (line := _line(store / run, looks[run])) is not None}
    current |= fresh
    if fresh:
        _save(ledger.root / NAME, cached | fresh)
    return current, [run for run in looks if run not in current]


def _line(run: Path, look: str) -> _Line | None:
    result = read_result(run)
    if result is None:
        return None
    try:
        document = read(run / "spec.json", partial(of_run, form=SPEC, name=run.name)) or {}
    except Damaged:
        document = {}
    spec = document.get("spec")
    row = finished(run, spec, records(run), result)
    return [run.name, look, text(asdict(row)), text(spec), text(result)]


def _look(stat: Callable[[], os.stat_result]) -> str:
    """A folder's inode and time of change; empty, as in no line, where it is not there."""
    try:
        seen = stat()
    except FileNotFoundError:
        return ""
    return f"{seen.st_ino}:{seen.st_mtime_ns}"


def _load(path: Path) -> dict[str, _Line]:
    with suppress(OSError, UnicodeDecodeError):
        lines = (line.rpartition("\t") for line in path.read_text(encoding="utf-8").split("\n"))
        whole = (body.split("\t") for body, _, crc in lines if crc == _crc(body))
        return {line[0]: line for line in whole if len(line) == 5}
    return {}


def _crc(line: str) -> str:
    return f"{zlib.crc32(line.encode()):08x}"


def _save(path: Path, lines: dict[str, _Line]) -> None:
    # A folder that may only be read, or is full, has no index; nothing but time is lost.
    with suppress(ScalingError):
        bodies = ("\t".join(line) for line in lines.values())
        replace(path, "".join(f"{body}\t{_crc(body)}\n" for body in bodies).encode())
