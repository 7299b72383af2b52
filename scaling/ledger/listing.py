"""Listing: runs in rows, for people to look at. Nothing is decided by it.

`index.tsv` is a cache of finished runs, so that ten thousand of them are listed in a moment. Delete it at any time. It
has a line a run: id, what its folder looked like, row, spec, result (three as JSON), and the line's CRC-32. A finished
run does not change: the folder of one gets its last entry with the end of its attempt. So a line holds as long as the
folder has the inode and the modification time that it had. Each reader takes from a line only what it asks for.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scaling import atomic
from scaling.errors import ScalingError
from scaling.ledger.document import parse, text
from scaling.ledger.identity import RUN_ID
from scaling.ledger.run import RESULTS
from scaling.ledger.status import Row
from scaling.ledger.store import Ledger

INDEX = "index.tsv"

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
