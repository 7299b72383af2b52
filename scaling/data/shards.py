"""Prepared folders: a sealed manifest with the hash of every file, and the shards of tokens that most of them hold."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import sys
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scaling.base import atomic
from scaling.base.errors import ScalingError, from_os

if TYPE_CHECKING:
    from scaling.data.codec import Codec

FORMAT = 1
NAME = "manifest.json"
TOKENIZER = "tokenizer.json"
_TRUSTED = "trusted.json"  # size and time of change of the files whose hashes have been checked; may be removed
AGAIN = "remove the folder and run `scaling data prepare` again"


# --- any prepared folder ---


def digest(tree: Any) -> str:
    """SHA-256 of a plain tree, the same on every machine."""
    return hashlib.sha256(json.dumps(tree, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def seal(folder: Path, entries: Mapping[str, Any]) -> None:
    """Write the manifest of a folder with its own hash."""
    atomic.write_json(folder / NAME, {**entries, "sha256": digest(entries)})


def sealed(folder: Path) -> dict[str, Any]:
    """The manifest of a folder as it was written."""
    file = folder / NAME
    try:
        entries = atomic.read_json(file)
        intact = entries.pop("sha256") == digest(entries)
    except FileNotFoundError:
        raise ScalingError("the file is missing", file=file, fix=AGAIN) from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ScalingError(f"the manifest is damaged: {error}", file=file, fix=AGAIN) from error
    if not intact:
        raise ScalingError("the manifest was altered: its hash does not fit", file=file, fix=AGAIN)
    return entries


def check_files(folder: Path, hashes: Mapping[str, str], *, trust: bool = True) -> None:
    """The files of these names have these hashes. A file that was not touched since it was hashed is not read again."""
    trusted: dict[str, list[int]] = {}
    with suppress(OSError, ValueError):
        trusted = atomic.read_json(folder / _TRUSTED) if trust else {}
    before = dict(trusted)
    for name, sha256 in hashes.items():
        file = folder / name
        try:
            now = seen(file)
            if trusted.get(name) != now:
                with file.open("rb") as content:
                    if hashlib.file_digest(content, "sha256").hexdigest() != sha256:
                        raise ScalingError("it was altered: its hash does not fit", file=file, fix=AGAIN)
                trusted[name] = now
        except FileNotFoundError:
            raise ScalingError("the file is missing", file=file, fix=AGAIN) from None
    if trusted != before:
        with suppress(OSError):  # a folder that may only be read is checked again the next time
            atomic.write_json(folder / _TRUSTED, trusted)


def seen(file: Path) -> list[int]:
    """Size and time of change of a file."""
    status = file.stat()
    return [status.st_size, status.st_mtime_ns]


def trust(folder: Path, files: Mapping[str, list[int]]) -> None:
    """Have files pass `check_files` that are as `seen` when they were written and hashed."""
    atomic.write_json(folder / _TRUSTED, dict(files))


@contextmanager
def alone(folder: Path, key: str) -> Iterator[None]:
    """One preparation of the same data at a time on this machine; the lock dies with whoever holds it."""
    file = folder / "preparing" / f"{key}.lock"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("another process is preparing the same data; waiting for it", file=sys.stderr)
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
    except OSError as error:
        error.filename = error.filename or str(folder)
        raise from_os(error, "preparing stopped, and is resumed by the same command") from error


def discard(folder: Path) -> None:
    """Remove a folder, if it is there. It is renamed first, so that a kill leaves no part of it under its name."""
    gone = folder.with_name(f"{folder.name}.discarded")
    shutil.rmtree(gone, ignore_errors=True)
    if folder.exists():
        folder.rename(gone)
        shutil.rmtree(gone)


# --- shards of tokens ---


@dataclass(frozen=True)
class Shard:
    """A file of tokens and the file of its documents' ends."""

    name: str  # within the folder, without the endings .tokens and .ends
    tokens: int
    documents: int
    bytes: int  # of the text, in UTF-8
    unknown: int  # tokens <unk>
    largest: int  # token id
    tokens_sha256: str
    ends_sha256: str

    def files(self, folder: Path) -> tuple[Path, Path]:
        return folder / f"{self.name}.tokens", folder / f"{self.name}.ends"


Splits = Mapping[str, Mapping[str, tuple[Shard, ...]]]  # the shards of each side of each split


