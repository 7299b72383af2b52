"""Table: a paper's rows in its order, under its headings, with the figures it printed."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from scaling.config import SUFFIXES, Config, TableFile, load, override, shipped, table_file
from scaling.errors import ScalingError, nearest
from scaling.schema import check
from scaling.strict_yaml import read_text
from scaling.tables import downstream
from scaling.tables.downstream import Downstream

COMPARED = {"early": "early_loss", "loss": "final_loss", "score": None}
"""What of a run is ranked against the paper's figures, and against which of them unless the table names another."""
MEASURES = {
    "sequential": "Sequential steps, measured",
    "path": "Path length, measured",
    "training": "Training FLOPs, ours",
}
"""The titles of what a table may measure of its rows besides size and operations."""
KEYS: dict[str, Any] = {
    "title": str,
    "source": str,
    "published": str,
    "columns": Any,  # titles by column, checked with the columns that were published
    "measures": list[Literal[*MEASURES]],
    "headings": dict[str, list[str]],
    "baseline": str | dict[str, str],
    "judged_by": Literal["loss", "score"],
    "compares": dict[Literal[*COMPARED], str],
    "downstream": Any,  # tasks, or keys by heading, checked with the published columns
    "seeds": int | dict[str, Any],
}
MEANINGS = {
    "title": "the heading of what is printed",
    "source": "the paper and its table",
    "published": "a CSV next to the file with the paper's figures: row, heading, one column per figure",
    "columns": "titles of further published columns, {COLUMN: title}",
    "measures": "what is measured besides: sequential, path; training, the FLOPs of trainer.max_steps at train.batch",
    "headings": "rows by the heading that they are printed under, {HEADING: [ROW, ROW]}",
    "baseline": "the row that the others are compared with, the first unless given; or {HEADING: ROW}",
    "judged_by": "loss, or score: the metric of a task, of which more is better",
    "compares": "published columns that ours are ranked against, {early: early_loss, loss: final_loss, score: COLUMN}",
    "downstream": "tasks that each run is finetuned on, [cola, sst2], or by heading, "
    "{SST-2: {task: sst2, published: COLUMN, train.epochs: 3}}",
    "seeds": "runs of a row, 3 or {baseline: 10, others: 3}",
}


@dataclass(frozen=True)
class Seeds:
    """The number of runs of the baseline, and of each other row."""

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
    published: Mapping[str, float | str]


@dataclass(frozen=True)
class Table:
    """`config` is what `load` takes; `baselines` has the row that each row is compared with; `columns` are the titles
    of published columns without a column of ours, `measures` what is measured beyond size and operations, and
    `downstream` the columns of scores. `compares` has the published column that early losses, final losses and scores
    are ranked against.
    """

    name: str
    config: str
    title: str
    source: str
    baselines: Mapping[str, str]
    rows: tuple[Row, ...]
    seeds: Seeds
    columns: Mapping[str, str] = field(default_factory=dict)
    measures: tuple[str, ...] = ()
    judged_by: Literal["loss", "score"] = "loss"
    compares: Mapping[str, str] = field(default_factory=dict)
    downstream: tuple[Downstream, ...] = ()

    @property
    def published(self) -> frozenset[str]:
        """The columns that the paper printed."""
        return frozenset(column for row in self.rows for column in row.published)

    @property
    def baseline(self) -> str:
        """The row that the others are compared with; the first heading's, where each heading has its own."""
        return self.baselines[self.rows[0].name]

    def is_baseline(self, row: str) -> bool:
        return self.baselines.get(row) == row

    def baselines_of(self, rows: Iterable[str]) -> dict[str, str]:
        """What each of `rows` is compared with: the first baseline, where the table does not have the row."""
        return {row: self.baselines.get(row, self.baseline) for row in rows}

    def loss_baselines_of(self, rows: Iterable[str]) -> dict[str, str]:
        """What the loss of each of `rows` is compared with: its baseline, or, since losses of two objectives are not of
        the same tokens, the first row under that baseline which has its objective.
        """
        objectives = {row: self.load(row)["objective.kind"] for row in self.baselines}
        first: dict[tuple[str, str], str] = {}
        for baseline in self.baselines.values():
            first[baseline, objectives[baseline]] = baseline
        own = {row: first.setdefault((baseline, objectives[row]), row) for row, baseline in self.baselines.items()}
        return {row: own.get(row, baseline) for row, baseline in self.baselines_of(rows).items()}

    def load(self, row: str, words: Sequence[str] = ()) -> Config:
        """The config of a row."""
        return load(self.config, [f"row={row}", *words])

    def only(self, names: Collection[str]) -> Table:
        """The table with these rows alone."""
        rows = [row.name for row in self.rows]
        for name in names:
            if name not in rows:
                raise ScalingError(f"{self.name} has no such row", key="row", value=name, fix=nearest(name, rows))
        if not names:
            return self
        return replace(self, rows=tuple(row for row in self.rows if row.name in names))

    def seeded(self, words: Sequence[str]) -> tuple[Table, list[str]]:
        """The table with the seeds of a word `seeds=3`, and the other words, which are overrides of its rows."""
        seeds = [override(word)[1] for word in words if word.startswith("seeds=")]
        others = [word for word in words if not word.startswith("seeds=")]
        return (replace(self, seeds=Seeds.of(seeds[-1])) if seeds else self), others


