"""Store: prepared tokens as sources, read from memory maps; altered or truncated files are found by their hashes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from scaling import schema
from scaling.data.batches import Stream
from scaling.data.shards import TOKENIZER, Manifest, Shard
from scaling.data.source import Rows, documents_of

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


class _Series:
    """The shards of one side of one split, mapped."""

    def __init__(self, folder: Path, shards: Sequence[Shard], dtype: str):
        self.tokens = [_mapped(shard.files(folder)[0], dtype) for shard in shards]
        self.ends = [_mapped(shard.files(folder)[1], "<u8") for shard in shards]

    def documents(self) -> Iterator[np.ndarray]:
        for tokens, ends in zip(self.tokens, self.ends, strict=True):
            start = 0
            for end in ends.tolist():
                yield tokens[start:end]
                start = end


def _mapped(file: Path, dtype: str) -> np.ndarray:
    # A plain array over the map: slicing np.memmap itself costs a microsecond more.
    return np.asarray(np.memmap(file, dtype=dtype, mode="r"))


class _Stored:
    """What both sources of a store have in common. Pickled, they are opened again, not copied."""

    def __init__(self, folder: Path, split: str, manifest: Manifest):
        self.folder, self.split, self.manifest = folder, split, manifest

    def __reduce__(self):
        return type(self), (self.folder, self.split, self.manifest)

    @property
    def fingerprint(self) -> str:
        return f"{self.manifest.fingerprint}-{self.split}"

    @property
    def vocabulary(self) -> int:
        return self.manifest.vocabulary

    @property
    def specials(self) -> dict[str, int]:
        return dict(self.manifest.specials)

    @property
    def tokens(self) -> int:
        return self.manifest.count(self.split, "tokens")

    @property
    def bytes_per_token(self) -> float | None:
        """Bytes of text over tokens, of which every document's `eos` is one."""
        return self.manifest.count(self.split, "bytes") / self.tokens if self.tokens else None

    @property
    def entropy(self) -> None:
        """Unknown for a text."""

    @property
    def tokenizer(self) -> str:
        """SHA-256 of the tokenizer's file."""
        return self.manifest.tokenizer

    @cached_property
    def codec(self) -> Codec:
        from scaling.data.codec import Codec

        return Codec.load(self.folder / TOKENIZER)

    @property
    def words(self) -> np.ndarray:
        return self.codec.words

    def decode(self, tokens: np.ndarray) -> str:
        return self.codec.decode(tokens)

    def _series(self, side: str) -> _Series:
        shards = self.manifest.splits.get(self.split, {}).get(side, ())
        return _Series(self.folder, shards, self.manifest.dtype)


class PackedSource(_Stored):
    """Documents end to end, shard after shard, cut into windows."""

    @property
    def lengths(self) -> None:
        """There are no pairs."""

    @cached_property
    def _text(self) -> _Series:
        return self._series("text")

    @cached_property
    def _stream(self) -> Stream:
        return Stream(self._text.tokens)

    def windows(self, length: int) -> int:
        return self.tokens // length

    def documents(self) -> Iterator[tuple[None, np.ndarray]]:
        """The tokens of each document with the `eos` that ends it, behind the None that stands for a source."""
        return ((None, tokens) for tokens in self._text.documents())

    def read(self, rows: np.ndarray, length: int, *, documents: bool = False) -> Rows:
        where = self._stream.places(np.asarray(rows, dtype=np.int64) * length)
        tokens = np.empty((len(where), length), dtype=self.manifest.dtype)
        self._stream.fill(tokens, where)
        return Rows(tokens, documents_of(tokens, self.specials["eos"]) if documents else None)


class PairedSource(_Stored):
    """Pairs of documents, one a row, filled up to the length asked; longer ones are cut, and still end in `eos`."""

    @cached_property
    def _sides(self) -> tuple[_Series, _Series]:
        return self._series("source"), self._series("text")

    @cached_property
    def _first(self) -> np.ndarray:
        """The number of each shard's first pair, and that of all pairs."""
        return np.cumsum([0, *(len(ends) for ends in self._sides[1].ends)])

    @property
    def lengths(self) -> np.ndarray:
        return self._lengths

    @cached_property
    def _lengths(self) -> np.ndarray:
        sides = [
            np.concatenate([np.diff(ends.astype(np.int64), prepend=0) for ends in side.ends] or [np.empty(0, np.int64)])
            for side in self._sides
        ]
        return np.stack(sides, axis=1)

    def windows(self, length: int) -> int:
        return int(self._first[-1])

    def documents(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The source and the target of each pair, whole."""
        source, text = self._sides
        return zip(source.documents(), text.documents(), strict=True)

    def read(self, rows: np.ndarray, length: int, *, documents: bool = False) -> Rows:
        shards = np.searchsorted(self._first, rows, side="right") - 1
        places = rows - self._first[shards]
        source, text = (self._filled(side, shards, places, length) for side in self._sides)
        return Rows(*text, source=source[0], source_documents=source[1])

    def _filled(
        self, side: _Series, shards: np.ndarray, places: np.ndarray, length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        specials = self.manifest.specials
        tokens = np.full((len(places), length), specials["pad"], dtype=self.manifest.dtype)
        documents = np.zeros((len(places), length), dtype=np.int32)
        for row, (shard, place) in enumerate(zip(shards.tolist(), places.tolist())):
            ends = side.ends[shard]
            start, stop = int(ends[place - 1]) if place else 0, int(ends[place])
            count = min(stop - start, length)
            tokens[row, :count] = side.tokens[shard][start : start + count]
            tokens[row, count - 1] = specials["eos"]
            documents[row, :count] = 1
        return tokens, documents
