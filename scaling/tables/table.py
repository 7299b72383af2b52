"""Table: a paper's rows in its order, under its headings, with the figures it printed."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from scaling.build import check
from scaling.config import Config, TableFile, load, table_file
from scaling.config.reader import text
from scaling.errors import ScalingError, nearest

KEYS: dict[str, Any] = {
    "title": str,
    "source": str,
    "published": str,
    "columns": Any,  # titles by column, checked beside the columns that were published
    "measures": list[Literal["sequential", "path"]],
    "baseline": str,
    "seeds": int | dict[str, Any],
}
MEANINGS = {
    "title": "the heading of what is printed",
    "source": "the paper and its table",
    "published": "a CSV beside the file with the paper's figures: row, heading, a column a figure",
    "columns": "titles of further published columns, {COLUMN: title}",
    "measures": "what is measured besides: sequential, path",
    "baseline": "the row that the others are compared with; the first unless given",
    "seeds": "runs of a row, 3 or {baseline: 10, others: 3}",
}
MEASURES = {"sequential": "Sequential steps, measured", "path": "Path length, measured"}  # of table/dependence.py
Figures = Mapping[str, float | str]


@dataclass(frozen=True)
class Seeds:
    """How many runs stand behind the baseline, and behind each other row."""

    baseline: int = 1
    others: int = 1

    @staticmethod
    def of(value: Any) -> Seeds:
        """`3`, or `{baseline: 10, others: 3}`: all comparisons are with the baseline, so its runs count most."""
        given = value if isinstance(value, Mapping) else {"baseline": value, "others": value}
        for key, count in given.items():
            if key not in ("baseline", "others"):
                raise ScalingError("no such key", key=f"seeds.{key}", fix=nearest(str(key), ("baseline", "others")))
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ScalingError("expected a number from 1", key="seeds", value=count)
        return Seeds(**given)


@dataclass(frozen=True)
class Row:
    """`published` holds the figures by column, words where they are none; what the paper left empty is not in it."""

    name: str
    heading: str
    published: Figures


@dataclass(frozen=True)
class Table:
    """`config` is what `load` takes; `baseline` is the row that the others are compared with; `columns` are the titles
    of published columns that no column of ours stands beside, `measures` what is measured beyond size and operations.
    """

    name: str
    config: str
    title: str
    source: str
    baseline: str
    rows: tuple[Row, ...]
    seeds: Seeds
    columns: Mapping[str, str] = field(default_factory=dict)
    measures: tuple[str, ...] = ()

    def load(self, row: str, words: Sequence[str] = ()) -> Config:
        """The config of a row."""
        return load(self.config, [f"row={row}", *words])

    def only(self, names: Collection[str]) -> Table:
        """The table with these rows alone."""
        rows = [row.name for row in self.rows]
        for name in names:
            if name not in rows:
                raise ScalingError(f"{self.name} has no such row", key="row", value=name, fix=nearest(name, rows))
        return replace(self, rows=tuple(row for row in self.rows if row.name in names)) if names else self


def read(name: str) -> Table:
    """The table of a name among the shipped ones, or of a path."""
    file = table_file(name)
    fields = file.told.tree
    for key in fields:
        if key not in KEYS:
            raise file.told.error(key, "a table has no such key", nearest(key, KEYS))
    try:
        for key, value in fields.items():
            check(key, value, KEYS[key])
        seeds = Seeds.of(fields.get("seeds", 1))
    except ScalingError as error:
        raise file.told.place(error) from None
    measures, columns = fields.get("measures", []), fields.get("columns", {})
    figures, headings = _published(file) if "published" in fields else ({}, {})
    published = {column for row in figures.values() for column in row}
    if not isinstance(columns, Mapping):
        raise file.told.error("columns", "expected titles by column", "write {bleu: BLEU}")
    for column, title in columns.items():
        if column not in published:
            raise file.told.error(f"columns.{column}", "nothing of that name was published", nearest(column, published))
        if not isinstance(title, str):
            raise file.told.error(f"columns.{column}", "expected a column's title", "write {bleu: BLEU}")
    for row in figures:
        if row not in file.rows:
            raise ScalingError(
                "it has figures of a row that the table lacks",
                file=file.path("published"),
                value=row,
                key="row",
                fix=nearest(row, file.rows),
            )
    baseline = fields.get("baseline", file.rows[0])
    if baseline not in file.rows:
        raise file.told.error("baseline", "the table has no such row", nearest(baseline, file.rows))
    rows = tuple(Row(row, headings.get(row, ""), figures.get(row, {})) for row in file.rows)
    return Table(
        name=Path(file.name).stem,
        config=file.name,
        title=fields.get("title", Path(file.name).stem),
        source=fields.get("source", ""),
        baseline=baseline,
        rows=rows,
        seeds=seeds,
        columns=columns,
        measures=tuple(measures),
    )


def _published(file: TableFile) -> tuple[dict[str, Figures], dict[str, str]]:
    """Figures and headings by row, of a CSV with the columns `row`, `heading` and one for each figure."""
    path = file.path("published")
    figures: dict[str, Figures] = {}
    headings: dict[str, str] = {}
    try:
        content = text(path)
    except ScalingError as error:
        raise file.told.error("published", error.what, "name a CSV file beside this one") from None
    lines = csv.DictReader(io.StringIO(content))
    for key in ("row", "heading"):
        if key not in (lines.fieldnames or ()):
            raise ScalingError("published figures need this column", file=path, key=key, fix="row,heading,…")
    for line in lines:
        if None in line or None in line.values():
            what = f"expected {len(lines.fieldnames or ())} cells"
            raise ScalingError(what, file=path, line=lines.line_num, fix="put cells with commas into quotes")
        row, headings[row] = line.pop("row"), line.pop("heading")
        figures[row] = {column: _figure(cell) for column, cell in line.items() if cell}
    return figures, headings


def _figure(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell
