"""Prepared data: folders with a sealed manifest, and shards of tokens as sources, read from memory maps.

Altered or truncated files are found by their hashes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from scaling.base import atomic
from scaling.base.errors import ScalingError, from_os, refuse
from scaling.config import schema
from scaling.data import rows
from scaling.data.batches import Stream
from scaling.data.codec import Codec
from scaling.data.source import Rows, Source

FORMAT = 1
NAME = "manifest.json"
TOKENIZER = "tokenizer.json"
TRUSTED = "trusted.json"  # the stamps of the files whose hashes have been checked; may be removed
_AGAIN = "remove the folder and run `scaling data prepare` again"
UNPREPARED = "run `scaling data prepare` with the same data= (or --model CONFIG) and runs= first"


def root(runs: str | Path) -> Path:
    """The folder of prepared data: $SCALING_DATA, or `data` next to the folder of runs."""
    named = os.environ.get("SCALING_DATA")
    return Path(os.path.expanduser(named)) if named else Path(os.path.expanduser(runs)).absolute().parent / "data"


def tokenizer(data: Mapping[str, Any], runs: str | Path) -> Path | None:
    """The tokenizer's file of a run's line of data: the one that the line names, or that of the prepared data. One that
    is named and is nowhere is returned too, so that whoever opens it reports it.
    """
    line = data
    for key in schema.parts("data") & data.keys():  # parts of data have one tokenizer
        line = min(data[key].items())[1]
    named = line.get("tokenizer")
    file = None
    if isinstance(named, Mapping) and named.get("kind") == "File":
        file = Path(os.path.expanduser(named["path"]))
    prepared = str(data.get("fingerprint", "")).rpartition("-")[0]
    copy = root(runs) / prepared / TOKENIZER
    return copy if prepared and copy.is_file() and not (file and file.is_file()) else file


# --- folders ---


def described(piece: Any) -> dict[str, Any]:
    """The line of a piece that keeps its keys as they are."""
    return {"kind": type(piece).__name__, **vars(piece)}


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
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ScalingError(f"the manifest is damaged: {error}", file=file, fix=_AGAIN) from error
    refuse(not intact, "the manifest was altered: its hash does not fit", _AGAIN, file=file)
    return entries


def check_files(folder: Path, hashes: Mapping[str, str], *, trust: bool = True) -> None:
    """The files of these names have these hashes. A file that was not touched since it was hashed is not read again."""
    known: dict[str, list[Any]] = {}
    now: dict[str, list[Any]] = {}
    with suppress(OSError, ValueError, AttributeError):
        stated = atomic.read_json(folder / TRUSTED) if trust else {}
        known = {name: stamp for name, stamp in stated.items() if isinstance(stamp, list)}
    for name, expected in hashes.items():
        file = folder / name
        refuse(not file.is_file(), "the file is missing", _AGAIN, file=file)
        now[name] = rows.hashed(file, known.get(name, ()))
        refuse(now[name][-1] != expected, "it was altered: its hash does not fit", _AGAIN, file=file)
    if not now.items() <= known.items():
        with suppress(OSError):  # a folder that may only be read is checked again the next time
            atomic.write_json(folder / TRUSTED, known | now)


@contextmanager
def alone(folder: Path, key: str) -> Iterator[None]:
    """One preparation of the same data at a time on this machine."""
    waiting = "another process is preparing the same data; waiting for it"
    try:
        with atomic.alone(folder / "preparing" / f"{key}.lock", lambda: print(waiting, file=sys.stderr)):
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


Shard = Mapping[str, Any]
"""A file `name`.tokens and the file `name`.ends of its documents: numbers of `tokens`, `documents`, `bytes` of text in
UTF-8 and tokens that are `unknown`, the `largest` id, and the hashes `tokens_sha256` and `ends_sha256`.
"""


def hashes(shards: Iterable[Shard]) -> dict[str, str]:
    """The hash of each file of shards, by its name."""
    return {f"{shard['name']}.{ending}": shard[f"{ending}_sha256"] for shard in shards for ending in ("tokens", "ends")}


# The record of a folder of tokens, sealed: its `fingerprint`; the `dtype`, the `vocabulary` and the `specials` of the
# tokens; `tokenizer`, the SHA-256 of tokenizer.json; `splits`, the shards of each side of each split; `request`, the
# data line that was prepared first (others of equal text share the folder); and `stamp`, what its corpus was then.
Manifest = Mapping[str, Any]


def manifest_of(codec: Codec, splits: Any, request: Mapping[str, Any], stamp: Mapping[str, Any]) -> Manifest:
    """The manifest of shards. The fingerprint is a hash of the shards in their order and of what their tokens mean,
    whatever data line or machine they come from, and however many processes made them.
    """
    numbered = {
        split: {
            side: [{**shard, "name": f"{split}/{number:05d}.{side}"} for number, shard in enumerate(shards)]
            for side, shards in sides.items()
        }
        for split, sides in splits.items()
    }
    meaning = {"format": FORMAT, "dtype": codec.dtype.str, "vocabulary": codec.size, "specials": codec.specials}
    meaning["tokenizer"] = codec.sha256
    fingerprint = digest({**meaning, "splits": numbered})[:16]
    return {**meaning, "fingerprint": fingerprint, "splits": splits, "request": request, "stamp": stamp}


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder of tokens."""
    entries = sealed(folder)
    what = "it was prepared by another version"
    refuse(entries.get("format") != FORMAT, what, _AGAIN, file=folder / NAME)
    return entries


