"""Downstream: the columns of scores of a table, each of one or more tasks that its runs are finetuned on."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scaling.config import TableFile
from scaling.errors import ScalingError, nearest
from scaling.training.finetune import name_of, named

ALL = "all"
"""The word for every column of a table that has tasks."""
OWN = ("task", "published")
"""Keys of a column; all others are keys of its finetuned runs."""


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
        if self.metric is None:
            return self.heading
        several = f", mean of {len(self.tasks)} tasks" if len(self.tasks) > 1 else ""
        return f"{self.heading} ({self.metric}{several})"

    def to_json(self) -> dict[str, Any]:
        """The column without the keys of its runs; tasks by their names, since a path is of one machine."""
        return {**vars(self), "tasks": [name_of(task) for task in self.tasks]}

    @staticmethod
    def of_json(column: Mapping[str, Any]) -> Downstream:
        """What `to_json` gives of a column."""
        return Downstream(**{**column, "tasks": {task: {} for task in column["tasks"]}})


def read(file: TableFile, published: Collection[str]) -> tuple[Downstream, ...]:
    """The columns that a table's file names, in their order; `published` are the paper's columns."""
    value = file.config.tree.get("downstream", [])
    lines: list[tuple[str, Any]] = []
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, str | Mapping):
            raise file.config.error("downstream", "expected tasks", "write downstream: [cola, {SST-2: {task: sst2}}]")
        lines += item.items() if isinstance(item, Mapping) else [(name_of(item), item)]
    columns = [_column(file, str(heading), line, published) for heading, line in lines]
    _distinct(file, columns)
    return tuple(columns)


def _column(file: TableFile, heading: str, line: Any, published: Collection[str]) -> Downstream:
    key = f"downstream.{heading}"
    line = dict(line) if isinstance(line, Mapping) else {"task": line}
    named_tasks = line.get("task")
    tasks = named_tasks if isinstance(named_tasks, list) else [] if named_tasks is None else [named_tasks]
    if not all(isinstance(task, str) for task in tasks) or len(set(tasks)) < len(tasks):
        raise file.config.error(key, "expected a task, or several, each once", "write {task: cola}")
    column = line.get("published") or _of_same_name(heading, tasks, published)
    if column is None and not tasks:
        raise file.config.error(key, "it names neither a task nor a published column", "write {task: cola}")
    if column is not None and column not in published:
        if not _is_inherited(file):
            fix = nearest(str(column), published)
            raise file.config.error(f"{key}.published", "nothing of that name was published", fix)
        column = None  # the table has figures of its own in the place of its base's
    settings = {name: value for name, value in line.items() if name not in OWN}
    folder = Path(file.config.origin["downstream"].rpartition(":")[0]).parent
    columns = Downstream(heading, {_beside(folder, task): settings for task in tasks}, column)
    for task in columns.tasks:
        try:
            named(task)
        except ScalingError as error:
            raise file.config.error(key, f"{task}: {error.what}", error.fix) from None
    return columns


def _is_inherited(file: TableFile) -> bool:
    """Whether the columns are of another file than the published figures."""
    origins = (file.config.origin.get(key, "").rpartition(":")[0] for key in ("downstream", "published"))
    return len(set(origins)) > 1


def _distinct(file: TableFile, columns: Sequence[Downstream]) -> None:
    """Refuse two columns of one name, and a task that has two sets of keys: its runs would be two."""
    headings: dict[str, str] = {}
    settings: dict[str, Mapping[str, Any]] = {}
    for column in columns:
        key = f"downstream.{column.heading}"
        if not column.name or "\n" in column.heading:
            raise file.config.error(key, "this is no heading", "take one line with a letter")
        if column.name in headings:
            raise file.config.error(key, f"it is too like the heading {headings[column.name]!r}", "rename one of them")
        headings[column.name] = column.heading
        for task, own in column.tasks.items():
            if settings.setdefault(task, own) != own:
                what = f"{name_of(task)} has other keys under another heading"
                raise file.config.error(key, what, "give it the same keys, or write a task's file")


def _of_same_name(heading: str, tasks: Sequence[str], published: Collection[str]) -> str | None:
    """The published column that has the name of the heading, or of its only task."""
    names = [Downstream(heading).name, *(name_of(task) for task in tasks if len(tasks) == 1)]
    return next((name for name in names if name in published), None)


def _beside(folder: Path, task: str) -> str:
    """A task's file next to the table's; any other task as it is."""
    path = folder / task
    return str(path.resolve()) if Path(task).suffix and os.path.isfile(path) else task


def split(words: Iterable[str]) -> list[str]:
    """The names in words such as `cola,sst2`."""
    return [name.strip() for word in words for name in word.split(",") if name.strip()]


def chosen(own: Sequence[Downstream], names: Iterable[str], published: Collection[str]) -> tuple[Downstream, ...]:
    """The columns that these words name: `all`, headings or tasks among a table's `own` columns, which keep their keys,
    and other tasks.
    """
    settings = {task: keys for column in own for task, keys in column.tasks.items()}
    columns: dict[str, Downstream] = {}
    for name in names:
        if name == ALL:
            columns |= {column.name: column for column in own if column.tasks}
            continue
        meant = [column for column in own if column.tasks and _is_named(column, name)]
        task = next((task for task in settings if name in (task, name_of(task))), name)
        if not meant:
            _check(name, task, [column.heading for column in own if column.tasks])
        heading = name_of(task)
        other = Downstream(heading, {task: settings.get(task, {})}, _of_same_name(heading, [task], published))
        column = meant[0] if meant else other
        columns[column.name] = column
    return tuple(columns.values())


def merged(own: Iterable[Downstream], measured: Iterable[Downstream]) -> list[Downstream]:
    """The columns of a table, and those that were measured; where a column is both, its published one is the table's
    present one.
    """
    columns = {column.name: replace(column, metric=None) for column in own}
    for column in measured:
        present = columns.get(column.name, column)
        columns[column.name] = replace(column, heading=present.heading, published=present.published)
    return list(columns.values())


def _is_named(column: Downstream, name: str) -> bool:
    """Whether a word is the column's heading or its only task."""
    task = next(iter(column.tasks)) if len(column.tasks) == 1 else None
    return name in (column.heading, column.name, task, task and name_of(task))


def _check(name: str, task: str, headings: Sequence[str]) -> None:
    try:
        named(task)
    except ScalingError as error:
        near = nearest(name, headings)
        fix = near if near.startswith("did you mean") else error.fix
        raise ScalingError(error.what, key="--downstream", value=name, fix=fix) from None
