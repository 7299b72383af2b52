"""Whole files or none: a reader never sees half of what a writer wrote, whatever killed it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from scaling.base.errors import check_regular, disk

TEMPORARY = ".writing-"  # how the name of every unfinished file and folder begins
NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # of a file system without locks


def write(path: Path, content: bytes | str) -> None:
    """`path` with new content. A device or a pipe is written to, and not replaced."""
    content = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(content)
    else:
        with writing(path) as file:
            file.write(content)


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """A temporary file next to `path`, which is flushed to the disk and renamed over it when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = temporary(path)
    try:
        with partial.open("wb") as file:
            yield file
            flush(file)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    flush_folder(path.parent)


def temporary(path: Path) -> Path:
    """A name that no one else uses, in the folder of `path` (so that a rename stays on one file system)."""
    return path.with_name(f"{TEMPORARY}{path.name}-{secrets.token_hex(8)}")


def write_json(path: Path, value: Any) -> None:
    write(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    check_regular(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def flush(file: IO[Any]) -> None:
    """Bring what was written to an open file to the disk."""
    file.flush()
    os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Bring a folder's entries to the disk, so that a rename in it outlives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def alone(path: Path, wait: Callable[[], object]) -> Iterator[None]:
    """Hold the lock of a file, which the system frees when its process ends; where a file system has none, nothing.
    `wait` is called before it waits for another process.
    """
    with disk(f"cannot write {path.name}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("a")
    with handle:
        if not hold(handle.fileno()):
            wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def hold(handle: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Whether the lock of an open file is granted now. A file system without locks grants it to whoever asks."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True