def check_shards(folder: Path, manifest: Manifest, *splits: str, trust: bool = True) -> None:
    """The files of some splits, or of all, agree with the manifest; without `trust` every hash is taken again."""
    sides = (shards for split in splits or manifest["splits"] for shards in manifest["splits"][split].values())
    files = {TOKENIZER: manifest["tokenizer"], **hashes(chain.from_iterable(sides))}
    check_files(folder, files, trust=trust)


def count(manifest: Manifest, split: str, what: str) -> int:
    """The sum of tokens, bytes or unknown over both sides of a split, or its number of documents."""
    sides = manifest["splits"][split]
    counted = [sides.get("text", ())] if what == "documents" else sides.values()
    return sum(shard[what] for shards in counted for shard in shards)


# --- sources ---


def open_split(folder: Path, split: str) -> PackedSource | PairedSource:
    """A split of the prepared data in `folder`, checked."""
    entries = read_manifest(folder)
    check_shards(folder, entries, split)
    kind = PairedSource if "source" in entries["splits"]["train"] else PackedSource
    return kind(folder, split, entries)


def mapped(file: Path, dtype: str) -> np.ndarray:
    """A file as an array; not as `np.memmap`, whose slices take a microsecond more."""
    return np.asarray(np.memmap(file, dtype, "r"))


class _Side:
    """The shards of one side of one split, mapped."""

    def __init__(self, folder: Path, shards: Sequence[Shard], dtype: str):
        self.stream = Stream([mapped(folder / f"{shard['name']}.tokens", dtype) for shard in shards])
        self.ends = [mapped(folder / f"{shard['name']}.ends", "<u8") for shard in shards]

    @cached_property
    def bounds(self) -> np.ndarray:
        """The first token of each document, and the end of the last one."""
        ends = [each.astype(np.int64) + start for each, start in zip(self.ends, self.stream.starts)]
        return np.concatenate([np.zeros(1, np.int64), *ends])

    def documents(self) -> Iterator[np.ndarray]:
        for tokens, ends in zip(self.stream.arrays, self.ends):
            for start, stop in pairwise([0, *ends.tolist()]):
                yield tokens[start:stop]


class _Stored(Source):
    """The common part of both sources of a store."""

    folder: Path
    names = ("text",)  # of the sides

    def __init__(self, folder: Path, split: str, manifest: Manifest):
        self.folder, self.split, self.manifest = folder, split, manifest
        self.dtype, self.vocabulary, self.specials = (manifest[key] for key in ("dtype", "vocabulary", "specials"))
        self.tokens: int = count(manifest, split, "tokens")
        # Every document's `eos` is a token too.
        self.bytes_per_token = count(manifest, split, "bytes") / self.tokens if self.tokens else None

    @property
    def fingerprint(self) -> str:
        return f"{self.manifest['fingerprint']}-{self.split}"

    @cached_property
    def codec(self) -> Codec:
        return Codec.load(self.folder / TOKENIZER)

    @cached_property
    def sides(self) -> list[_Side]:
        shards = self.manifest["splits"][self.split]
        return [_Side(self.folder, shards.get(name, ()), self.dtype) for name in self.names]

    def counts(self) -> dict[str, Any]:
        counts = {what: count(self.manifest, self.split, what) for what in ("documents", "bytes", "unknown")}
        return {**counts, "unknown_fraction": counts["unknown"] / self.tokens if self.tokens else None}

    def verify(self) -> None:
        check_shards(self.folder, self.manifest, trust=False)


class PackedSource(_Stored):
    """Documents end to end, shard after shard, cut into windows."""

    @property
    def stream(self) -> Stream:
        return self.sides[0].stream

    def documents(self) -> Iterator[tuple[None, np.ndarray]]:
        """The tokens of each document with the `eos` that ends it, behind the None that stands for a source."""
        return ((None, tokens) for tokens in self.sides[0].documents())


class PairedSource(_Stored):
    """Pairs of documents, one a row, filled up to the length asked; longer ones are cut, and still end in `eos`."""

    gives = "pairs"
    names = ("source", "text")

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.stack([np.diff(side.bounds) for side in self.sides], axis=1)

    def windows(self, length: int) -> int:
        return len(self.lengths)

    def documents(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The source and the target of each pair, whole."""
        source, text = self.sides
        return zip(source.documents(), text.documents(), strict=True)

    def read(self, rows: np.ndarray, length: int, *, documents: bool = False) -> Rows:
        source, text = (self._filled(side, np.asarray(rows), length) for side in self.sides)
        return Rows(*text, source=source[0], source_documents=source[1])

    def _filled(self, side: _Side, rows: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        starts = side.bounds[rows]
        counts = np.minimum(side.bounds[rows + 1] - starts, length)
        tokens = np.full((len(rows), length), self.specials["pad"], self.dtype)
        side.stream.fill((row[:count] for row, count in zip(tokens, counts.tolist())), starts)
        tokens[np.arange(len(rows)), counts - 1] = self.specials["eos"]
        return tokens, (np.arange(length) < counts[:, None]).astype(np.int32)
