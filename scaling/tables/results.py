"""Results: the planned runs of a table as records, read from a ledger or a file of points, and written.

A record is a dict by the columns of points.csv. A finetuned run has its scores under `NAME_score`, by the names of the
table's columns of scores.
"""

from __future__ import annotations

import json
import logging
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from scaling.base import atomic
from scaling.base.errors import ScalingError
from scaling.base.printing import csv_text
from scaling.config.compose import override
from scaling.ledger import Ledger
from scaling.ledger.run import hardware, spans
from scaling.studies.question import COMPARED, flat, word_of
from scaling.studies.tasks import SCORE
from scaling.tables.table import Downstream, Table, read_csv, same_table
from scaling.training.finetune import goal

logger = logging.getLogger(__name__)

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
OF_ALL = ("studies", "settings")
"""Columns that hold one list in JSON, the same in every line; `downstream` is a third, where there are scores."""
TYPES: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("row", "run", "status"), str),
    **dict.fromkeys(("seed", "steps", "tokens"), int),
    **dict.fromkeys(("early_at", "early", "loss", "steps_per_second", "flops", "worker_seconds"), float),
    **dict.fromkeys(("day", "hardware", "versions"), str),
    **dict.fromkeys(("score", *FINETUNING), float),
}


def record(row: str, seed: int, run: str, status: str = MISSING, **values: Any) -> Record:
    """The record of a planned run; a column without a value is None."""
    return dict.fromkeys(TYPES) | {"row": row, "run": run, "status": status, "seed": seed, **values}


@dataclass(frozen=True)
class Results:
    """The planned runs of `studies` under their common overrides `settings`."""

    studies: tuple[str, ...]
    settings: tuple[str, ...]
    runs: tuple[Record, ...]
    judged_by: Literal["loss", "score"] = "loss"
    downstream: tuple[Downstream, ...] = ()
    """The columns of scores that runs may have."""

    @cached_property
    def rows(self) -> Mapping[str, list[Record]]:
        """The runs of each row, by seed."""
        rows: dict[str, list[Record]] = {}
        for run in sorted(self.runs, key=lambda run: run["seed"]):
            rows.setdefault(run["row"], []).append(run)
        return rows

    def values(self, column: str) -> dict[str, list[Any]]:
        """The values of a column in the finished runs of each row, by seed."""
        return {
            row: [run[column] for run in runs if run["status"] == FINISHED and run.get(column) is not None]
            for row, runs in self.rows.items()
        }

    def with_columns(self, columns: Sequence[Downstream]) -> Results:
        """The results with the columns that were asked for, measured or not."""
        shown = {column.name: column for column in (*columns, *self.downstream)}
        return replace(self, downstream=tuple(shown.values()))

    def final(self) -> dict[str, list[float]]:
        """The losses or scores by which rows are judged."""
        values = self.values(self.judged_by)
        for row, runs in self.values("run").items():
            if self.judged_by == "score" and len(values[row]) < len(runs):
                what = "its runs have no score: they are not of a task"
                raise ScalingError(what, key="table.judged_by", value=row)
        return values

    def early(self) -> dict[str, list[float]]:
        """The early losses, where rows are judged by their loss."""
        return self.values("early") if self.judged_by == "loss" else {}

    @property
    def early_at(self) -> float | None:
        """The fraction of the steps at which early losses were read."""
        fractions = [run["early_at"] for run in self.runs if run["early_at"] is not None]
        return statistics.median(fractions) if fractions else None


