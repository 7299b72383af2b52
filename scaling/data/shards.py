"""Shards: files of tokens and their manifest."""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scaling import atomic
from scaling.errors import ScalingError

FORMAT = 1
NAME = "manifest.json"
TOKENIZER = "tokenizer.json"
_TRUSTED = "trusted.json"  # size and time of change of the files whose hashes have been checked; may be removed
AGAIN = "remove the folder and run `scaling data prepare` again"


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


@dataclass(frozen=True)
class Manifest:
    """What lies in a folder: its shards by split and side, what tokenizer made them, and where the text came from."""

    dtype: str
    vocabulary: int
    specials: Mapping[str, int]
    tokenizer: str  # SHA-256 of tokenizer.json
    splits: Mapping[str, Mapping[str, tuple[Shard, ...]]]
    request: Mapping[str, Any]  # the data line that was prepared first; others of equal text share the folder
    stamp: Mapping[str, Any]  # what its corpus was when it was read
    dropped: int = 0  # training documents left out because validation has them
    # What each side of a split would be as one shard; None where it is one.
    joined: Mapping[str, Mapping[str, tuple[Shard, ...]]] | None = None

    @property
    def fingerprint(self) -> str:
        """A hash of the tokens and of what they mean, whatever data line, machine or size of shards they come from."""
        return self._digest(self.splits if self.joined is None else self.joined)

    @property
    def layout(self) -> str:
        """The same hash of the shards as they lie in the folder."""
        return self._digest(self.splits)

    def _digest(self, splits: Mapping[str, Mapping[str, tuple[Shard, ...]]]) -> str:
        plain = asdict(replace(self, splits=splits))
        kept = {key: plain[key] for key in ("dtype", "vocabulary", "specials", "tokenizer", "splits")}
        return digest({"format": FORMAT, **kept})[:16]

    def write(self, folder: Path) -> None:
        plain = asdict(self)
        if self.joined is None:
            del plain["joined"]
        else:
            plain["layout"] = self.layout
        entries = {"format": FORMAT, "fingerprint": self.fingerprint, **plain}
        atomic.write_json(folder / NAME, {**entries, "sha256": digest(entries)})

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        file = folder / NAME
        try:
            entries = atomic.read_json(file)
            sealed = entries.pop("sha256") == digest(entries)
            fingerprint = entries.pop("fingerprint")
            if entries.pop("format") != FORMAT:
                raise ScalingError("it was prepared by another version", file=file, fix=AGAIN)
            layout = entries.pop("layout", None)
            splits, joined = _shards(entries.pop("splits")), entries.pop("joined", None)
            manifest = cls(splits=splits, joined=None if joined is None else _shards(joined), **entries)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ScalingError(f"the manifest is damaged: {error}", file=file, fix=AGAIN) from error
        if not sealed or manifest.fingerprint != fingerprint or layout not in (None, manifest.layout):
            raise ScalingError("the manifest was altered: its hash does not fit", file=file, fix=AGAIN)
        return manifest

    def shards(self) -> list[Shard]:
        return [shard for sides in self.splits.values() for shards in sides.values() for shard in shards]

    def count(self, split: str, what: str) -> int:
        """The sum of tokens, bytes or unknown over both sides of a split, or its number of documents."""
        sides = self.splits.get(split, {})
        if what == "documents":
            return sum(shard.documents for shard in sides.get("text", ()))
        return sum(getattr(shard, what) for shards in sides.values() for shard in shards)


def _shards(plain: Mapping[str, Any]) -> dict[str, dict[str, tuple[Shard, ...]]]:
    return {
        split: {side: tuple(Shard(**shard) for shard in shards) for side, shards in sides.items()}
        for split, sides in plain.items()
    }


