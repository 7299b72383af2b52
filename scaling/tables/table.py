"""Table: a paper's rows in its order, under its headings, with the figures it printed and the tasks that it scores."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from scaling.base.errors import ScalingError, nearest, under
from scaling.base.numbers import PositiveInt
from scaling.base.printing import csv_rows
from scaling.config.compose import TableFile, load, override, table_file
from scaling.config.document import Config
from scaling.config.files import SUFFIXES, shipped
from scaling.config.schema import check_keys
from scaling.config.strict_yaml import read_text
from scaling.training.finetune import name_of, named

ALL = "all"
"""The word for every column of a table that has tasks."""
COMPARED = {"early": "early_loss", "loss": "final_loss", "score": None}
"""The values of a run that are ranked against the paper's figures, and the default columns of these figures."""
MEASURES = {
    "sequential": "Sequential steps, measured",
    "path": "Path length, measured",
    "training": "Training FLOPs, ours",
}
"""The titles of further quantities that a table may measure."""
KEYS: dict[str, Any] = {
    "title": str,
    "source": str,
    "published": str,
    "columns": dict[str, str],
    "measures": list[Literal[*MEASURES]],
    "headings": dict[str, list[str]],
    "baseline": str | dict[str, str],
    "judged_by": Literal["loss", "score"],
    "compares": dict[Literal[*COMPARED], str],
    "downstream": Any,  # tasks, or keys by heading, checked with the published columns
    "seeds": int | dict[str, Any],
}
MEANINGS = {
    "title": "the printed heading",
    "source": "the paper and its table",
    "published": "a CSV next to the file with the paper's figures: row, heading, one column per figure",
    "columns": "titles of further published columns, {COLUMN: title}",
    "measures": "further measures: sequential, path; training: the FLOPs of trainer.max_steps at train.batch",
    "headings": "the rows under each printed heading, {HEADING: [ROW, ROW]}",
    "baseline": "the row that the others are compared with (default: the first row); or {HEADING: ROW}",
    "judged_by": "loss, or score: the metric of a task (higher is better)",
    "compares": "published columns that ours are ranked against, {early: early_loss, loss: final_loss, score: COLUMN}",
    "downstream": "tasks for finetuning each run, [cola, sst2], or by heading, "
    "{SST-2: {task: sst2, published: COLUMN, train.epochs: 3}}",
    "seeds": "number of runs of a row, 3 or {baseline: 10, others: 3}",
}
SEEDS: dict[str, Any] = dict.fromkeys(("baseline", "others"), PositiveInt)


@dataclass(frozen=True)
class Row:
    """`published` has the figures by column, or words; cells that the paper leaves empty are not in it."""

    name: str
    heading: str
    published: Mapping[str, float | str]


@dataclass(frozen=True)
class Downstream:
    """A column of scores under its heading. `tasks` have the keys of their runs; the score is the mean over them.
    `published` is the paper's column; `metric` is the main value of the tasks, and None where nothing was measured.
    """

    heading: str
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    published: str | None = None
    metric: str | None = None

    @property
    def name(self) -> str:
        """The heading as the name of a column of data."""
        return re.sub(r"\W+", "_", self.heading.lower()).strip("_")

    @property
    def title(self) -> str:
        """The heading with the metric, where that is known."""
        several = f", mean of {len(self.tasks)} tasks" if len(self.tasks) > 1 else ""
        return self.heading if self.metric is None else f"{self.heading} ({self.metric}{several})"

    def to_json(self) -> dict[str, Any]:
        """The column without the keys of its runs; tasks by their names, since a path is of one machine."""
        return {**vars(self), "tasks": [name_of(task) for task in self.tasks]}

    @staticmethod
    def of_json(column: Mapping[str, Any]) -> Downstream:
        """The column that `to_json` wrote."""
        tasks = {task: {} for task in column["tasks"]}
        return Downstream(column["heading"], tasks, column["published"], column["metric"])


