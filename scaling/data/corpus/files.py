"""Files of one's own: text, JSON lines, CSV, TSV and Parquet, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from scaling.data.corpus import reading
from scaling.data.corpus.document import Document, Snapshot, limited, sides
from scaling.data.corpus.template import document
from scaling.errors import ScalingError
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
