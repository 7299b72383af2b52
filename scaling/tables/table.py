"""Table: a paper's rows in its order, under its headings, with the figures it printed and the tasks that it scores."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from scaling.base.errors import ScalingError, nearest, refuse, under
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
    "title": Annotated[str, "the printed heading"],
    "source": Annotated[str, "the paper and its table"],
    "published": Annotated[str, "a CSV next to the file with the paper's figures: row, heading, one column per figure"],
    "columns": Annotated[dict[str, str], "titles of further published columns, {COLUMN: title}"],
    "measures": Annotated[
        list[Literal[*MEASURES]],
        "further measures: sequential, path; training: the FLOPs of trainer.max_steps at train.batch",
    ],
    "headings": Annotated[dict[str, list[str]], "the rows under each printed heading, {HEADING: [ROW, ROW]}"],
    "baseline": Annotated[
        str | dict[str, str],
        "the row that the others are compared with (default: the first row); or {HEADING: ROW}",
    ],
    "judged_by": Annotated[Literal["loss", "score"], "loss, or score: the metric of a task (higher is better)"],
    "compares": Annotated[
        dict[Literal[*COMPARED], str],
        "published columns that ours are ranked against, {early: early_loss, loss: final_loss, score: COLUMN}",
    ],
    "downstream": Annotated[
        str | dict[str, Any] | list[str | dict[str, Any]],
        "tasks for finetuning each run, [cola, sst2], or by heading, "
        "{SST-2: {task: sst2, published: COLUMN, train.epochs: 3}}",
    ],
    "seeds": Annotated[int | dict[str, Any], "number of runs of a row, 3 or {baseline: 10, others: 3}"],
}
"""The keys of the section `table`: the type and the meaning of each."""
UNPUBLISHED = "nothing of that name was published"
OF_COLUMN: dict[str, Any] = {"task": str | list[str], "published": str | None}
"""The keys of a column of scores; any other is a key of its runs."""
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
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
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

    @property
    def result_baselines(self) -> dict[str, str]:
        """What the result of each row is compared with: its baseline, or, since losses of two objectives are not of the
        same tokens, the first row under that baseline which has its objective.
        """
        if self.judged_by == "score":
            return dict(self.baselines)
        objectives = {row: self.load(row)["objective.kind"] for row in self.baselines}
        first = {(baseline, objectives[baseline]): baseline for baseline in self.baselines.values()}
        return {row: first.setdefault((baseline, objectives[row]), row) for row, baseline in self.baselines.items()}

    def figures(self, column: str | None) -> dict[str, float]:
        """The paper's numbers of a column, by row."""
        cells = {row.name: row.published.get(column or "") for row in self.rows}
        return {name: cell for name, cell in cells.items() if isinstance(cell, float)}

    def load(self, row: str, words: Sequence[str] = ()) -> Config:
        """The config of a row."""
        return load(self.config, [f"row={json.dumps(row, ensure_ascii=False)}", *words])

    def only(self, names: Collection[str]) -> Table:
        """The table with these rows alone, where any are named."""
        rows = [row.name for row in self.rows]
        for name in names:
            refuse(name not in rows, f"{self.name} has no such row", nearest(name, rows), key="row", value=name)
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
        published = {column for row in self.rows for column in row.published}

        def of_task(task: str, keys: Mapping[str, Any]) -> Downstream:
            return Downstream(name_of(task), {task: keys}, _like(name_of(task), [task], published))

        finetuned = [column for column in self.downstream if column.tasks]
        known = {ALL: finetuned} | {word: [column] for column in finetuned for word in (column.name, column.heading)}
        for column in finetuned:
            for task, keys in column.tasks.items():
                own = column if len(column.tasks) == 1 else of_task(task, keys)
                known = {task: [own], name_of(task): [own]} | known
        columns: list[Downstream] = []
        for name in filter(None, (name.strip() for word in words for name in word.split(","))):
            if name not in known:
                named(name, "--downstream", [column.heading for column in finetuned])
                known[name] = [of_task(name, {})]
            columns += known[name]
        return tuple({column.name: column for column in columns}.values())


