"""Documents: JSON on disk that carries its own checksum, so that a torn or flipped one is never taken for a whole one.

A sealed document ends in the SHA-256 of every byte before it; a log is one JSON line an entry, with a CRC-32 each. Both
stay plain JSON for other tools. JSON has no NaN, so numbers that are not finite are the strings "NaN", "Infinity" and
"-Infinity" there, and come back as numbers.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from scaling.base import atomic
from scaling.base.errors import disk
from scaling.base.json_lines import flat, mapped

SPELLED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)  # of a file system without hard links
_LINE = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_PAGE = json.JSONEncoder(allow_nan=False, indent=1)
_SEAL = ',\n "sha256": "%s"\n}\n'
_SEAL_LENGTH = len(_SEAL % ("0" * 64))
_STAMP = b',"crc":"%08x"}'
_STAMP_LENGTH = len(_STAMP % 0)


class Damaged(ValueError):
    """A document whose checksum does not match, or which does not hold what documents of its kind hold."""


# Values


def text(value: Any, style: json.JSONEncoder = _LINE) -> str:
    """Strict JSON, in one line."""
    return style.encode(spelled(value))


def parse(content: bytes) -> Any:
    """Strict JSON to plain Python; whatever is wrong with it, deep nesting and endless digits too, is `Damaged`."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"not JSON: {error}") from None
    if b'"NaN"' not in content and b'Infinity"' not in content:
        return value
    return mapped(value, lambda leaf: SPELLED.get(leaf, leaf) if isinstance(leaf, str) else leaf)


def spelled(value: Any) -> Any:
    """The value with numbers that are not finite as strings, as JSON holds them."""
    return mapped(value, lambda leaf: json.dumps(leaf) if isinstance(leaf, float) and not math.isfinite(leaf) else leaf)


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The differences of two nested documents: the dotted key, and both values (None where there is none)."""
    left, right = flat(one), flat(other)
    return {
        key: (left.get(key), right.get(key))
        for key in dict.fromkeys((*left, *right))
        if key not in left or key not in right or text(left[key]) != text(right[key])
    }


# Sealed documents


def seal(document: Mapping[str, Any]) -> bytes:
    """The bytes of a document, which is not empty, for people to read, with a SHA-256 as its last key."""
    body = text(dict(document), _PAGE).removesuffix("\n}")
    return (body + _SEAL % hashlib.sha256(body.encode()).hexdigest()).encode()


def read(path: Path, **expected: Any) -> dict[str, Any] | None:
    """The sealed document at `path`, None where there is no such file.

    `Damaged` where it is not whole, or where a key of `expected` has another value: it is another's.
    """
    try:
        with _opened(path) as file:
            content = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    body, tail = content[:-_SEAL_LENGTH], content[-_SEAL_LENGTH:]
    if tail != (_SEAL % hashlib.sha256(body).hexdigest()).encode():
        raise Damaged(f"{path}: the checksum does not match")
    document = parse(body + b"}")
    for key, value in expected.items():
        if document.get(key) != value:
            raise Damaged(f"{path}: its {key} is {document.get(key)!r}")
    return document


def read_valid(path: Path, **expected: Any) -> dict[str, Any] | None:
    """The sealed document at `path`, None where there is none, or a damaged one."""
    with suppress(Damaged):
        return read(path, **expected)
    return None


def _opened(path: Path) -> IO[bytes]:
    """A file open for reading; a pipe in its place reads as empty, and is not waited for."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def publish(path: Path, document: Mapping[str, Any]) -> bool:
    """Seal a document in a file where nothing has its name yet; True where this call made it.

    A finished, synced file is linked to the name, and its number of names shows who made it, even where NFS lost the
    reply. On a file system without hard links it is renamed to the name.
    """
    temporary = atomic.temporary(path)
    with disk(f"cannot write {path.name}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                file.write(seal(document))
                atomic.flush(file)
            try:
                os.link(temporary, path)
            except OSError as error:
                if not path.exists():
                    if error.errno not in NO_LINKS:
                        raise
                    os.rename(temporary, path)
                    return True
            return temporary.stat().st_nlink == 2
        finally:
            temporary.unlink(missing_ok=True)
            atomic.flush_folder(path.parent)


# Logs


class Log:
    """The writer of a log.

    A line is a single write, so a killed process loses at most the line that it was writing.
    """

    def __init__(self, path: Path):
        self.path = path

    def write(self, entry: Mapping[str, Any]) -> None:
        """Append one entry of plain values, its `kind` first; a `step` orders it among the others."""
        line = stamp(entry)
        with disk("cannot write the log"), self.path.open("a+b", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
                line = b"\n" + line  # after a write that failed midway, or both lines would be lost
            while line:
                line = line[file.write(line) :]

    def sync(self) -> None:
        """Put what was written on the disk: done with each checkpoint, which the log then reaches."""
        with disk("cannot write the log"), self.path.open("r+b", buffering=0) as file:
            os.fsync(file.fileno())


def stamp(entry: Mapping[str, Any]) -> bytes:
    """One line of a log, with a CRC-32 as its last key; cheap enough for every step."""
    body = text(entry)[:-1].encode()
    return body + _STAMP % zlib.crc32(body) + b"\n"


def entries(path: Path, kinds: Iterable[str] = (), last: int | None = None) -> Iterator[dict[str, Any]]:
    """The whole entries of a log in order, all or those of some kinds; torn and flipped lines are passed over. Of a log
    of many bytes those in the `last` ones, where a number is given.
    """
    beginnings = tuple(f'{{"kind":"{kind}"'.encode() for kind in kinds) or b""
    with suppress(FileNotFoundError, NotADirectoryError), _opened(path) as file:
        if last is not None:
            file.seek(max(0, os.fstat(file.fileno()).st_size - last))
        for line in file:
            body, tail = line.rstrip(b"\n")[:-_STAMP_LENGTH], line.rstrip(b"\n")[-_STAMP_LENGTH:]
            if line.startswith(beginnings) and tail == _STAMP % zlib.crc32(body):
                with suppress(Damaged):
                    yield parse(body + b"}")
