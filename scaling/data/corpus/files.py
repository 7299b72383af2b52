"""Corpora of files: texts, and saved sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from scaling import atomic
from scaling.config import SAVED
from scaling.data.corpus import reading
from scaling.data.corpus.document import Document, Snapshot, document, limited, sides
from scaling.data.corpus.hub import labelled
from scaling.errors import ScalingError, nearest
from scaling.schema import Long


@dataclass(frozen=True, kw_only=True)
class Files:
    """Local text, JSON lines (.jsonl), .csv, .tsv or Parquet, also as .gz and .zst; a row of a table is one document.

    `files` are paths, globs or folders. `text` and `source` are templates over a row's fields; with `source`, documents
    are pairs of which `text` is the target. Plain text is cut into documents by `document`; its one field is `text`.
    `limit` is in bytes of text, of which those of `validation` are none.
    """

    files: str | list[str]
    validation: str | list[str] | None = None
    text: str = "{text}"
    source: str | None = None
    document: Literal["line", "paragraph", "file"] = "paragraph"
    limit: Long | None = None

    @property
    def sides(self) -> tuple[str, ...]:
        return sides(self.source)

    def snapshot(self, folder: Path) -> Snapshot:
        train = reading.find(self.files, "files")
        validation = [] if self.validation is None else reading.find(self.validation, "validation")
        both = set(train) & set(validation)
        if both:
            raise ScalingError("it is named for training and for validation", file=min(both))
        plain = all(
            file.suffix not in reading.COMPRESSIONS and reading.builder(file) != "parquet"
            for file in train + validation
        )
        size = sum(file.stat().st_size for file in train + validation)

        def documents() -> Iterator[Document]:
            if validation:
                yield from self._read(validation, "validation")
            yield from limited(self._read(train, "train" if validation else None), self.limit)

        expected = self.limit if self.limit is not None else size if plain else None
        return Snapshot({"files": reading.stamp(train + validation)}, expected, documents)

    def changed(self, stamp: dict[str, Any]) -> Path | None:
        return reading.changed(stamp["files"], self.files, self.validation)

    def _read(self, files: Sequence[Path], split: str | None) -> Iterator[Document]:
        unit = "document" if self.document == "file" else self.document
        documents = (document(row, self.text, self.source, split) for row in reading.rows(files, sample_by=unit))
        yield from (entry for entry in documents if entry is not None)


_SPLITS, _SET = SAVED
_ROWS = 256  # held in memory at a time


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A set, or a split of one with several, that `save_to_disk` of the `datasets` library wrote to the folder `path`.

    `text` and `source` are templates over a row's fields; with `source`, documents are pairs of which `text` is the
    target. A folder with a single set has no splits.
    """

    path: str
    split: str = "train"
    validation: str | None = None
    text: str = "{text}"
    source: str | None = None

    @property
    def sides(self) -> tuple[str, ...]:
        return sides(self.source)

    def snapshot(self, folder: Path) -> Snapshot:
        train = self._folder(self.split, "split")
        validation = None if self.validation is None else self._folder(self.validation, "validation")
        if train == validation:
            raise ScalingError("it is trained on", key="validation", value=self.validation, fix="name another split")
        named = [train] if validation is None else [train, validation]
        files = [file for split_folder in named for file in sorted(split_folder.iterdir()) if file.is_file()]

        def documents() -> Iterator[Document]:
            if validation is not None:
                yield from self._read(validation, "validation")
            yield from self._read(train, None if validation is None else "train")

        return Snapshot({"files": reading.stamp(files)}, None, documents)

    def changed(self, stamp: dict[str, Any]) -> Path | None:
        return reading.changed(stamp["files"])

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """The rows of `split`, classes by name."""
        return _rows(self._folder(self.split, "split"))

    def _folder(self, split: str, key: str) -> Path:
        """The folder of a split, or the whole where there are no splits."""
        home = Path(self.path).expanduser().resolve()
        if not home.is_dir():
            raise ScalingError("there is no such folder", key="path", value=self.path)
        if not reading.is_saved(home):
            what = f"the folder has neither {_SPLITS} nor {_SET}, as one that `save_to_disk` wrote"
            raise ScalingError(what, key="path", value=self.path, fix="for files of text name it in {kind: Files}")
        if not (home / _SPLITS).is_file():
            if key == "split":
                return home
            fix = "leave it out: data.validation is the fraction of documents that is held out"
            raise ScalingError("the folder holds one set without splits", key=key, value=split, fix=fix)
        try:
            splits = [str(name) for name in atomic.read_json(home / _SPLITS)["splits"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ScalingError(f"it cannot be read: {error}", file=home / _SPLITS, fix="save the set again") from error
        if split not in splits:
            raise ScalingError("the set has no such split", key=key, value=split, fix=nearest(split, splits))
        return home / split

    def _read(self, folder: Path, split: str | None) -> Iterator[Document]:
        for row in _rows(folder):
            entry = document(row, self.text, self.source, split)
            if entry is not None:
                yield entry


def _rows(folder: Path) -> Iterator[Mapping[str, Any]]:
    library = reading.quiet_datasets()
    try:
        dataset = library.load_from_disk(str(folder)).with_format("arrow")
        tables = (table.to_pylist() for table in dataset.iter(_ROWS))
        yield from labelled((row for rows in tables for row in rows), dataset.features)
    except ScalingError:
        raise
    except Exception as error:  # arrow's, json's and the library's own, by what is damaged
        what = str(error).strip().split("\n")[0] or type(error).__name__
        raise ScalingError(f"the set cannot be read: {what}", file=folder, fix="save it again") from error