def read(name: str) -> Table:
    """The table of a name among the shipped ones, or of a path."""
    file = table_file(name)
    config, fields, stem = file.config, file.config.tree, Path(file.name).stem
    for row in file.rows:  # a line break, or a terminal's command
        what = "a row's name is printable text on one line"
        refuse(not row.isprintable(), what, file=name, key="rows", value=row)
    with config.placing():
        check_keys(fields, KEYS, "a table")
        seeds = _seeds(fields.get("seeds", 1))
    rows = {row: Row(row, "", {}) for row in file.rows} | (_published(file) if "published" in fields else {})
    published = {column for row in rows.values() for column in row.published}
    columns, compares = fields.get("columns", {}), fields.get("compares", {})
    places = {f"columns.{column}": column for column in columns} | {f"compares.{of}": compares[of] for of in compares}
    for key, column in places.items():
        config.refuse(column not in published, key, UNPUBLISHED, nearest(column, published))
    if "headings" in fields:
        headings = _headings(file)
        order = dict.fromkeys([*headings, *file.rows])
        rows = {row: replace(rows[row], heading=headings.get(row, "")) for row in order}
    return Table(
        name=stem,
        config=file.name,
        title=fields.get("title", stem),
        source=fields.get("source", ""),
        baselines=_baselines(config, list(rows.values())),
        rows=tuple(rows.values()),
        seeds=seeds,
        columns=columns,
        measures=tuple(fields.get("measures", ())),
        judged_by=fields.get("judged_by", "loss"),
        compares={of: column for of, column in (COMPARED | compares).items() if column in published},
        downstream=_downstream(config, published),
    )


def _seeds(value: Any) -> dict[str, int]:
    """`3`, or `{baseline: 10, others: 3}`."""
    with under("seeds"):
        seeds = value if isinstance(value, Mapping) else dict.fromkeys(SEEDS, value)
        return {"baseline": 1, "others": 1, **check_keys(seeds, SEEDS, "a number of runs")}


def _headings(file: TableFile) -> dict[str, str]:
    """The heading of each row that stands under one, in the order of the headings."""
    headings: dict[str, str] = {}
    for heading, rows in file.config["headings"].items():
        for row in rows:
            key = f"headings.{heading}"
            file.config.refuse(row not in file.rows, key, f"the table has no row {row!r}", nearest(row, file.rows))
            file.config.refuse(row in headings, key, f"{row!r} is under {headings.get(row)!r} too", "name it once")
            headings[row] = heading
    return headings


def _baselines(config: Config, rows: Sequence[Row]) -> dict[str, str]:
    """The baseline of each row: the table's, or that of its heading."""
    baseline = config.tree.get("baseline", rows[0].name)
    if isinstance(baseline, str):
        names = [row.name for row in rows]
        config.refuse(baseline not in names, "baseline", "the table has no such row", nearest(baseline, names))
        return dict.fromkeys(names, baseline)
    for heading in {**baseline, **dict.fromkeys(row.heading for row in rows)}:
        inside, name = [row.name for row in rows if row.heading == heading], baseline.get(heading, "")
        what = f"expected a row under the heading {heading!r}"
        config.refuse(name not in inside, f"baseline.{heading}", what, nearest(name, inside))
    return {row.name: baseline[row.heading] for row in rows}


