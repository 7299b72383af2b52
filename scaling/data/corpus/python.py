"""Real text that everyone has, without a network: the Python sources of this very machine."""

from __future__ import annotations

import hashlib
import sysconfig
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from scaling import atomic
from scaling.data.corpus import reading
from scaling.data.corpus.document import Document, Snapshot
from scaling.errors import ScalingError
from scaling.schema import Long

_ROWS = 256  # sources held in memory while copying


@dataclass(frozen=True, kw_only=True)
class Python:
    """Sources of the interpreter's standard library and of the packages installed with it, one document per file.

    Packages change, so what is found the first time is copied into a snapshot, and the snapshot is the corpus from then
    on. Files come in the order of their names' hashes, so that a `limit` (in bytes) takes some of everything.
    """

    reach: Literal["installed", "standard"] = "installed"
    limit: Long | None = None

    @property
    def sides(self) -> tuple[str, ...]:
        return ("text",)

    def snapshot(self, folder: Path) -> Snapshot:
        file = folder / "snapshots" / f"python-{self.reach}-{self.limit or 'all'}.parquet"
        record = file.with_suffix(".json")
        if not record.exists():
            self._copy(file, record)
        cached = atomic.read_json(record)
        if not file.exists() or reading.sha256(file) != cached["sha256"]:
            raise ScalingError("the snapshot differs from its record", file=file, fix=f"remove it and {record.name}")
        return Snapshot({"snapshot": cached["sha256"]}, cached["bytes"], lambda: _read(file))

    def changed(self, stamp: dict[str, Any]) -> None:
        """Nothing: the snapshot was taken so that packages may change."""

    def _copy(self, file: Path, record: Path) -> None:
        import pyarrow as arrow
        import pyarrow.parquet as parquet

        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial")
        schema = arrow.schema({"path": arrow.string(), "text": arrow.string()})
        size = count = 0
        with partial.open("wb") as content:
            with parquet.ParquetWriter(content, schema, compression="zstd") as writer:
                rows: list[dict[str, str]] = []
                for name, text in self._sources():
                    rows.append({"path": name, "text": text})
                    size, count = size + len(text.encode()), count + 1
                    if len(rows) == _ROWS:
                        writer.write_table(arrow.Table.from_pylist(rows, schema))
                        rows = []
                writer.write_table(arrow.Table.from_pylist(rows, schema))
            atomic.flush(content)
        partial.replace(file)
        # Written last: a snapshot without its record is taken again.
        atomic.write_json(record, {"sha256": reading.sha256(file), "bytes": size, "files": count})

    def _sources(self) -> Iterator[tuple[str, str]]:
        files = dict(self._files())
        left = float("inf") if self.limit is None else self.limit
        for name in sorted(files, key=lambda name: hashlib.sha256(name.encode()).digest()):
            if left <= 0:
                return
            text = _text(files[name])
            if text is not None:
                left -= len(text.encode())
                yield name, text

    def _files(self) -> Iterator[tuple[str, Path]]:
        """Every source under a name that does not contain this machine's paths."""
        paths = sysconfig.get_paths()
        roots = {"stdlib": paths["stdlib"]}
        if self.reach == "installed":
            roots |= {"purelib": paths["purelib"], "platlib": paths["platlib"]}
        for kind, root in roots.items():
            for file in Path(root).rglob("*.py"):
                inside = file.relative_to(root).as_posix()
                if not (kind == "stdlib" and inside.startswith(("site-packages/", "dist-packages/"))):
                    yield ("lib" if kind == "stdlib" else "packages") + "/" + inside, file


def _text(file: Path) -> str | None:
    """A source as Python itself would decode it (PEP 263); None for the few that it would refuse."""
    try:
        with tokenize.open(file) as content:
            return content.read()
    except (SyntaxError, UnicodeDecodeError, OSError):
        return None


def _read(file: Path) -> Iterator[Document]:
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(file) as content:
        for batch in content.iter_batches(batch_size=_ROWS, columns=["text"]):
            for text in batch.column("text").to_pylist():
                yield Document(text)
