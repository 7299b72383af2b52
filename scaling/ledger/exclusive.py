"""Exclusive: files that exactly one writer makes, and files that are never seen half-written.

Many workers on many machines write to one folder, often over NFS, where a lost reply can turn a success into an error.
So a file is published by linking a finished, synced temporary file to its name and then asking the temporary file how
many names it has: two means that this call made it, whatever the call itself returned. Where a file system has no hard
links, `O_EXCL` does instead, and a reader's checksum detects a file whose writer died midway.

What is written again and again, from what the ledger holds by then, is read and written under a lock: the last to read
is the last to write.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from scaling import atomic
from scaling.errors import from_os

Means = Literal["link", "create"]


def probe(folder: Path) -> Means:
    """How files can be made exclusively in `folder`: by `link` where hard links work and are counted, else `create`."""
    temporary = atomic.temporary(folder / "probe")
    target = temporary.with_name(temporary.name + "-link")
    with disk(f"cannot write in {folder}"):
        temporary.write_bytes(b"probe")
    try:
        os.link(temporary, target)
        return "link" if os.stat(temporary).st_nlink == 2 else "create"
    except OSError:
        return "create"
    finally:
        temporary.unlink(missing_ok=True)
        target.unlink(missing_ok=True)


def publish(path: Path, content: bytes, means: Means) -> bool:
    """Make `path` hold `content` where nothing has that name yet; True where this call made it."""
    with disk(f"cannot write {path.name}"):
        created = _link(path, content) if means == "link" else _create(path, content)
        if created:
            atomic.flush_folder(path.parent)
        return created


def replace(path: Path, content: bytes) -> None:
    """Make `path` hold `content`; a reader sees the old bytes or the new ones, never a mixture."""
    with disk(f"cannot write {path.name}"):
        atomic.write(path, content)


@contextmanager
def disk(what: str) -> Iterator[None]:
    """Report a failing or full disk in one line, with exit code 74."""
    try:
        yield
    except OSError as error:
        raise from_os(error, what) from error


@contextmanager
def locked(path: Path, waiting: Callable[[], object]) -> Iterator[None]:
    """Hold the lock of a file, which the system frees when its process ends; `waiting` is called where another process
    holds it. Where a file system has no locks, nothing is held.
    """
    with disk(f"cannot write {path.name}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("a")
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            pass
        yield


def _link(path: Path, content: bytes) -> bool:
    with _temporary(path, content) as temporary:
        failure = _failure(lambda: os.link(temporary, path))
        linked = os.stat(temporary).st_nlink == 2
    if failure is not None and not linked and not isinstance(failure, FileExistsError):
        raise failure
    return linked


def _create(path: Path, content: bytes) -> bool:
    try:
        file = path.open("xb")
    except FileExistsError:
        return False
    try:
        with file:
            file.write(content)
            atomic.flush(file)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return True


def _failure(call: Callable[[], object]) -> OSError | None:
    try:
        call()
    except OSError as error:
        return error
    return None


@contextmanager
def _temporary(path: Path, content: bytes) -> Iterator[Path]:
    temporary = atomic.temporary(path)
    try:
        with temporary.open("xb") as file:
            file.write(content)
            atomic.flush(file)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
