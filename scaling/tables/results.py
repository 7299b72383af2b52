"""Results: the planned runs of a table as records, read from a ledger or a file of points, and written.

A record is a dict by the columns of points.csv. A finetuned run has its scores under `NAME_score`, by the names of the
table's columns of scores.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from scaling.base import atomic
from scaling.base.errors import ScalingError, refuse
from scaling.base.printing import csv_text
from scaling.config.compose import override
from scaling.ledger import Ledger
from scaling.ledger.run import hardware, spans
from scaling.studies.question import COMPARED, flat, word_of
from scaling.studies.tasks import SCORE
from scaling.tables.table import Downstream, Table, read_csv, same_table
from scaling.training.finetune import goal

Record = dict[str, Any]
MISSING, FINISHED = "missing", "finished"
EARLY = 1 / 8
"""The fraction of the steps at which early losses are read: 65,536 of 524,288 in Narang et al. 2021."""
FREE = ("seed", "log")
"""Keys by which the finetunings of one row on one task may differ."""
VARIED = ("row", "seed", "log.group", "log.name", "log.tags", "runs")
"""Keys by which the runs of one setting differ."""
FINETUNING = ("finetuning_flops", "finetuning_worker_seconds")
OPTIONAL = frozenset({"score", *FINETUNING})
"""Columns that are written only where a run has a value."""
REQUIRED = ("row", "run", "status", "seed")
OF_ALL = ("studies", "settings", "downstream")
"""Columns that hold one list in JSON, the same in every line; the last is written where there are scores."""
TYPES: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("row", "run", "status"), str),
    **dict.fromkeys(("seed", "steps", "tokens"), int),
    **dict.fromkeys(("early_at", "early", "loss", "steps_per_second", "flops", "worker_seconds"), float),
    **dict.fromkeys(("day", "hardware", "versions"), str),
    **dict.fromkeys(("score", *FINETUNING), float),
}
COLUMNS = [name for name in TYPES if name not in OPTIONAL] + [*OF_ALL[:2]]
"""The columns of all points."""


def record(row: str, seed: int, run: str, status: str = MISSING, **values: Any) -> Record:
    """The record of a planned run; a column without a value is None."""
    return dict.fromkeys(TYPES) | {"row": row, "run": run, "status": status, "seed": seed, **values}


@dataclass(frozen=True)
class Results:
    """The planned runs of the `studies` of a table under their common overrides `settings`. `columns` are the table's
    columns of scores, those that were asked for, and those that were measured, which have a metric.
    """

    table: Table
    studies: tuple[str, ...]
    settings: tuple[str, ...]
    runs: tuple[Record, ...]
    columns: tuple[Downstream, ...] = ()

    @cached_property
    def rows(self) -> Mapping[str, list[Record]]:
        """The runs of each row, by seed."""
        rows: dict[str, list[Record]] = {}
        for run in sorted(self.runs, key=lambda run: run["seed"]):
            rows.setdefault(run["row"], []).append(run)
        return rows

    @property
    def measured(self) -> list[Downstream]:
        return [column for column in self.columns if column.metric is not None]

    def values(self, column: str) -> dict[str, list[Any]]:
        """The values of a column in the finished runs of each row that the table has, by seed."""
        return {
            row: [run[column] for run in runs if run["status"] == FINISHED and run.get(column) is not None]
            for row, runs in self.rows.items()
            if row in self.table.baselines
        }

    def final(self) -> dict[str, list[float]]:
        """The losses or scores by which rows are judged."""
        values = self.values(self.table.judged_by)
        lacking = [row for row, runs in self.values("run").items() if len(values[row]) < len(runs)]
        what = f"finished runs have no {self.table.judged_by}; only runs of a task have a score"
        refuse(lacking, what, key="table.judged_by", value=", ".join(lacking))
        return values

    def early(self) -> dict[str, list[float]]:
        """The early losses, where rows are judged by their loss."""
        return self.values("early") if self.table.judged_by == "loss" else {}

    @property
    def early_at(self) -> float | None:
        """The fraction of the steps at which early losses were read."""
        fractions = [run["early_at"] for run in self.runs if run["early_at"] is not None]
        return statistics.median(fractions) if fractions else None


def read_ledger(ledger: Ledger, table: Table, study: str | None = None, asked: Sequence[Downstream] = ()) -> Results:
    """The runs of a study, or of all studies of the table, which must then have the same settings; with their scores in
    the table's columns and in those that were `asked` for, as far as these were measured.
    """
    of_table = {name: plan for name, plan in ledger.plans().items() if same_table(plan["study"]["base"], table.config)}
    finetunings = [run for plan in of_table.values() for run in plan["runs"] if "task" in run]
    plans = (
        {study: ledger.plan(study)}
        if study
        else {name: plan for name, plan in of_table.items() if not any("task" in run for run in plan["runs"])}
    )
    settings: set[tuple[str, ...]] = set()
    planned: dict[tuple[str, int], Mapping[str, Any]] = {}
    has_changed = False
    for plan in plans.values():
        for run in plan["runs"]:
            values = dict(map(override, run["overrides"]))
            if {"row", "seed"} <= values.keys():  # another study of the table may compare something else
                words = (word for word in run["overrides"] if word != COMPARED)
                settings.add(tuple(word for word in words if override(word)[0] not in VARIED))
                has_changed |= planned.setdefault((values["row"], values["seed"]), run)["run"] != run["run"]
    what, fix = (
        f"the ledger holds {table.name} in several settings",
        f"name a study of one setting: --study {', --study '.join(plans)}",
    )
    refuse(has_changed or len(settings) > 1, what, fix, file=ledger.root)
    rows = list(dict.fromkeys(row for row, _ in planned))
    is_other = (study or rows) and not {row.name for row in table.rows}.intersection(rows)
    refuse(is_other, f"it has no row of {table.name}", file=ledger.root, key="study", value=next(iter(plans), None))
    runs = [_record(ledger, *cell, planned[cell]) for cell in sorted(planned, key=lambda cell: rows.index(cell[0]))]
    columns = {column.name: column for column in (*table.downstream, *asked)}
    scored = _scored(ledger, finetunings, runs, columns.values())
    return Results(table, tuple(plans), next(iter(settings), ()), tuple(runs), scored)


def _record(ledger: Ledger, row: str, seed: int, planned: Mapping[str, Any]) -> Record:
    run = planned["run"]
    result = ledger.result(run)
    if result is None:
        return record(row, seed, run)
    circumstances, steps = result["circumstances"], result["step"]
    versions = [" ".join(version) for version in sorted(circumstances.get("versions", {}).items())]
    ended = record(row, seed, run, result["outcome"], flops=planned["flops"], **_effort(ledger, [run])) | {
        "hardware": hardware(circumstances),
        "versions": ", ".join(versions) or None,
    }
    if result["outcome"] != FINISHED:
        return ended
    history = ledger.history(run)
    evaluations = [entry for entry in history if entry["kind"] == "evaluate" and 1 < entry["step"] < steps]
    if evaluations:
        early = min(evaluations, key=lambda entry: abs(math.log(entry["step"] / (EARLY * steps))))
        ended |= {"early_at": early["step"] / steps, "early": early["loss"]}
    if speeds := [entry["tokens_per_second"] for entry in history if entry.get("tokens_per_second")]:
        ended["steps_per_second"] = statistics.median(speeds) * steps / result["tokens"]
    return ended | {"steps": steps, **{key: result.get(key) for key in ("tokens", "loss", "score")}}


def _effort(ledger: Ledger, runs: Iterable[str]) -> Record:
    """The day on which the first of these runs began, and their seconds; None where a run has no attempts."""
    attempts = [spans(ledger.attempts(run)) for run in runs]
    if not all(attempts):
        return {"day": None, "worker_seconds": None}
    begins, seconds = zip(*((begin, (end - begin).total_seconds()) for of_run in attempts for begin, end in of_run))
    return {"day": str(min(begins).date()), "worker_seconds": sum(seconds)}


def _scored(
    ledger: Ledger, planned: Sequence[Mapping[str, Any]], runs: Sequence[Record], columns: Iterable[Downstream]
) -> tuple[Downstream, ...]:
    """Add to each finished run its scores in the columns whose tasks it was all finetuned on, by the `planned`
    finetunings. Return the columns, those that were measured with their metrics.
    """
    finetuned: dict[tuple[str, str, frozenset[str]], Record] = {}
    for entry in planned:
        result = ledger.result(entry["run"])
        if result is not None and result["outcome"] == FINISHED and result.get("score") is not None:
            key = entry["start"], entry["task"], _settings(entry["overrides"])
            finetuned[key] = {**entry, "score": result["score"]}
    metrics: dict[str, str] = {}
    for run in runs:
        used: dict[str, Record] = {}
        for column in columns if run["status"] == FINISHED else ():
            entries = [
                finetuned.get((run["run"], task, _settings(word_of(*item) for item in flat(keys).items())), {})
                for task, keys in column.tasks.items()
            ]
            if entries and all(entries):
                run[column.name + SCORE] = statistics.mean(entry["score"] for entry in entries)
                used |= {entry["run"]: entry for entry in entries}
                if column.name not in metrics:
                    goals = [goal(ledger.spec(entry["run"])["data"]) for entry in entries]
                    metrics[column.name] = ", ".join(dict.fromkeys(each.metric.main for each in goals))
        if used:
            run["finetuning_flops"] = sum(entry["flops"] for entry in used.values())
            run["finetuning_worker_seconds"] = _effort(ledger, used)["worker_seconds"]
    return tuple(replace(column, metric=metrics.get(column.name)) for column in columns)


def _settings(words: Iterable[str]) -> frozenset[str]:
    """The overrides that the finetunings of all rows and seeds on one task have."""
    return frozenset(word for word in words if word.partition("=")[0].partition(".")[0] not in FREE)


def write_points(results: Results, path: Path) -> None:
    """The runs as CSV: the same bytes for the same runs."""
    columns = [name for name in TYPES if name not in OPTIONAL or any(run[name] is not None for run in results.runs)]
    columns += [column.name + SCORE for column in results.measured]
    of_all: dict[str, Any] = {"studies": results.studies, "settings": results.settings}
    if results.measured:
        of_all["downstream"] = [column.to_json() for column in results.measured]
    texts = {name: json.dumps(value) for name, value in of_all.items()}
    atomic.write(path, csv_text([{**run, **texts} for run in results.runs], [*columns, *texts]))


def read_points(path: Path, table: Table, asked: Sequence[Downstream] = ()) -> Results:
    """The results that `write_points` wrote of this table; a column that the table has too is under its heading, next
    to its published column.
    """
    lines = read_csv(path)
    header = set(lines[0]) if lines else set()
    lists = [name for name in OF_ALL if name in header]
    of_all = {name: _list(lines[0], name, path) for name in lists}
    columns = {column.name: column for column in (*table.downstream, *asked)}
    kept: Sequence[Downstream] = of_all.pop("downstream", ())
    for column in kept:
        shown = columns.setdefault(column.name, column)
        columns[column.name] = replace(column, heading=shown.heading, published=shown.published)
    types = TYPES | {column.name + SCORE: float for column in kept}
    is_other = not set(COLUMNS) <= header <= {*types, *OF_ALL}
    refuse(is_other, "these are not the points of a table", f"its columns are {', '.join(COLUMNS)}", file=path)
    runs, numbers = [], dict[tuple[str, str], int]()
    for number, line in enumerate(lines, 2):
        first = numbers.setdefault((line["row"], line["seed"]), number)
        what = f"the run of {line['row']}, seed {line['seed']}, is in line {first} too"
        refuse(first != number, what, "delete one of them", file=path, line=number, key="run", value=line["run"])
        for name in lists:
            what, fix = "differs from the first line, and all lines must agree", "keep one table a file"
            refuse(line[name] != lines[0][name], what, fix, file=path, line=number, key=name, value=line[name])
        filled = [name for name in types if line.get(name) or name in REQUIRED]
        runs.append(record(**{name: _value(types[name], line, name, path, number) for name in filled}))
    is_foreign = not {run["row"] for run in runs} & {row.name for row in table.rows}
    refuse(is_foreign, f"it has no row of {table.name}", file=path, key="row", value=runs[0]["row"])
    return Results(table, **of_all, runs=tuple(runs), columns=tuple(columns.values()))


def _value(kind: Callable[[str], Any], line: Mapping[str, str], name: str, path: Path, number: int) -> Any:
    """The value of a cell; a number is finite."""
    try:
        value = kind(line[name])
    except ValueError:
        value = math.nan
    is_wrong = not isinstance(value, str) and not math.isfinite(value)
    refuse(is_wrong, "not a number", "correct the cell", file=path, line=number, key=name, value=line[name])
    return value


def _list(line: Mapping[str, str], name: str, path: Path) -> tuple[Any, ...]:
    """The list that a column of all lines holds."""
    try:
        return tuple(map(Downstream.of_json if name == "downstream" else str, json.loads(line[name])))
    except (TypeError, ValueError, KeyError):
        raise ScalingError("not a list in JSON", file=path, line=2, key=name, value=line[name]) from None
