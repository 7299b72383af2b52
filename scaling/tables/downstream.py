"""Downstream: the columns of scores of a table, each of one or more tasks that its runs are finetuned on."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scaling.config import TableFile
from scaling.errors import ScalingError, nearest
from scaling.training.finetune import name_of, named

ALL = "all"
"""The word for every column of a table that has tasks."""


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


def read(file: TableFile, published: Collection[str]) -> tuple[Downstream, ...]:
    """The columns that a table's file names, in their order; `published` are the paper's columns."""
    value = file.config.tree.get("downstream", [])
    columns: dict[str, Downstream] = {}
    settings: dict[str, Mapping[str, Any]] = {}
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, str | Mapping):
            raise file.config.error("downstream", "expected tasks", "write downstream: [cola, {SST-2: {task: sst2}}]")
        for heading, line in item.items() if isinstance(item, Mapping) else [(name_of(item), item)]:
            column = _column(file, str(heading), line, published)
            key = f"downstream.{column.heading}"
            if not column.name or "\n" in column.heading:
                raise file.config.error(key, "this is no heading", "take one line with a letter")
            if (like := columns.setdefault(column.name, column)) is not column:
                raise file.config.error(key, f"it is too like the heading {like.heading!r}", "rename one of them")
            for task, keys in column.tasks.items():
                if settings.setdefault(task, keys) != keys:  # its runs would be two
                    what = f"{name_of(task)} has other keys under another heading"
                    raise file.config.error(key, what, "give it the same keys, or write a task's file")
    return tuple(columns.values())


def _column(file: TableFile, heading: str, line: Any, published: Collection[str]) -> Downstream:
    key = f"downstream.{heading}"
    settings = dict(line) if isinstance(line, Mapping) else {"task": line}
    tasks, column = settings.pop("task", []), settings.pop("published", None)
    tasks = list(tasks) if isinstance(tasks, list) else [tasks]
    if not all(isinstance(task, str) for task in tasks) or len(set(tasks)) < len(tasks):
        raise file.config.error(key, "expected a task, or several, each once", "write {task: cola}")
    column = column or _published(heading, tasks, published)
    if column is None and not tasks:
        raise file.config.error(key, "it names neither a task nor a published column", "write {task: cola}")
    files = {name: file.config.origin.get(name, "").rpartition(":")[0] for name in ("downstream", "published")}
    if column is not None and column not in published:
        if files["downstream"] == files["published"]:
            fix = nearest(str(column), published)
            raise file.config.error(f"{key}.published", "nothing of that name was published", fix)
        column = None  # the table has figures of its own in the place of its base's
    for place, task in enumerate(tasks):
        beside = Path(files["downstream"]).parent / task
        tasks[place] = str(beside.resolve()) if Path(task).suffix and os.path.isfile(beside) else task
        try:
            named(tasks[place])
        except ScalingError as error:
            raise file.config.error(key, f"{tasks[place]}: {error.what}", error.fix) from None
    return Downstream(heading, dict.fromkeys(tasks, settings), column)


def _published(heading: str, tasks: Sequence[str], published: Collection[str]) -> str | None:
    """The published column that has the name of the heading, or of its only task."""
    names = [Downstream(heading).name, *(name_of(task) for task in tasks if len(tasks) == 1)]
    return next((name for name in names if name in published), None)


def chosen(own: Sequence[Downstream], words: Iterable[str], published: Collection[str]) -> tuple[Downstream, ...]:
    """The columns that words such as `cola,sst2` name: `all`, headings or tasks among a table's `own` columns, which
    keep their keys, and other tasks.
    """
    own = [column for column in own if column.tasks]
    settings = {task: keys for column in own for task, keys in column.tasks.items()}
    known: dict[str, list[Downstream]] = {ALL: own}
    for column in own:
        only = list(column.tasks) if len(column.tasks) == 1 else []
        for word in (column.heading, column.name, *only, *map(name_of, only)):
            known.setdefault(word, [column])
    columns: list[Downstream] = []
    for name in (name.strip() for word in words for name in word.split(",") if name.strip()):
        if name not in known:
            task = next((task for task in settings if name in (task, name_of(task))), name)
            try:
                named(task)
            except ScalingError as error:
                near = nearest(name, [column.heading for column in own])
                fix = near if near.startswith("did you mean") else error.fix
                raise ScalingError(error.what, key="--downstream", value=name, fix=fix) from None
            column = _published(name_of(task), [task], published)
            known[name] = [Downstream(name_of(task), {task: settings.get(task, {})}, column)]
        columns += known[name]
    return tuple({column.name: column for column in columns}.values())