@dataclass(frozen=True)
class Table:
    """`config` is what `load` takes; `baselines` has the row that each row is compared with; `columns` are the titles
    of published columns without a column of ours, `measures` what is measured beyond size and operations, and
    `downstream` the columns of scores. `compares` has the published column that early losses, final losses and scores
    are ranked against. `seeds` are the numbers of runs of the baseline and of each other row: all comparisons are with
    the baseline, so its runs count most.
    """

    name: str
    config: str
    title: str
    source: str
    baselines: Mapping[str, str]
    rows: tuple[Row, ...]
    seeds: Mapping[str, int]
    columns: Mapping[str, str] = field(default_factory=dict)
    measures: tuple[str, ...] = ()
    judged_by: Literal["loss", "score"] = "loss"
    compares: Mapping[str, str] = field(default_factory=dict)
    downstream: tuple[Downstream, ...] = ()

    @property
    def baseline(self) -> str:
        """The row that the others are compared with; the first heading's, where each heading has its own."""
        return self.baselines[self.rows[0].name]

    def is_baseline(self, row: str) -> bool:
        return self.baselines.get(row) == row

    def figures(self, column: str | None) -> dict[str, float]:
        """The paper's numbers of a column, by row."""
        cells = {row.name: row.published.get(column or "") for row in self.rows}
        return {name: cell for name, cell in cells.items() if isinstance(cell, float)}

    def baselines_of(self, rows: Iterable[str]) -> dict[str, str]:
        """The baseline of each of `rows`: the first one, where the table does not have the row."""
        return {row: self.baselines.get(row, self.baseline) for row in rows}

    def loss_baselines_of(self, rows: Iterable[str]) -> dict[str, str]:
        """What the loss of each of `rows` is compared with: its baseline, or, since losses of two objectives are not of
        the same tokens, the first row under that baseline which has its objective.
        """
        objectives = {row: self.load(row)["objective.kind"] for row in self.baselines}
        first = {(baseline, objectives[baseline]): baseline for baseline in self.baselines.values()}
        firsts = {row: first.setdefault((baseline, objectives[row]), row) for row, baseline in self.baselines.items()}
        return self.baselines_of(rows) | {row: firsts[row] for row in rows if row in firsts}

    def load(self, row: str, words: Sequence[str] = ()) -> Config:
        """The config of a row."""
        return load(self.config, [f"row={json.dumps(row, ensure_ascii=False)}", *words])

    def only(self, names: Collection[str]) -> Table:
        """The table with these rows alone, where any are named."""
        rows = {row.name: row for row in self.rows}
        for name in names:
            if name not in rows:
                raise ScalingError(f"{self.name} has no such row", key="row", value=name, fix=nearest(name, rows))
        return replace(self, rows=tuple(row for row in self.rows if not names or row.name in names))

    def seeded(self, words: Sequence[str]) -> tuple[Table, list[str]]:
        """The table with the seeds of a word `seeds=3`, and the other words, which are overrides of its rows."""
        seeds = [override(word)[1] for word in words if word.startswith("seeds=")]
        others = [word for word in words if not word.startswith("seeds=")]
        return (replace(self, seeds=_seeds(seeds[-1])) if seeds else self), others

    def chosen(self, words: Iterable[str]) -> tuple[Downstream, ...]:
        """The columns that words such as `cola,sst2` name: `all`, headings or tasks among the table's columns, which
        keep their keys, and other tasks.
        """
        finetuned = [column for column in self.downstream if column.tasks]
        known: dict[str, list[Downstream]] = {ALL: finetuned}
        for column in finetuned:
            only = list(column.tasks) if len(column.tasks) == 1 else []
            for word in (column.heading, column.name, *only, *map(name_of, only)):
                known.setdefault(word, [column])
        settings = {
            word: item for column in finetuned for item in column.tasks.items() for word in (item[0], name_of(item[0]))
        }
        columns: list[Downstream] = []
        for name in filter(None, (name.strip() for word in words for name in word.split(","))):
            if name not in known:
                task, keys = settings.get(name, (name, {}))
                try:
                    named(task)
                except ScalingError as error:
                    near = nearest(name, [column.heading for column in finetuned])
                    fix = near if near.startswith("did you mean") else error.fix
                    raise ScalingError(error.what, key="--downstream", value=name, fix=fix) from None
                published = {column for row in self.rows for column in row.published}
                known[name] = [Downstream(name_of(task), {task: keys}, _like(name_of(task), [task], published))]
            columns += known[name]
        return tuple({column.name: column for column in columns}.values())


def read(name: str) -> Table:
    """The table of a name among the shipped ones, or of a path."""
    file = table_file(name)
    fields, stem = file.config.tree, Path(file.name).stem
    for row in file.rows:
        if not row.isprintable():  # a line break or a terminal's command
            raise ScalingError("a row's name is printable text on one line", file=name, key="rows", value=row)
    with file.config.placing():
        check_keys(fields, KEYS, "a table")
        seeds = _seeds(fields.get("seeds", 1))
    figures, headings = _published(file) if "published" in fields else ({}, {})
    published = {column for row in figures.values() for column in row}
    columns, compares = fields.get("columns", {}), fields.get("compares", {})
    for key, column in [(f"columns.{each}", each) for each in columns] + [
        (f"compares.{of}", each) for of, each in compares.items()
    ]:
        _known(file, key, column, published, "nothing of that name was published")
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
        name=stem,
        config=file.name,
        title=fields.get("title", stem),
        source=fields.get("source", ""),
        baselines=_baselines(file, rows),
        rows=rows,
        seeds=seeds,
        columns=columns,
        measures=tuple(fields.get("measures", ())),
        judged_by=fields.get("judged_by", "loss"),
        compares={of: column for of, column in ranked.items() if column in published},
        downstream=_downstream(file, published),
    )


def _seeds(value: Any) -> dict[str, int]:
    """`3`, or `{baseline: 10, others: 3}`."""
    with under("seeds"):
        seeds = value if isinstance(value, Mapping) else dict.fromkeys(SEEDS, value)
        return {"baseline": 1, "others": 1, **check_keys(seeds, SEEDS, "a number of runs")}


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
    path = Path(os.path.expanduser(config)) if config.endswith(SUFFIXES) else shipped() / f"{config}.yaml"
    return path.resolve()