@dataclass(frozen=True)
class Manifest:
    """What lies in a folder: its shards by split and side, what tokenizer made them, and where the text came from."""

    fingerprint: str
    dtype: str
    vocabulary: int
    specials: Mapping[str, int]
    tokenizer: str  # SHA-256 of tokenizer.json
    splits: Splits
    request: Mapping[str, Any]  # the data line that was prepared first; others of equal text share the folder
    stamp: Mapping[str, Any]  # what its corpus was when it was read

    @classmethod
    def of(cls, codec: Codec, splits: Splits, request: Mapping[str, Any], stamp: Mapping[str, Any]) -> Manifest:
        """The manifest of shards. The fingerprint is a hash of the shards in their order and of what their tokens mean,
        whatever data line or machine they come from, and however many processes made them.
        """
        dtype, vocabulary, specials, tokenizer = codec.dtype.str, codec.size, codec.specials, codec.sha256
        numbered = {
            split: {
                side: [{**asdict(shard), "name": f"{split}/{number:05d}.{side}"} for number, shard in enumerate(shards)]
                for side, shards in sides.items()
            }
            for split, sides in splits.items()
        }
        meaning = {"dtype": dtype, "vocabulary": vocabulary, "specials": specials, "tokenizer": tokenizer}
        fingerprint = digest({"format": FORMAT, **meaning, "splits": numbered})[:16]
        return cls(fingerprint, dtype, vocabulary, specials, tokenizer, splits, request, stamp)

    def write(self, folder: Path) -> None:
        seal(folder, {"format": FORMAT, **asdict(self)})

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        entries = sealed(folder)
        if entries.pop("format", None) != FORMAT:
            raise ScalingError("it was prepared by another version", file=folder / NAME, fix=AGAIN)
        splits = {
            split: {side: tuple(Shard(**shard) for shard in parts) for side, parts in sides.items()}
            for split, sides in entries.pop("splits").items()
        }
        return cls(splits=splits, **entries)

    def check(self, folder: Path, split: str | None = None, *, trust: bool = True) -> None:
        """The files of a split, or of all, agree with the manifest. Hashes are taken again of files that were touched,
        or of all.
        """
        hashes = {TOKENIZER: self.tokenizer}
        splits = self.splits.values() if split is None else [self.splits.get(split, {})]
        for shard in (shard for sides in splits for parts in sides.values() for shard in parts):
            tokens, ends = shard.files(Path())
            hashes |= {str(tokens): shard.tokens_sha256, str(ends): shard.ends_sha256}
            if shard.largest >= self.vocabulary:
                what = f"token id {shard.largest} is beyond the vocabulary of {self.vocabulary}"
                raise ScalingError(what, file=folder / tokens, fix=AGAIN)
        check_files(folder, hashes, trust=trust)

    def count(self, split: str, what: str) -> int:
        """The sum of tokens, bytes or unknown over both sides of a split, or its number of documents."""
        sides = self.splits.get(split, {})
        counted = [sides.get("text", ())] if what == "documents" else sides.values()
        return sum(getattr(shard, what) for shards in counted for shard in shards)


_BUFFER = 1 << 22  # bytes of tokens held back to be written at once


class ShardWriter:
    """A shard that is being written, and counts once it is closed."""

    def __init__(self, folder: Path, name: str, codec: Codec):
        self.folder, self.name, self.codec = folder, name, codec
        path = folder / f"{name}.tokens"
        path.parent.mkdir(exist_ok=True)
        self.partial = atomic.temporary(path)
        self.file = self.partial.open("wb")
        self.buffer, self.ends = array(codec.dtype.char), array("Q")
        self.hash = hashlib.sha256()
        self.written = self.bytes = self.largest = self.unknown = 0

    def add(self, ids: array, size: int) -> None:
        """One document's tokens, which encode `size` bytes of text; `eos` follows them."""
        self.buffer.extend(ids)
        self.buffer.append(self.codec.specials["eos"])
        self.ends.append(self.written + len(self.buffer))
        self.bytes += size
        if len(self.buffer) * self.buffer.itemsize >= _BUFFER:
            self._flush()

    def close(self) -> Shard:
        """Put everything on the disk."""
        self._flush()
        atomic.flush(self.file)
        self.file.close()
        ends = np.array(self.ends, dtype="<u8").tobytes()
        atomic.write(self.folder / f"{self.name}.ends", ends)
        self.partial.replace(self.folder / f"{self.name}.tokens")
        return Shard(
            name=self.name,
            tokens=self.written,
            documents=len(self.ends),
            bytes=self.bytes,
            unknown=self.unknown,
            largest=self.largest,
            tokens_sha256=self.hash.hexdigest(),
            ends_sha256=hashlib.sha256(ends).hexdigest(),
        )

    def discard(self) -> None:
        """Leave nothing of a part that will not be finished; a full disk refuses what is still to be written again."""
        with suppress(OSError):
            self.file.close()
        self.partial.unlink(missing_ok=True)

    def _flush(self) -> None:
        if self.buffer:
            ids = np.frombuffer(self.buffer, dtype=self.buffer.typecode)
            self.largest = max(self.largest, int(ids.max()))
            if self.largest >= self.codec.size:
                what = f"token id {self.largest} is beyond the vocabulary of {self.codec.size}"
                raise ScalingError(what, fix="fix the tokenizer")
            if "unk" in self.codec.specials:
                self.unknown += int((ids == self.codec.specials["unk"]).sum())
            content = ids.astype(ids.dtype.newbyteorder("<"), copy=False).tobytes()
            self.file.write(content)
            self.hash.update(content)
            self.written += len(ids)
            self.buffer = array(self.buffer.typecode)