def digest(tree: Any) -> str:
    """SHA-256 of a plain tree, the same on every machine."""
    return hashlib.sha256(json.dumps(tree, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def check_files(folder: Path, hashes: Mapping[str, str], *, trust: bool = True) -> None:
    """The files of these names have these hashes. A file that was not touched since it was hashed is not read again."""
    trusted = _trusted(folder) if trust else {}
    before = dict(trusted)
    for name, sha256 in hashes.items():
        file = folder / name
        try:
            status = file.stat()
            seen = [status.st_size, status.st_mtime_ns]
            if trusted.get(name) != seen:
                with file.open("rb") as content:
                    if hashlib.file_digest(content, "sha256").hexdigest() != sha256:
                        raise ScalingError("it was altered: its hash does not fit", file=file, fix=AGAIN)
                trusted[name] = seen
        except FileNotFoundError:
            raise ScalingError("the file is missing", file=file, fix=AGAIN) from None
    if trusted != before:
        with suppress(OSError):  # a folder that may only be read is checked again the next time
            atomic.write_json(folder / _TRUSTED, trusted)


def _trusted(folder: Path) -> dict[str, list[int]]:
    try:
        return atomic.read_json(folder / _TRUSTED)
    except (OSError, ValueError):
        return {}


_BUFFER = 1 << 22  # bytes of tokens held back to be written at once


def joined(folder: Path, shards: Sequence[Shard], name: str) -> Shard:
    """What consecutive shards would be as one: their tokens end to end, and where in these each document ends."""
    tokens, ends, start = hashlib.sha256(), hashlib.sha256(), 0
    for shard in shards:
        files = shard.files(folder)
        with files[0].open("rb") as file:
            while block := file.read(_BUFFER):
                tokens.update(block)
        ends.update((np.fromfile(files[1], "<u8") + np.uint64(start)).astype("<u8").tobytes())
        start += shard.tokens
    sums = {key: sum(getattr(shard, key) for shard in shards) for key in ("tokens", "documents", "bytes", "unknown")}
    largest = max(shard.largest for shard in shards)
    return Shard(name, largest=largest, tokens_sha256=tokens.hexdigest(), ends_sha256=ends.hexdigest(), **sums)


class Part:
    """Consecutive documents of a corpus, with a shard for each split and side that they fill."""

    def __init__(self, folder: Path, number: int, dtype: np.dtype, vocabulary: int, unknown: int | None):
        self.folder, self.number, self.dtype = folder, number, dtype
        self.vocabulary, self.unknown = vocabulary, unknown
        self.tokens = 0
        self._files: dict[tuple[str, str], _ShardFile] = {}

    def add(self, split: str, side: str, ids: array, size: int) -> None:
        """One document's tokens on one side, its `eos` among them, which encode `size` bytes of text."""
        if (split, side) not in self._files:
            name = f"{split}/{self.number:05d}.{side}"
            self._files[split, side] = _ShardFile(self.folder, name, self.dtype, self.vocabulary, self.unknown)
        self._files[split, side].add(ids, size)
        self.tokens += len(ids)

    def close(self) -> Mapping[str, Mapping[str, Shard]]:
        """Everything on disk; the shards by split and side."""
        shards: dict[str, dict[str, Shard]] = {}
        for (split, side), file in self._files.items():
            shards.setdefault(split, {})[side] = file.close()
        for split in shards:
            atomic.flush_folder(self.folder / split)
        return shards

    def abandon(self) -> None:
        """Let go of the files of a part that will not be finished."""
        for file in self._files.values():
            file.abandon()


class _ShardFile:
    def __init__(self, folder: Path, name: str, dtype: np.dtype, vocabulary: int, unknown: int | None):
        self.folder, self.name = folder, name
        self.vocabulary, self.unknown = vocabulary, unknown
        path = folder / f"{name}.tokens"
        path.parent.mkdir(exist_ok=True)
        # Unbuffered: nothing is left to be written, and to fail again, when a full disk has ended the part.
        self.file = path.open("wb", buffering=0)
        self.buffer = array(dtype.char)
        self.ends = array("Q")
        self.hash = hashlib.sha256()
        self.written = self.bytes = self.largest = self.unknowns = 0

    def add(self, ids: array, size: int) -> None:
        self.buffer.extend(ids)
        self.ends.append(self.written + len(self.buffer))
        self.bytes += size
        if len(self.buffer) * self.buffer.itemsize >= _BUFFER:
            self._flush()

    def close(self) -> Shard:
        self._flush()
        atomic.flush(self.file)
        self.file.close()
        ends = np.array(self.ends, dtype="<u8").tobytes()
        with (self.folder / f"{self.name}.ends").open("wb", buffering=0) as file:
            _write(file.fileno(), ends)
            atomic.flush(file)
        return Shard(
            name=self.name,
            tokens=self.written,
            documents=len(self.ends),
            bytes=self.bytes,
            unknown=self.unknowns,
            largest=self.largest,
            tokens_sha256=self.hash.hexdigest(),
            ends_sha256=hashlib.sha256(ends).hexdigest(),
        )

    def abandon(self) -> None:
        self.file.close()

    def _flush(self) -> None:
        if not self.buffer:
            return
        ids = np.frombuffer(self.buffer, dtype=self.buffer.typecode)
        self.largest = max(self.largest, int(ids.max()))
        if self.largest >= self.vocabulary:
            raise ScalingError(
                f"token id {self.largest} is beyond the vocabulary of {self.vocabulary}", fix="fix the tokenizer"
            )
        if self.unknown is not None:
            self.unknowns += int((ids == self.unknown).sum())
        content = ids.astype(ids.dtype.newbyteorder("<"), copy=False).tobytes()
        _write(self.file.fileno(), content)
        self.hash.update(content)
        self.written += len(ids)
        self.buffer = array(self.buffer.typecode)


def _write(handle: int, content: bytes) -> None:
    """All of it: the system may take less at a time, on a disk that is nearly full for one."""
    left = memoryview(content)
    while left:
        left = left[os.write(handle, left) :]
