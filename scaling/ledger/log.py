"""Log: what happened in an attempt, one checked JSON line an event, by its one writer.

A line goes out in a single write, so a killed process loses at most the line it was writing; a reader passes over lines
whose checksum does not match. `sync` is called with each checkpoint, so that after a loss of power the log reaches at
least as far as the checkpoint does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from scaling.ledger.document import stamp, unstamp
from scaling.ledger.exclusive import disk

_TAIL = 64 * 1024


class Log:
    """The writer. There is one for each attempt, in the process that claimed it."""

    def __init__(self, path: Path):
        self.path = path
        self._torn = False
        with disk("cannot open the log"):
            self._handle: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def write(self, entry: Mapping[str, Any]) -> None:
        """Append one entry: plain values; `step` in it orders it among the others."""
        if self._handle is None:
            raise ValueError("the log is closed")
        # After a write that failed midway the next line starts afresh, or both would be lost.
        line = (b"\n" if self._torn else b"") + stamp(entry)
        self._torn = True
        with disk("cannot write the log"):
            written = os.write(self._handle, line)
            while written < len(line):
                written += os.write(self._handle, line[written:])
        self._torn = False

    def sync(self) -> None:
        if self._handle is not None:
            with disk("cannot write the log"):
                os.fsync(self._handle)

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole entry of one attempt's log, in order; torn and flipped lines are passed over."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for line in file:
            entry = unstamp(line.rstrip(b"\n"))
            if entry is not None:
                yield entry


def last_entry(path: Path, key: str) -> dict[str, Any] | None:
    """The last whole entry that has `key`, looked for in the log's last 64 KiB."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return None
    for line in reversed(lines):
        entry = unstamp(line)
        if entry is not None and key in entry:
            return entry
    return None


def merged(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """One history out of several attempts' logs, oldest first: a repeated step is taken from its last attempt.

    Entries of one step and one `kind` replace each other; those without a step are all kept, before the stepped ones.
    """
    loose: list[dict[str, Any]] = []
    stepped: dict[tuple[int, str], dict[str, Any]] = {}
    for path in paths:
        for entry in entries(path):
            step = entry.get("step")
            if isinstance(step, int):
                stepped[step, str(entry.get("kind", ""))] = entry
            else:
                loose.append(entry)
    return loose + [stepped[key] for key in sorted(stepped, key=lambda key: key[0])]