def _baselines(file: TableFile, rows: Sequence[Row]) -> dict[str, str]:
    """The baseline of each row: the table's, or that of its heading."""
    baseline = file.config.tree.get("baseline", rows[0].name)
    if isinstance(baseline, str):
        _known(file, "baseline", baseline, file.rows, "the table has no such row")
        return {row.name: baseline for row in rows}
    headings = dict.fromkeys(row.heading for row in rows)
    for heading, name in baseline.items():
        inside = [row.name for row in rows if row.heading == heading]
        _known(file, f"baseline.{heading}", heading, headings, "the table has no such heading")
        _known(file, f"baseline.{heading}", name, inside, f"no row {name!r} under this heading")
    for heading in headings:
        if heading not in baseline:
            raise file.config.error(
                "baseline", f"no baseline is named for the heading {heading!r}", f"write {{{heading}: ROW, …}}"
            )
    return {row.name: baseline[row.heading] for row in rows}


def read_csv(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file, each with as many cells as the first."""
    try:
        lines = csv_rows(read_text(path))
    except csv.Error as error:
        raise ScalingError(f"not a CSV file: {error}", file=path) from None
    for number, line in enumerate(lines, 2):
        if None in line or None in line.values():
            fix = "put cells with commas into quotes; a file that was kept, put back or keep again"
            raise ScalingError(f"expected {len(lines[0])} cells", file=path, line=number, fix=fix)
    return lines


def _published(file: TableFile) -> tuple[dict[str, dict[str, float | str]], dict[str, str]]:
    """Figures and headings by row, of a CSV with the columns `row`, `heading` and one for each figure."""
    path = file.path("published")
    figures: dict[str, dict[str, float | str]] = {}
    headings: dict[str, str] = {}
    try:
        lines = read_csv(path)
    except ScalingError as error:
        unread = file.config.error("published", error.what, "name a CSV file next to this one")
        raise (unread if error.line is None else error) from None
    for line in lines:
        for key in ("row", "heading"):
            if key not in line:
                raise ScalingError("published figures need this column", file=path, key=key, fix="row,heading,…")
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


def _downstream(file: TableFile, published: Collection[str]) -> tuple[Downstream, ...]:
    """The columns of scores that a table's file names, in their order; `published` are the paper's columns."""
    value = file.config.tree.get("downstream", [])
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | Mapping) for item in items):
        raise file.config.error("downstream", "expected tasks", "write downstream: [cola, {SST-2: {task: sst2}}]")
    columns: dict[str, Downstream] = {}
    settings: dict[str, Mapping[str, Any]] = {}
    for item in items:
        for heading, line in item.items() if isinstance(item, Mapping) else [(name_of(item), item)]:
            column, key = _column(file, str(heading), line, published), f"downstream.{heading}"
            if not column.name or "\n" in column.heading:
                raise file.config.error(key, "expected a heading", "write one line of text")
            if (like := columns.setdefault(column.name, column)) is not column:
                raise file.config.error(
                    key, f"it names the same column as the heading {like.heading!r}", "rename one of them"
                )
            for task, keys in column.tasks.items():
                if settings.setdefault(task, keys) != keys:  # its runs would be two
                    what = f"{name_of(task)} has other keys under another heading"
                    raise file.config.error(key, what, "give it the same keys, or write a task's file")
    return tuple(columns.values())


def _column(file: TableFile, heading: str, line: Any, published: Collection[str]) -> Downstream:
    key = f"downstream.{heading}"
    settings = dict(line) if isinstance(line, Mapping) else {"task": line}
    tasks, column = settings.pop("task", []), settings.pop("published", None)
    tasks = tasks if isinstance(tasks, list) else [tasks]
    if not all(isinstance(task, str) for task in tasks) or len(set(tasks)) < len(tasks):
        raise file.config.error(key, "expected a task, or several, each once", "write {task: cola}")
    column = column or _like(heading, tasks, published)
    if column is None and not tasks:
        raise file.config.error(key, "it names neither a task nor a published column", "write {task: cola}")
    files = {name: file.config.origin.get(name, "").rpartition(":")[0] for name in ("downstream", "published")}
    if column not in published and files["downstream"] != files["published"]:
        column = None  # the table has figures of its own in the place of its base's
    if column is not None:
        _known(file, f"{key}.published", str(column), published, "nothing of that name was published")
    beside = [Path(files["downstream"]).parent / task for task in tasks]
    tasks = [str(path.resolve()) if path.suffix and os.path.isfile(path) else task for task, path in zip(tasks, beside)]
    for task in tasks:
        try:
            named(task)
        except ScalingError as error:
            raise file.config.error(key, f"{task}: {error.what}", error.fix) from None
    return Downstream(heading, dict.fromkeys(tasks, settings), column)


def _like(heading: str, tasks: Sequence[str], published: Collection[str]) -> str | None:
    """The published column that has the name of the heading, or of its only task."""
    names = [Downstream(heading).name, *(name_of(task) for task in tasks if len(tasks) == 1)]
    return next((name for name in names if name in published), None)