def read(name: str) -> Table:
    """The table of a name among the shipped ones, or of a path."""
    file = table_file(name)
    fields, title = file.config.tree, Path(file.name).stem
    try:
        for key, value in fields.items():
            _known(file, key, key, KEYS, "a table has no such key")
            check(key, value, KEYS[key])
        seeds = Seeds.of(fields.get("seeds", 1))
    except ScalingError as error:
        raise file.config.place(error) from None
    figures, headings = _published(file) if "published" in fields else ({}, {})
    published = {column for row in figures.values() for column in row}
    columns, compares = fields.get("columns", {}), fields.get("compares", {})
    if not isinstance(columns, Mapping) or not all(isinstance(title, str) for title in columns.values()):
        raise file.config.error("columns", "expected titles by column", "write {bleu: BLEU}")
    for key, column in [("columns", column) for column in columns] + list(compares.items()):
        where = f"columns.{column}" if key == "columns" else f"compares.{key}"
        _known(file, where, column, published, "nothing of that name was published")
    order = file.rows
    if "headings" in fields:
        headings = {row: heading for heading, rows in fields["headings"].items() for row in rows}
        for heading, rows in fields["headings"].items():
            for row in rows:
                _known(file, f"headings.{heading}", row, file.rows, f"the table has no row {row!r}")
                if headings[row] != heading or rows.count(row) > 1:
                    what = f"{row!r} is under {headings[row]!r} too"
                    raise file.config.error(f"headings.{heading}", what, "name it once")
        order = tuple(dict.fromkeys([*headings, *file.rows]))
    rows = tuple(Row(row, headings.get(row, ""), figures.get(row, {})) for row in order)
    ranked = {of: compares.get(of, usual) for of, usual in COMPARED.items()}
    return Table(
        name=title,
        config=file.name,
        title=fields.get("title", title),
        source=fields.get("source", ""),
        baselines=_baselines(file, rows),
        rows=rows,
        seeds=seeds,
        columns=columns,
        measures=tuple(fields.get("measures", ())),
        judged_by=fields.get("judged_by", "loss"),
        compares={of: column for of, column in ranked.items() if column in published},
        downstream=downstream.read(file, published),
    )


def _known(file: TableFile, key: str, name: str, names: Collection[str], what: str) -> None:
    if name not in names:
        raise file.config.error(key, what, nearest(name, names))


def located(config: str) -> str:
    """The config of a table as a plan keeps it: a path without links from the root, whatever was typed."""
    path = _path(config)
    return str(path) if config.endswith(SUFFIXES) and path.suffix in SUFFIXES else config


def same_table(planned: str, config: str) -> bool:
    """Whether a plan's base is the table of this config, however the paths are spelled. The file of a plan that is no
    longer where it was, or was named from another working directory, is known by its name.
    """
    then, now = _path(planned), _path(config)
    return then == now or (planned.endswith(SUFFIXES) and not then.exists() and then.name == now.name)


def _path(config: str) -> Path:
    path = Path(config).expanduser() if config.endswith(SUFFIXES) else shipped() / f"{config}.yaml"
    return path.resolve()


def _baselines(file: TableFile, rows: Sequence[Row]) -> dict[str, str]:
    """The baseline of each row: the table's, or that of its heading."""
    baseline = file.config.tree.get("baseline", rows[0].name)
    if isinstance(baseline, str):
        _known(file, "baseline", baseline, file.rows, "the table has no such row")
        return {row.name: baseline for row in rows}
    under: dict[str, list[str]] = {}
    for row in rows:
        under.setdefault(row.heading, []).append(row.name)
    for heading, row in baseline.items():
        key = f"baseline.{heading}"
        _known(file, key, heading, under, "the table has no such heading")
        _known(file, key, row, under[heading], f"no row {row!r} under this heading")
    for heading in under:
        if heading not in baseline:
            raise file.config.error("baseline", f"none for the heading {heading!r}", f"write {{{heading}: ROW, …}}")
    return {row.name: baseline[row.heading] for row in rows}


def _published(file: TableFile) -> tuple[dict[str, dict[str, float | str]], dict[str, str]]:
    """Figures and headings by row, of a CSV with the columns `row`, `heading` and one for each figure."""
    path = file.path("published")
    figures: dict[str, dict[str, float | str]] = {}
    headings: dict[str, str] = {}
    try:
        lines = csv.DictReader(io.StringIO(read_text(path)))
    except ScalingError as error:
        raise file.config.error("published", error.what, "name a CSV file next to this one") from None
    columns = lines.fieldnames or ()
    for key in ("row", "heading"):
        if key not in columns:
            raise ScalingError("published figures need this column", file=path, key=key, fix="row,heading,…")
    for line in lines:
        if None in line or None in line.values():
            what, fix = f"expected {len(columns)} cells", "put cells with commas into quotes"
            raise ScalingError(what, file=path, line=lines.line_num, fix=fix)
        row, heading = line.pop("row"), line.pop("heading")
        if row not in file.rows:
            what, fix = "it has figures of a row that the table lacks", nearest(row, file.rows)
            raise ScalingError(what, file=path, key="row", value=row, fix=fix)
        headings[row], figures[row] = heading, {column: _figure(cell) for column, cell in line.items() if cell}
    return figures, headings


def _figure(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell
