"""Results: the runs that a ledger holds of a table, by row."""

from __future__ import annotations

import logging
import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from scaling.config import override
from scaling.errors import ScalingError
from scaling.ledger import Ledger
from scaling.ledger.listing import hardware
from scaling.ledger.run import spans
from scaling.studies.question import COMPARED, flat, word_of
from scaling.tables.downstream import Downstream
from scaling.tables.table import Table, same_table
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


logger = logging.getLogger(__name__)

MISSING, FINISHED = "missing", "finished"  # a run's status before it has ended, and once it came to its end
EARLY = 1 / 8  # of the steps: 65,536 of 524,288
OWN = ("row", "seed", "log.group", "log.name", "log.tags", "runs")  # words in which the runs of one setting differ


@dataclass(frozen=True)
class Runs:
    """A row's planned runs: losses, or scores, of the finished ones by seed, and how many ended otherwise."""

    planned: int
    final: tuple[float, ...]
    early: tuple[float, ...]
    unfinished: Mapping[str, int]  # by what became of them: missing, diverged, pruned
    steps_per_second: float | None


@dataclass(frozen=True)
class Point:
    """One planned run: how it ended, and the results of a finished one; `early` was read at `early_at` of the steps."""

    row: str
    seed: int
    run: str
    status: str = MISSING
    steps: int | None = None
    tokens: int | None = None
    early_at: float | None = None
    early: float | None = None
    loss: float | None = None
    steps_per_second: float | None = None
    day: str | None = None
    flops: float | None = None
    worker_seconds: float | None = None
    """Of all its attempts."""
    hardware: str | None = None
    versions: str | None = None
    score: float | None = None
    """Of a task, by its metric."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Of its finetunings, by the names of downstream columns."""
    finetuning_flops: float | None = None
    finetuning_worker_seconds: float | None = None


@dataclass(frozen=True)
class Results:
    """What `studies` found under their common overrides, a point a planned run."""

    studies: tuple[str, ...]
    settings: tuple[str, ...]
    points: tuple[Point, ...]
    judged_by: Literal["loss", "score"] = "loss"
    downstream: tuple[Downstream, ...] = ()
    """The columns that its points may have scores of."""

    @cached_property
    def rows(self) -> Mapping[str, Runs]:
        """The runs of each row, by seed."""
        by_row: dict[str, list[Point]] = {}
        for point in sorted(self.points, key=lambda point: point.seed):
            by_row.setdefault(point.row, []).append(point)
        return {row: _runs(points, self.judged_by) for row, points in by_row.items()}

    def means(self, of: str) -> dict[str, float]:
        """The mean `early` loss, `loss` or `score` of the finished runs of each row that has some."""
        values: dict[str, list[float]] = {}
        for point in self.points:
            if point.status == FINISHED and getattr(point, of) is not None:
                values.setdefault(point.row, []).append(getattr(point, of))
        return {row: statistics.mean(own) for row, own in values.items()}

    def scores(self, column: Downstream) -> Mapping[str, tuple[float, ...]]:
        """The scores of each row that has some, by seed."""
        by_row: dict[str, list[float]] = {}
        for point in sorted(self.points, key=lambda point: point.seed):
            if column.name in point.scores:
                by_row.setdefault(point.row, []).append(point.scores[column.name])
        return {row: tuple(values) for row, values in by_row.items()}

    def with_columns(self, columns: Sequence[Downstream]) -> Results:
        """The results with these columns too, where nothing of them was measured."""
        names = {column.name for column in self.downstream}
        further = tuple(column for column in columns if column.name not in names)
        return replace(self, downstream=(*self.downstream, *further))

    @property
    def early(self) -> float | None:
        """The fraction of the steps at which early losses were read."""
        shares = [point.early_at for point in self.points if point.early_at is not None]
        return statistics.median(shares) if shares else None


def results(
    ledger: Ledger,
    table: Table,
    study: str | None = None,
    columns: Sequence[Downstream] = (),
    *,
    others: bool = False,
) -> Results:
    """The runs of a study, or of all studies of this table, which must then agree in what they set; their scores are
    those of the table's tasks, of the `columns`, and with `others` of every task that the ledger holds.
    """
    names = [study] if study else [name for name in ledger.studies() if _asks_for(ledger, name, table)]
    settings: set[tuple[str, ...]] = set()
    runs: dict[str, dict[int, Mapping[str, Any]]] = {}
    for name in names:
        for run in ledger.plan(name)["runs"]:
            overrides = by_key(run["overrides"])
            if not {"row", "seed"} <= overrides.keys():
                raise ScalingError(f"it is no study of {table.name}", file=ledger.root, key="study", value=name)
            settings.add(tuple(word for key, (word, _) in overrides.items() if key not in OWN and word not in COMPARED))
            seeds = runs.setdefault(overrides["row"][1], {})
            if seeds.setdefault(overrides["seed"][1], run)["run"] != run["run"]:
                settings.add(("a row that has changed since",))
    if len(settings) > 1:
        raise ScalingError(
            f"the ledger holds {table.name} in several settings",
            file=ledger.root,
            fix="choose one: --study " + ", --study ".join(names),
        )
    if runs and not runs.keys() & {row.name for row in table.rows}:
        raise ScalingError(f"it has no row of {table.name}", file=ledger.root, key="study", value=names[0])
    points = [_point(ledger, row, seed, run) for row, seeds in runs.items() for seed, run in seeds.items()]
    starts = [point.run for point in points if point.status == FINISHED]
    requested = {column.name: column for column in (*table.downstream, *columns)}
    scored, by_run = scores(ledger, table.config, starts, list(requested.values()), others=others)
    points = [_with_scores(point, by_run[point.run]) if point.run in by_run else point for point in points]
    named = {column.name for column in columns}
    shown = tuple(column for column in scored if column.metric is not None or column.name in named)
    return Results(tuple(names), next(iter(settings), ()), tuple(points), table.judged_by, shown)


