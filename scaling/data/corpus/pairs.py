"""Corpora of pairs: parallel files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from scaling.data.corpus import reading
from scaling.data.corpus.document import Document, Snapshot, opened, sides
from scaling.errors import ScalingError, plural


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """Two texts of equally many lines, of which line i of `target` answers line i of `source`."""

    source: str
    target: str

    @property
    def sides(self) -> tuple[str, ...]:
        return sides(self.source)

    def snapshot(self, folder: Path) -> Snapshot:
        (source,), (target,) = self._file("source"), self._file("target")

        def documents() -> Iterator[Document]:
            yield from (Document(right, left) for left, right in pairs(source, target))

        return Snapshot(
            {"files": reading.stamp([source, target])}, source.stat().st_size + target.stat().st_size, documents
        )

    def changed(self, stamp: dict[str, Any]) -> Path | None:
        return reading.changed(stamp["files"], self.source, self.target)

    def _file(self, key: str) -> list[Path]:
        files = reading.find(getattr(self, key), key, (*reading.OF_FOLDERS, ""))
        if len(files) > 1:
            raise ScalingError(f"{len(files)} files", key=key, value=getattr(self, key), fix="name one file a side")
        return files


def pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """The lines of two files, side by side. Files of unequal length are refused before their first pair is given."""
    counts = [sum(1 for _ in lines(file)) for file in (source, target)]
    if counts[0] != counts[1]:
        (few, short), (many, long) = sorted(zip(counts, (source, target), strict=True), key=lambda side: side[0])
        what = f"it has {plural(few, 'line')}, and {long.name} has {many:,}: line {few + 1} there has no partner"
        raise ScalingError(what, file=short, line=few + 1, fix="give both files a line for each pair, in one order")
    for number, (left, right) in enumerate(zip_longest(lines(source), lines(target)), 1):
        for file, text in ((source, left), (target, right)):
            if not text.strip():
                fix = "remove this line from both files, or write the sentence"
                raise ScalingError("the line is empty, so the pair has one side", file=file, line=number, fix=fix)
        yield left, right


def lines(file: Path) -> Iterator[str]:
    """The lines of a text without what ends them, plain or compressed."""
    number = 0
    try:
        with opened(file) as content:
            for number, line in enumerate(content, 1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        what = f"the line is not UTF-8: byte 0x{error.object[error.start]:02x}"
        raise ScalingError(what, file=file, line=number, fix="convert the file to UTF-8") from error