def by_key(words: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Overrides by their keys: the word and its value."""
    return {key: (word, value) for word in words for key, value in [override(word)]}


def read_ledger(ledger: Ledger, table: Table, study: str | None = None, columns: Sequence[Downstream] = ()) -> Results:
    """The runs of a study, or of all studies of the table, which must then have the same settings; with their scores in
    the table's columns and in `columns`, as far as these were measured.
    """
    plans = {study: ledger.plan(study)} if study else {}
    finetuned: list[Mapping[str, Any]] = []
    for name in ledger.studies():
        try:
            plan = ledger.plan(name)
        except ScalingError as error:
            logger.warning("study %s is passed over: %s", name, error)
            continue
        if same_table(plan["study"]["base"], table.config):
            if any("task" in run for run in plan["runs"]):
                finetuned += plan["runs"]
            elif not study:
                plans[name] = plan
    settings: set[tuple[str, ...]] = set()
    planned: dict[tuple[str, int], Mapping[str, Any]] = {}
    for name, plan in plans.items():
        for run in plan["runs"]:
            words = by_key(run["overrides"])
            if not {"row", "seed"} <= words.keys():
                if not study:  # a study over the same rows that compares something else
                    continue
                raise ScalingError(f"it is not a study of {table.name}", file=ledger.root, key="study", value=name)
            settings.add(tuple(word for key, (word, _) in words.items() if key not in VARIED and word != COMPARED))
            if planned.setdefault((words["row"][1], words["seed"][1]), run)["run"] != run["run"]:
                settings.add(("a row that has changed since",))
    if len(settings) > 1:
        what, fix = (
            f"the ledger holds {table.name} in several settings",
            f"choose one: --study {', --study '.join(plans)}",
        )
        raise ScalingError(what, file=ledger.root, fix=fix)
    rows = list(dict.fromkeys(row for row, _ in planned))
    if rows and not {row.name for row in table.rows}.intersection(rows):
        raise ScalingError(f"it has no row of {table.name}", file=ledger.root, key="study", value=next(iter(plans)))
    runs = [_record(ledger, *cell, planned[cell]) for cell in sorted(planned, key=lambda cell: rows.index(cell[0]))]
    requested = {column.name: column for column in (*table.downstream, *columns)}
    scored = _add_scores(ledger, finetuned, runs, list(requested.values()))
    return Results(tuple(plans), next(iter(settings), ()), tuple(runs), table.judged_by, tuple(scored))


def _record(ledger: Ledger, row: str, seed: int, planned: Mapping[str, Any]) -> Record:
    run = planned["run"]
    result = ledger.result(run)
    if result is None:
        return record(row, seed, run)
    circumstances = result["circumstances"]
    versions = sorted(circumstances.get("versions", {}).items())
    day, seconds = _effort(ledger, [run])
    ended = record(row, seed, run, result["outcome"], day=day, flops=planned["flops"], worker_seconds=seconds)
    ended |= {
        "hardware": hardware(circumstances),
        "versions": ", ".join(" ".join(version) for version in versions) or None,
    }
    if result["outcome"] != FINISHED:
        return ended
    history, steps = ledger.history(run), result["step"]
    evaluations = [entry for entry in history if entry["kind"] == "evaluate" and 1 < entry["step"] < steps]
    if evaluations:
        early = min(evaluations, key=lambda entry: abs(math.log(entry["step"] / (EARLY * steps))))
        ended |= {"early_at": early["step"] / steps, "early": early["loss"]}
    if speeds := [entry["tokens_per_second"] for entry in history if entry.get("tokens_per_second")]:
        ended["steps_per_second"] = statistics.median(speeds) * steps / result["tokens"]
    return ended | {
        "steps": steps,
        "tokens": result["tokens"],
        "loss": result["loss"],
        "score": result.get("score"),
    }


def _effort(ledger: Ledger, runs: Iterable[str]) -> tuple[str | None, float | None]:
    """The day on which the first of these runs began, and their seconds; None where a run has no attempts."""
    attempts = [spans(ledger.attempts(run)) for run in runs]
    if not all(attempts):
        return None, None
    all_attempts = [each for of_run in attempts for each in of_run]
    return str(min(begin for begin, _ in all_attempts).date()), sum(
        (end - begin).total_seconds() for begin, end in all_attempts
    )


def _add_scores(
    ledger: Ledger, planned: Sequence[Mapping[str, Any]], runs: Sequence[Record], columns: Sequence[Downstream]
) -> list[Downstream]:
    """Add to each finished run its scores in the columns whose tasks it was all finetuned on, by the `planned`
    finetunings. Return the columns that were measured, with their metrics.
    """
    finished = {run["run"]: run for run in runs if run["status"] == FINISHED}
    finetuned: dict[tuple[str, str, frozenset[str]], dict[str, Any]] = {}
    for entry in planned:
        result = ledger.result(entry["run"]) if entry["start"] in finished else None
        if result is not None and result["outcome"] == FINISHED and result.get("score") is not None:
            key = entry["start"], entry["task"], _settings(entry["overrides"])
            finetuned[key] = {**entry, "score": result["score"]}
    metrics: dict[str, str] = {}
    for start, run in finished.items():
        used: dict[str, dict[str, Any]] = {}
        for column in columns:
            words = {
                task: _settings(word_of(*item) for item in flat(tasks).items()) for task, tasks in column.tasks.items()
            }
            entries = [finetuned.get((start, task, tasks)) for task, tasks in words.items()]
            entries = [entry for entry in entries if entry is not None]
            if entries and len(entries) == len(column.tasks):
                run[column.name + SCORE] = statistics.mean(entry["score"] for entry in entries)
                used |= {entry["run"]: entry for entry in entries}
                goals = (goal(ledger.spec(entry["run"])["data"]) for entry in entries)
                if column.name not in metrics:
                    metrics[column.name] = ", ".join(dict.fromkeys(each.metric.main for each in goals))
        if used:
            run["finetuning_flops"] = sum(entry["flops"] for entry in used.values())
            run["finetuning_worker_seconds"] = _effort(ledger, used)[1]
    return [replace(column, metric=metrics[column.name]) for column in columns if column.name in metrics]


def _settings(words: Iterable[str]) -> frozenset[str]:
    """The overrides that the finetunings of all rows and seeds on one task have."""
    return frozenset(word for word in words if word.partition("=")[0].partition(".")[0] not in FREE)


def write_points(results: Results, path: Path) -> None:
    """The runs as CSV: the same bytes for the same runs."""
    columns = [name for name in TYPES if name not in OPTIONAL or any(run[name] is not None for run in results.runs)]
    of_all = {name: json.dumps(getattr(results, name)) for name in OF_ALL}
    if results.downstream:
        columns += [column.name + SCORE for column in results.downstream]
        of_all["downstream"] = json.dumps([column.to_json() for column in results.downstream])
    atomic.write(path, csv_text([{**run, **of_all} for run in results.runs], [*columns, *of_all]))


def number_of(line: Mapping[str, str], name: str, kind: Callable[[str], Any], path: Path, number: int) -> Any:
    """The value of a cell, which is finite."""
    try:
        value = kind(line[name])
        if isinstance(value, str) or math.isfinite(value):
            return value
    except ValueError:
        pass
    raise ScalingError("not a number", file=path, line=number, key=name, value=line[name], fix="correct the cell")


def read_points(path: Path, table: Table) -> Results:
    """The results that `write_points` wrote of this table."""
    lines = read_csv(path)
    header = set(lines[0]) if lines else set()
    of_all = [name for name in (*OF_ALL, "downstream") if name in header]
    parsed = {name: _json(lines[0], name, path) for name in of_all}
    downstream = parsed.pop("downstream", ())
    types = TYPES | {column.name + SCORE: float for column in downstream}
    if not {*TYPES, *OF_ALL} - OPTIONAL <= header <= {*types, *of_all}:
        fix = f"its columns are {', '.join([*TYPES, *OF_ALL])}"
        raise ScalingError("these are not the points of a table", file=path, fix=fix)
    runs, numbers = [], dict[tuple[str, str], int]()
    for number, line in enumerate(lines, 2):
        first = numbers.setdefault((line["row"], line["seed"]), number)
        if first != number:
            what = f"the run of {line['row']}, seed {line['seed']}, is in line {first} too"
            raise ScalingError(what, file=path, line=number, key="run", value=line["run"], fix="delete one of them")
        for name in of_all:
            if line[name] != lines[0][name]:
                what, fix = "differs from the first line, and all lines must agree", "keep one table a file"
                raise ScalingError(what, file=path, line=number, key=name, value=line[name], fix=fix)
        names = [name for name in types if line.get(name) or name in REQUIRED]
        runs.append(record(**{name: number_of(line, name, types[name], path, number) for name in names}))
    if not {run["row"] for run in runs} & {row.name for row in table.rows}:
        raise ScalingError(f"it has no row of {table.name}", file=path, key="row", value=runs[0]["row"])
    return Results(**parsed, runs=tuple(runs), judged_by=table.judged_by, downstream=downstream)


def _json(line: Mapping[str, str], name: str, path: Path) -> tuple[Any, ...]:
    """The list that a column of all lines holds."""
    try:
        return tuple(map(Downstream.of_json if name == "downstream" else str, json.loads(line[name])))
    except (TypeError, ValueError, KeyError):
        raise ScalingError("not a list in JSON", file=path, line=2, key=name, value=line[name]) from None