def read_csv(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file, each with as many cells as the first."""
    try:
        lines = csv_rows(read_text(path))
    except csv.Error as error:
        raise ScalingError(f"not a CSV file: {error}", file=path) from None
    for number, line in enumerate(lines, 2):
        fix = "put cells with commas into quotes; a file that was kept, put back or keep again"
        is_broken = None in line or None in line.values()
        refuse(is_broken, f"expected {len(lines[0])} cells", fix, file=path, line=number)
    return lines


def _published(file: TableFile) -> dict[str, Row]:
    """The rows of a CSV with the columns `row`, `heading` and one for each figure."""
    path, rows = file.path("published"), dict[str, Row]()
    with file.config.placing("published"):
        for line in read_csv(path):
            absent = {"row", "heading"} - line.keys()
            refuse(absent, f"it lacks the column {min(absent, default='')}", "row,heading,…", file=path)
            row, heading = line.pop("row"), line.pop("heading")
            what = "it has figures of a row that the table lacks"
            refuse(row not in file.rows, what, nearest(row, file.rows), file=path, key="row", value=row)
            rows[row] = Row(row, heading, {column: _figure(cell) for column, cell in line.items() if cell})
    return rows


def _figure(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


def _downstream(config: Config, published: Collection[str]) -> tuple[Downstream, ...]:
    """The columns of scores that a table's file names, in their order; `published` are the paper's columns."""
    value = config.tree.get("downstream", [])
    items = value if isinstance(value, list) else [value]
    lines = [
        pair for item in items for pair in (item.items() if isinstance(item, Mapping) else [(name_of(item), item)])
    ]
    columns: dict[str, Downstream] = {}
    settings: dict[str, Mapping[str, Any]] = {}
    for heading, line in lines:
        key = f"downstream.{heading}"
        with config.placing(), under(key):
            column = _column(config, heading, line, published)
        config.refuse(not column.name or "\n" in heading, key, "expected a heading", "write one line of text")
        config.refuse(column.name in columns, key, "it names the same column as another heading", "rename one of them")
        columns[column.name] = column
        for task, keys in column.tasks.items():  # of two sets of keys its runs would be two
            what = f"{name_of(task)} has other keys under another heading"
            fix = "give it the same keys, or write a task's file"
            config.refuse(settings.setdefault(task, keys) != keys, key, what, fix)
    return tuple(columns.values())


def _column(config: Config, heading: str, line: Any, published: Collection[str]) -> Downstream:
    settings = dict(line) if isinstance(line, Mapping) else {"task": line}
    check_keys(settings, dict.fromkeys(settings, Any) | OF_COLUMN, "a column")
    names, column = settings.pop("task", []), settings.pop("published", None)
    file, file_of_figures = (config.origin.get(name, "").rpartition(":")[0] for name in ("downstream", "published"))
    tasks = [_beside(Path(file), task) for task in (names if isinstance(names, list) else [names])]
    for task in tasks:
        named(task, "task")
    column = column or _like(heading, tasks, published)
    if column not in published and file != file_of_figures:
        column = None  # the table has figures of its own in the place of its base's
    refuse(column and column not in published, UNPUBLISHED, nearest(str(column), published), key="published")
    refuse(not column and not tasks, "it names neither a task nor a published column", "write {task: cola}")
    return Downstream(heading, dict.fromkeys(tasks, settings), column)


def _beside(file: Path, task: str) -> str:
    """A task, with the whole path of a file next to the one that names it."""
    path = file.parent / task
    return str(path.resolve()) if path.suffix and os.path.isfile(path) else task


def _like(heading: str, tasks: Sequence[str], published: Collection[str]) -> str | None:
    """The published column that has the name of the heading, or of its only task."""
    names = [Downstream(heading).name, *(name_of(task) for task in tasks if len(tasks) == 1)]
    return next((name for name in names if name in published), None)


def located(config: str) -> str:
    """The config of a table as a plan keeps it: a path without links from the root, whatever was typed."""
    return str(_path(config)) if config.endswith(SUFFIXES) else config


def same_table(planned: str, config: str) -> bool:
    """Whether a plan's base is the table of this config, however the paths are spelled. The file of a plan that is no
    longer where it was, or was named from another working directory, is known by its name.
    """
    then, now = _path(planned), _path(config)
    return then == now or (planned.endswith(SUFFIXES) and not then.exists() and then.name == now.name)


def _path(config: str) -> Path:
    path = Path(os.path.expanduser(config)) if config.endswith(SUFFIXES) else shipped() / f"{config}.yaml"
    return path.resolve()
