"""Store: prepared tokens as sources, read from memory maps; altered or truncated files are found by their hashes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from scaling.config import schema
from scaling.data.batches import Stream
from scaling.data.shards import TOKENIZER, Manifest, Shard
from scaling.data.source import Rows, Source, documents_of

if TYPE_CHECKING:
    from scaling.data.codec import Codec


_held: WeakValueDictionary[tuple[Path, str], PackedSource | PairedSource] = WeakValueDictionary()


def root(runs: str | Path) -> Path:
    """The folder of prepared data: $SCALING_DATA, or `data` next to the folder of runs."""
    named = os.environ.get("SCALING_DATA")
    return Path(named).expanduser() if named else Path(runs).expanduser().absolute().parent / "data"


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
        file = Path(named["path"]).expanduser()
    prepared = str(data.get("fingerprint", "")).rpartition("-")[0]
    copy = root(runs) / prepared / TOKENIZER
    return copy if prepared and copy.is_file() and not (file and file.is_file()) else file


def open_split(folder: Path, split: str) -> PackedSource | PairedSource:
    """A split of the prepared data in `folder`, checked; all who have it open at a time share its maps."""
    manifest = Manifest.read(folder)
    manifest.check(folder, split)
    source = _held.get((folder, split))
    if source is None or source.manifest != manifest:
        kind = PairedSource if "source" in manifest.splits["train"] else PackedSource
        source = _held[folder, split] = kind(folder, split, manifest)
    return source


class Windows(Source):
    """Tokens of several arrays end to end, from the place `start` on, cut into windows."""

    tokens: int
    start = 0
    dtype: Any
    codec: Codec | None

    @cached_property
    def stream(self) -> Stream:
        raise NotImplementedError

    def windows(self, length: int) -> int:
        return self.tokens // length

    def read(self, rows: np.ndarray, length: int, *, documents: bool = False) -> Rows:
        tokens = np.empty((len(rows), length), self.dtype)
        self.stream.fill(tokens, self.start + np.asarray(rows, np.int64) * length)
        return Rows(tokens, documents_of(tokens, self.specials.get("eos")) if documents else None)

    def decode(self, tokens: np.ndarray) -> str:
        return "".join(f"{token} " for token in tokens.tolist()) if self.codec is None else self.codec.decode(tokens)


class _Side:
    """The shards of one side of one split, mapped."""

    def __init__(self, folder: Path, shards: Sequence[Shard], dtype: str):
        files = [shard.files(folder) for shard in shards]
        self.stream = Stream([mapped(tokens, dtype) for tokens, _ in files])
        self.ends = [mapped(ends, "<u8") for _, ends in files]

    @cached_property
    def bounds(self) -> np.ndarray:
        """Where each document begins, and where the last one ends."""
        ends = [each.astype(np.int64) + start for each, start in zip(self.ends, self.stream.starts)]
        return np.concatenate([np.zeros(1, np.int64), *ends])

    def documents(self) -> Iterator[np.ndarray]:
        for tokens, ends in zip(self.stream.arrays, self.ends):
            for start, stop in pairwise([0, *ends.tolist()]):
                yield tokens[start:stop]


def mapped(file: str | Path, dtype: str, **place: Any) -> np.ndarray:
    # A plain array over the map: slicing np.memmap itself costs a microsecond more.
    return np.asarray(np.memmap(file, dtype=dtype, mode="r", **place))


class _Stored(Source):
    """What both sources of a store have in common. Pickled, they are opened again, not copied."""

    def __init__(self, folder: Path, split: str, manifest: Manifest):
        self.folder, self.split, self.manifest = folder, split, manifest
        self.dtype, self.vocabulary, self.specials = manifest.dtype, manifest.vocabulary, dict(manifest.specials)
        self.tokenizer = manifest.tokenizer  # SHA-256 of its file
        self.tokens: int = manifest.count(split, "tokens")
        # Every document's `eos` is a token too.
        self.bytes_per_token = manifest.count(split, "bytes") / self.tokens if self.tokens else None

    def __reduce__(self):
        return type(self), (self.folder, self.split, self.manifest)

    @property
    def fingerprint(self) -> str:
        return f"{self.manifest.fingerprint}-{self.split}"

    @cached_property
    def codec(self) -> Codec:
        from scaling.data.codec import Codec

        return Codec.load(self.folder / TOKENIZER)

    @property
    def words(self) -> np.ndarray:
        return self.codec.words

    def decode(self, tokens: np.ndarray) -> str:
        return self.codec.decode(tokens)

    def side(self, name: str) -> _Side:
        return _Side(self.folder, self.manifest.splits.get(self.split, {}).get(name, ()), self.dtype)


class PackedSource(_Stored, Windows):
    """Documents end to end, shard after shard, cut into windows."""

    @cached_property
    def stream(self) -> Stream:
        return self.side("text").stream

    def documents(self) -> Iterator[tuple[None, np.ndarray]]:
        """The tokens of each document with the `eos` that ends it, behind the None that stands for a source."""
        return ((None, tokens) for tokens in self.side("text").documents())


class PairedSource(_Stored):
    """Pairs of documents, one a row, filled up to the length asked; longer ones are cut, and still end in `eos`."""

    gives = "pairs"

    @cached_property
    def _sides(self) -> tuple[_Side, _Side]:
        return self.side("source"), self.side("text")

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.stack([np.diff(side.bounds) for side in self._sides], axis=1)

    def windows(self, length: int) -> int:
        return len(self._sides[1].bounds) - 1

    def documents(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The source and the target of each pair, whole."""
        source, text = self._sides
        return zip(source.documents(), text.documents(), strict=True)

    def read(self, rows: np.ndarray, length: int, *, documents: bool = False) -> Rows:
        source, text = (self._filled(side, np.asarray(rows), length) for side in self._sides)
        return Rows(*text, source=source[0], source_documents=source[1])

    def _filled(self, side: _Side, rows: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        starts = side.bounds[rows]
        counts = np.minimum(side.bounds[rows + 1] - starts, length)
        tokens = np.full((len(rows), length), self.specials["pad"], self.dtype)
        side.stream.fill((row[:count] for row, count in zip(tokens, counts.tolist())), starts)
        tokens[np.arange(len(rows)), counts - 1] = self.specials["eos"]
        return tokens, (np.arange(length) < counts[:, None]).astype(np.int32)
