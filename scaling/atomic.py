"""Whole files or none: a reader never sees half of what a writer wrote, whatever killed it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import time
from functools import cache
from pathlib import Path
from typing import IO, Any

TEMPORARY = ".writing-"  # how the name of every unfinished file and folder begins
DAY = 86400.0  # seconds: beyond what two clocks differ by, and what one file takes to write
_SIGNED = re.compile(rf"{re.escape(TEMPORARY)}.*-([0-9a-f]{{8}})-([0-9]+)-[0-9a-f]{{16}}", re.DOTALL)


def write(path: Path, content: bytes | str) -> None:
    """`path` with new content: a temporary file next to it, flushed to the disk, then renamed over it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = temporary(path)
    try:
        with partial.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            flush(file)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def temporary(path: Path) -> Path:
    """A name that no one else uses, in the folder of `path` (so that a rename stays on one file system).

    It names the process and the machine that write there, so that files of a killed process are recognised.
    """
    return path.with_name(f"{TEMPORARY}{path.name}-{_machine()}-{os.getpid()}-{secrets.token_hex(8)}")


def is_left(path: Path, idle: bool) -> bool:
    """Whether no process writes an unfinished file any more; `idle` states that none is seen to work there.

    A process of this machine is looked up. Another machine's is given a day. Who wrote a file without a signature is
    not known.
    """
    signed = _SIGNED.fullmatch(path.name)
    if signed is None:
        return idle
    if signed[1] != _machine():
        return idle and time.time() - path.lstat().st_mtime > DAY
    try:
        os.kill(int(signed[2]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass  # another user's process
    return False


def boot_id() -> str | None:
    """The identifier of this boot of this machine, where Linux has it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def process_namespace() -> str | None:
    """Within which process numbers are one process's, where Linux has it."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


@cache
def _machine() -> str:
    """This boot and process namespace in 8 letters; where the system names neither, no other process is known here."""
    boot = boot_id() or secrets.token_hex(8)
    return hashlib.sha256(f"{boot} {process_namespace()}".encode()).hexdigest()[:8]


def write_json(path: Path, value: Any) -> None:
    write(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def flush(file: IO[Any]) -> None:
    """What was written to an open file, on the disk."""
    file.flush()
    os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """A folder's entries on the disk, so that a rename in it outlives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
