"""Scores: what the runs of a table reached on tasks that they were finetuned on, as a ledger holds it."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scaling.errors import ScalingError
from scaling.ledger import Ledger
from scaling.ledger.run import spans
from scaling.studies.question import flat, word_of
from scaling.tables.downstream import Downstream
from scaling.tables.table import same_table
from scaling.training.finetune import goal, name_of

FREE = ("seed", "log")
"""Keys by which the finetunings of one row on one task may differ."""


@dataclass(frozen=True)
class Scores:
    """The scores of a run's finetunings by the names of the columns, and what these runs took."""

    by_column: Mapping[str, float]
    flops: float | None = None
    worker_seconds: float | None = None


@dataclass(frozen=True)
class _Finetuned:
    """A finished finetuning of a run."""

    start: str
    task: str
    words: frozenset[str]
    run: str
    score: float
    flops: float


def is_of_tasks(study: Mapping[str, Any]) -> bool:
    """Whether a planned study is of finetunings."""
    return any("task" in run for run in study["runs"])


def base_of(plan: Mapping[str, Any]) -> str:
    """The config that a planned study varies; empty where the plan names none."""
    return plan.get("study", {}).get("base", "")


def scores(
    ledger: Ledger, config: str, starts: Collection[str], columns: Sequence[Downstream], *, others: bool
) -> tuple[list[Downstream], dict[str, Scores]]:
    """The columns with their metrics, and the scores of each run that was finetuned on all tasks of one. `others` adds
    a column for each task that the ledger holds beyond these.
    """
    done = [each for each in _finetuned(ledger, config) if each.start in starts]
    words = {column: {task: _words(_overrides(keys)) for task, keys in column.tasks.items()} for column in columns}
    words |= _others(ledger, done, columns) if others else {}
    by_key = {(each.start, each.task, each.words): each for each in done}
    scored: dict[str, Scores] = {}
    metrics: dict[str, str] = {}
    for start in starts:
        own: dict[str, float] = {}
        used: dict[str, _Finetuned] = {}
        for column, tasks in words.items():
            runs = [by_key[key] for key in ((start, *item) for item in tasks.items()) if key in by_key]
            if runs and len(runs) == len(tasks):
                own[column.name] = statistics.mean(run.score for run in runs)
                used |= {run.run: run for run in runs}
                metrics[column.name] = metrics.get(column.name) or _metric(ledger, runs)
        if used:
            flops = sum(run.flops for run in used.values())
            scored[start] = Scores(own, flops, _seconds(ledger, used))
    return [replace(column, metric=metrics.get(column.name)) for column in words], scored


def _finetuned(ledger: Ledger, config: str) -> Iterator[_Finetuned]:
    """The finished finetunings of a table's runs, each once."""
    seen: set[str] = set()
    for study in ledger.studies():
        try:
            plan = ledger.plan(study)
        except ScalingError:  # reported where the table's own studies are looked for
            continue
        if not is_of_tasks(plan) or not same_table(base_of(plan), config):
            continue
        for entry in plan["runs"]:
            result = None if entry["run"] in seen else ledger.result(entry["run"])
            if result is not None and result["outcome"] == "finished" and result.get("score") is not None:
                seen.add(entry["run"])
                words = _words(entry["overrides"])
                yield _Finetuned(entry["start"], entry["task"], words, entry["run"], result["score"], entry["flops"])


def _overrides(settings: Mapping[str, Any]) -> list[str]:
    return [word_of(key, value) for key, value in flat(settings).items()]


def _words(overrides: Sequence[str]) -> frozenset[str]:
    """The overrides that the finetunings of all rows and seeds on one task have."""
    keys = {word: word.partition("=")[0] for word in overrides}
    return frozenset(word for word, key in keys.items() if key not in FREE and key.partition(".")[0] not in FREE)


def _others(
    ledger: Ledger, done: Sequence[_Finetuned], columns: Sequence[Downstream]
) -> dict[Downstream, dict[str, frozenset[str]]]:
    """A column for each task that no column has, with the words of its runs."""
    listed = {task for column in columns for task in column.tasks}
    words: dict[str, frozenset[str]] = {}
    for each in done:
        if each.task not in listed and words.setdefault(each.task, each.words) != each.words:
            raise ScalingError(
                f"the ledger holds finetunings on {name_of(each.task)} with several settings",
                file=ledger.root,
                key="--downstream",
                fix="write the task with the keys that are meant under `downstream` of the table",
            )
    return {Downstream(name_of(task), {task: {}}): {task: own} for task, own in words.items()}


def _metric(ledger: Ledger, runs: Sequence[_Finetuned]) -> str:
    """The metric of a column: that of its tasks, or all of theirs."""
    return ", ".join(dict.fromkeys(goal(ledger.spec(run.run)["data"]).metric.main for run in runs))


def _seconds(ledger: Ledger, runs: Collection[str]) -> float | None:
    attempts = [spans(ledger.attempts(run)) for run in runs]
    return sum((end - begin).total_seconds() for each in attempts for begin, end in each) if all(attempts) else None