def by_key(words: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """Overrides by their keys: the word itself and its value."""
    return {key: (word, value) for word in words for key, value in [override(word)]}


def joined(kept: Results, trained: Results) -> Results:
    """What two places hold of one table in one setting. A run that has ended in both is `kept`'s: it came first."""
    ended = [point for point in kept.points if point.status != MISSING]
    points = {(point.row, point.seed): point for point in (*kept.points, *trained.points, *ended)}
    rows = {row: place for place, row in enumerate(dict.fromkeys(row for row, _ in points))}
    scored = {(point.row, point.seed): point for point in trained.points if point.scores}
    points |= {key: _joined(points[key], point) for key, point in scored.items()}
    columns = {column.name: column for column in (*kept.downstream, *trained.downstream)}
    measured = {column.name: column for column in kept.downstream if column.metric is not None}
    return Results(
        tuple(dict.fromkeys((*kept.studies, *trained.studies))),
        trained.settings,
        tuple(points[key] for key in sorted(points, key=lambda key: (rows[key[0]], key[1]))),
        trained.judged_by,
        tuple((columns | measured).values()),
    )


def _joined(point: Point, scored: Point) -> Point:
    """A point with the scores that another of the same run has beyond its own."""
    if scored.scores.keys() <= point.scores.keys():
        return point
    return _with_scores(
        point,
        Scores({**scored.scores, **point.scores}, scored.finetuning_flops, scored.finetuning_worker_seconds),
    )


def _with_scores(point: Point, scores: Scores) -> Point:
    return replace(
        point,
        scores=scores.by_column,
        finetuning_flops=scores.flops,
        finetuning_worker_seconds=scores.worker_seconds,
    )


def _asks_for(ledger: Ledger, study: str, table: Table) -> bool:
    """Whether a study has rows of the table: not finetunings of them. A plan that cannot be read is no fault of other
    studies.
    """
    try:
        plan = ledger.plan(study)
    except ScalingError as error:
        logger.warning("study %s is passed over: %s", study, error)
        return False
    return not is_of_tasks(plan) and same_table(base_of(plan), table.config)


def _point(ledger: Ledger, row: str, seed: int, planned: Mapping[str, Any]) -> Point:
    run = planned["run"]
    result = ledger.result(run)
    if result is None:
        return Point(row, seed, run)
    attempts, circumstances = spans(ledger.attempts(run)), result["circumstances"]
    ended = Point(
        row,
        seed,
        run,
        result["outcome"],
        day=str(min(begin for begin, _ in attempts).date()) if attempts else None,
        flops=planned["flops"],
        worker_seconds=sum((end - begin).total_seconds() for begin, end in attempts) if attempts else None,
        hardware=hardware(circumstances),
        versions=", ".join(" ".join(version) for version in sorted(circumstances.get("versions", {}).items())) or None,
    )
    if ended.status != FINISHED:
        return ended
    history, steps = ledger.history(run), result["step"]
    looks = [entry for entry in history if entry["kind"] == "evaluate" and entry["step"] < steps]
    early = min(looks, key=lambda entry: abs(math.log(entry["step"] / (EARLY * steps))), default=None)
    speeds = [entry["tokens_per_second"] for entry in history if entry.get("tokens_per_second")]
    return replace(
        ended,
        steps=steps,
        tokens=result["tokens"],
        early_at=None if early is None else early["step"] / steps,
        early=None if early is None else early["loss"],
        loss=result["loss"],
        score=result.get("score"),
        steps_per_second=statistics.median(speeds) * steps / result["tokens"] if speeds else None,
    )


def _runs(points: Sequence[Point], judged_by: Literal["loss", "score"]) -> Runs:
    finished = [point for point in points if point.status == FINISHED]
    values = [getattr(point, judged_by) for point in finished]
    if judged_by == "score" and None in values:
        row = finished[values.index(None)].row
        raise ScalingError("its runs have no score: they are not of a task", key="table.judged_by", value=row)
    speeds = [point.steps_per_second for point in finished if point.steps_per_second]
    return Runs(
        planned=len(points),
        final=tuple(value for value in values if value is not None),
        early=tuple(point.early for point in finished if point.early is not None and judged_by == "loss"),
        unfinished=Counter(point.status for point in points if point.status != FINISHED),
        steps_per_second=statistics.median(speeds) if speeds else None,
    )
