"""Corpora: where documents come from. The public classes here are the kinds of `corpus:`."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import sysconfig
import tokenize
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from scaling.base import atomic
from scaling.base.errors import ScalingError, refuse
from scaling.base.numbers import Long
from scaling.config.files import SAVED
from scaling.data import rows, store
from scaling.data.documents import Corpus, Document, Part, Snapshot, documents, until, value_of
from scaling.data.rows import Row
from scaling.data.sets import Published

OFFLINE = (
    "without one, data=synthetic and data=python always work, {kind: Files, files: …} reads your own, and corpus.path "
    "may be a folder that holds a copy of the set"
)
_ROWS = 256  # sources held in memory while copying


@dataclass(frozen=True, kw_only=True)
class _Rows(Corpus):
    """Rows of tables: `text` and `source` are templates over a row's fields."""

    text: str = "{text}"
    source: str | None = None

    def _documents(self, read: Iterator[Row], part: Part) -> Iterator[Document]:
        return documents(read, self.text, self.source, part.get("split"))


def _split(train: list[dict[str, Any]], held_out: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All parts; of a corpus that holds nothing out, none has a split."""
    named = [{**part, "split": "validation"} for part in held_out] + [{**part, "split": "train"} for part in train]
    return named if held_out else train


@dataclass(frozen=True, kw_only=True)
class Files(_Rows):
    """Local text, JSON lines (.jsonl), .csv, .tsv or Parquet, also as .gz and .zst; a row of a table is one document.

    `files` are paths, globs or folders. `text` and `source` are templates over a row's fields; with `source`, documents
    are pairs of which `text` is the target. Plain text is cut into documents by `document`; its one field is `text`.
    `limit` is in bytes of text, of which those of `validation` are none.
    """

    files: str | list[str]
    validation: str | list[str] | None = None
    document: rows.Unit = "paragraph"
    limit: Long | None = None

    def snapshot(self, folder: Path) -> Snapshot:
        train = rows.find(self.files, "files")
        held_out = [] if self.validation is None else rows.find(self.validation, "validation")
        rows.check_apart(train, held_out)
        parts = _split(rows.parts(train, self.document), rows.parts(held_out, self.document))
        return Snapshot(self, rows.stamp([*train, *held_out]), parts, self.limit)

    def read(self, part: Part) -> Iterator[Document]:
        return self._documents(rows.read_pieces(part["pieces"], self.document), part)

    def changed(self, stamp: dict[str, Any]) -> Path | None:
        return rows.changed(stamp, self.files, self.validation)


@dataclass(frozen=True, kw_only=True)
class Hub(_Rows):
    """A split of a set on the hub; `path` is its name there, or a folder with a copy of it.

    `text` and `source` are templates over a row's fields; with `source`, documents are pairs of which `text` is the
    target. Where rows are lines of longer documents, `begins` is a pattern that the first line of each matches.
    `limit` is in bytes of text.
    """

    path: str
    revision: str
    config: str | None = None
    split: str = "train"
    validation: str | None = None
    begins: str | None = None
    limit: Long | None = None

    def __post_init__(self) -> None:
        try:
            re.compile(self.begins or "")
        except re.error as error:
            raise ScalingError(f"it is not a pattern: {error}", key="begins", value=self.begins) from None

    def snapshot(self, folder: Path) -> Snapshot:
        if self.split == self.validation:
            raise ScalingError("it is trained on", key="validation", value=self.validation, fix="name another split")
        published, sides = self._published(self.revision), []
        revision = published.stamp.get("commit", self.revision)
        for key, split in (("split", self.split), ("validation", self.validation)):
            # With `begins` a document may go on in the next shard.
            shards = [] if split is None else published.shards(split, key) if self.begins is None else [[0, 1]]
            sides.append([{"of": split, "revision": revision, "shard": shard} for shard in shards])
        return Snapshot(self, published.stamp, _split(*sides), self.limit)

    def read(self, part: Part) -> Iterator[Document]:
        read = self._published(part["revision"]).rows(part["of"], *part["shard"])
        return self._documents(read if self.begins is None else _joined(read, self.begins), part)

    def _published(self, revision: str) -> Published:
        return Published(self.path, revision, self.config, OFFLINE)


def _joined(lines: Iterator[Row], begins: str) -> Iterator[Row]:
    """Rows whose `text` is the lines from one that begins a document up to the next."""
    held: list[str] = []
    for row in lines:
        line = value_of("{text}", row, "begins") or ""
        if held and re.search(begins, line):
            yield {"text": "".join(held)}
            held = []
        held.append(line)
    if held:
        yield {"text": "".join(held)}


@dataclass(frozen=True, kw_only=True)
class Saved(_Rows):
    """A set, or a split of one with several, that `save_to_disk` of the `datasets` library wrote to the folder `path`.

    `text` and `source` are templates over a row's fields; with `source`, documents are pairs of which `text` is the
    target. A folder with a single set has no splits.
    """

    path: str
    split: str = "train"
    validation: str | None = None

    def snapshot(self, folder: Path) -> Snapshot:
        home = Path(os.path.expanduser(self.path))
        what = f"there is no folder with {' or '.join(SAVED)}, as `save_to_disk` writes it"
        refuse(not rows.is_saved(home), what, "for files of text name it in {kind: Files}", key="path", value=self.path)
        return self._hub.snapshot(folder)

    def read(self, part: Part) -> Iterator[Document]:
        return self._hub.read(part)

    @property
    def _hub(self) -> Hub:
        return Hub(**vars(self), revision="main")


@dataclass(frozen=True, kw_only=True)
class Parallel(Corpus):
    """Two texts of equally many lines, of which line i of `target` answers line i of `source`."""

    source: str
    target: str

    def snapshot(self, folder: Path) -> Snapshot:
        files = [self._file("source"), self._file("target")]
        size = sum(file.stat().st_size for file in files)
        ranges = rows.spread(sum(1 for _ in rows.pairs(*files)), -(-size // rows.PART))
        parts = [{"files": [*map(str, files)], "lines": lines, "bytes": size // len(ranges)} for lines in ranges]
        return Snapshot(self, rows.stamp(files), parts)

    def read(self, part: Part) -> Iterator[Document]:
        pairs = itertools.islice(rows.pairs(*map(Path, part["files"])), *part["lines"])
        return (Document(target, source) for source, target in pairs)

    def changed(self, stamp: dict[str, Any]) -> Path | None:
        return rows.changed(stamp, self.source, self.target)

    def _file(self, key: str) -> Path:
        files = rows.find(getattr(self, key), key, (*rows.OF_FOLDERS, ""))
        refuse(len(files) > 1, f"{len(files)} files", "name one file a side", key=key, value=getattr(self, key))
        return files[0]


@dataclass(frozen=True, kw_only=True)
class Python(Corpus):
    """Sources of the interpreter's standard library and of the packages installed with it, one document per file.

    Packages change, so what is found the first time is copied into a snapshot, and the snapshot is the corpus from then
    on. Files come in the order of their names' hashes, so that a `limit` (in bytes) takes some of everything.
    """

    reach: Literal["installed", "standard"] = "installed"
    limit: Long | None = None

    def snapshot(self, folder: Path) -> Snapshot:
        file = folder / "snapshots" / f"python-{self.reach}-{self.limit or 'all'}.parquet"
        record = file.with_suffix(".json")
        with store.alone(folder, file.stem):  # several data lines may take one snapshot
            if not record.exists():
                with atomic.writing(file) as content:
                    self._write(content)
                atomic.write_json(record, {"sha256": rows.sha256(file)})
        stamp = {"snapshot": atomic.read_json(record)["sha256"]}
        is_whole, fix = file.exists() and rows.sha256(file) == stamp["snapshot"], f"remove it and {record.name}"
        refuse(not is_whole, "the snapshot differs from its record", fix, file=file)
        return Snapshot(self, stamp, rows.parts([file]))

    def read(self, part: Part) -> Iterator[Document]:
        return documents(rows.read_pieces(part["pieces"]), "{text}", None)

    def _write(self, content: IO[bytes]) -> None:
        """Write the sources, up to the limit, as Parquet."""
        import pyarrow as arrow
        import pyarrow.parquet as parquet

        sources, schema = until(self._sources(), self.limit), arrow.schema({"text": arrow.string()})
        with parquet.ParquetWriter(content, schema, compression="zstd") as writer:
            while texts := [source.text for source in itertools.islice(sources, _ROWS)]:
                writer.write_table(arrow.table([texts], schema=schema))

    def _sources(self) -> Iterator[Document]:
        """The sources, by the hashes of their names, which do not contain this machine's paths."""
        paths = sysconfig.get_paths()
        roots = {"stdlib": "lib", "purelib": "packages", "platlib": "packages"}
        files: dict[str, Path] = {}
        for root in roots if self.reach == "installed" else ["stdlib"]:
            for file in Path(paths[root]).rglob("*.py"):
                inside = file.relative_to(paths[root]).as_posix()
                if not (root == "stdlib" and inside.startswith(("site-packages/", "dist-packages/"))):
                    files[f"{roots[root]}/{inside}"] = file
        for name in sorted(files, key=lambda name: hashlib.sha256(name.encode()).digest()):
            # As Python itself decodes it (PEP 263); a source that Python would refuse is left out.
            with suppress(SyntaxError, UnicodeDecodeError, OSError), tokenize.open(files[name]) as content:
                yield Document(content.read())
