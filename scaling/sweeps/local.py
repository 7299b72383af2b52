"""Local: a sweep with no server. The command draws the cells, and an executor's processes train them.

The ledger holds the runs: the same command again finds what is done and goes on with the rest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from scaling.base import atomic
from scaling.base.errors import DISK, ScalingError, disk
from scaling.base.printing import csv_rows
from scaling.base.signals import PRUNE
from scaling.executors import End, Executor, Resources
from scaling.executors.scheduler import ExecutorName, Job, Scheduler, started
from scaling.ledger import Ledger
from scaling.ledger.identity import RUN_ID
from scaling.studies.findings import row, write_points
from scaling.studies.progress import RETRIES
from scaling.sweeps.cells import Bayes, experiment, listed, name, point_columns
from scaling.sweeps.file import Cell, Hyperband, Metric, Sweep
from scaling.training.machine import cores
from scaling.training.point import point

PATIENCE = 5.0  # seconds until a run that another command has is submitted again


@dataclass(frozen=True)
class Report:
    """The result of a cell: the run, its outcome, the metric's values (lower better), and its point."""

    run: str
    outcome: str
    loss: float | None
    values: list[float]
    point: Mapping[str, Any]


@dataclass
class Trial:
    """A cell that was drawn, and its result, or the `reason` why it has none."""

    number: int
    cell: Cell
    report: Report | None = None
    reason: str | None = None
    failures: int = 0

    @property
    def outcome(self) -> str:
        return self.report.outcome if self.report else "failed" if self.reason else "not trained"

    @property
    def value(self) -> float | None:
        """The last value of the metric, lower better."""
        return self.report.values[-1] if self.report and self.report.values else None

    def __str__(self) -> str:
        loss = f", loss {self.report.loss:.4f}" if self.report and self.report.loss is not None else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{name(self.cell)}  {self.outcome}{loss}{why}"


def run(
    sweep: Sweep,
    folder: Path,
    words: Sequence[str],
    workers: int | None,
    announce: Callable[[object], None],
    executor: ExecutorName = "local",
    parameters: Mapping[str, Any] = {},
) -> tuple[list[Trial], list[dict[str, Any]], Path]:
    """The trials of a sweep that is trained by `workers`, the rows of its points.csv, and the folder of that file, in
    the `folder` of the ledger; `words` hold for every run.
    """
    gpus = torch.cuda.device_count()
    slots = min(number for number in (workers or gpus or cores(), sweep.size) if number)
    folder = folder / "sweeps" / f"{sweep.name}-{sweep.identity(words)[:8]}"
    with started(executor, folder, slots, gpus, workers, parameters) as jobs:
        cells = Cells(jobs, sweep, words, Resources(gpus=min(1.0, gpus / slots)), folder, announce)
        cells.work()
    if cells.disk is not None:
        raise ScalingError(cells.disk, code=DISK)
    file = folder / "points.csv"
    earlier = csv_rows(file.read_text(encoding="utf-8")) if file.exists() else []
    drawn = {name(trial.cell) for trial in cells.trials}
    others = [line for line in earlier if line.get("name") not in drawn]  # of a command with a larger count
    rows = {}  # cells that are one run are one row
    for trial in cells.trials:
        if (found := trial.report) is not None and found.run not in rows:
            result = {"outcome": found.outcome, "loss": found.loss}
            rows[found.run] = row(found.run, name(trial.cell), result, point_columns(trial.cell, found.point))
    table = sorted(rows.values(), key=_place)
    if table:
        write_points(sorted([*table, *others], key=_place), file)
    return cells.trials, table, folder


def _place(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["name"], row["run"]


class Cells(Scheduler):
    """The cells of a sweep as jobs. One whose run failed, or that another command has, is tried again."""

    def __init__(
        self,
        executor: Executor,
        sweep: Sweep,
        words: Sequence[str],
        resources: Resources,
        folder: Path,
        announce: Callable[[object], None],
    ):
        super().__init__(executor)
        self.sweep, self.words, self.resources, self.folder, self.announce = sweep, words, resources, folder, announce
        self.bayes = Bayes(sweep, folder / "drawn.jsonl") if sweep.method == "bayes" else None
        self.cells = listed(sweep) if self.bayes is None else self.bayes.cells()
        self.trials: list[Trial] = []

    def ready(self) -> Iterator[Job]:
        for job in super().ready():
            if self.has_given_up(job):
                self._conclude(job.subject, None, job.troubles[-1])
            else:
                yield job
        while not self.has_stopped and (cell := next(self.cells, None)) is not None:
            label = name(cell)
            log = {"group": self.sweep.name, "name": label, "tags": [f"sweep={self.sweep.name}"]}
            named = [f"log.{key}={json.dumps(value, ensure_ascii=False)}" for key, value in log.items()]
            words = [*self.sweep.overrides(cell), *named, *self.words]
            call = train_cell, words, self.sweep.metric, self.sweep.hyperband, self.folder / "values"
            self.trials.append(Trial(len(self.trials), cell))
            yield Job(label, call, self.resources, self.trials[-1])

    def take(self, job: Job, end: End) -> bool:
        trial, is_busy = job.subject, end.status == "done" and end.value is None
        trial.failures += end.status == "failed"
        if end.value is not None or trial.failures > RETRIES:
            self._conclude(trial, end.value, end.reason)
        else:
            job.postpone(PATIENCE if is_busy else 0.0)
            self.queue.append(job)
        return end.status in ("done", "failed")

    def _conclude(self, trial: Trial, report: Report | None, reason: str | None) -> None:
        trial.report, trial.reason = report, reason
        if self.bayes is not None:
            self.bayes.hear(trial.number, trial.outcome, trial.value)
        done = sum(each.outcome != "not trained" for each in self.trials)
        self.announce(f"{done} of {self.sweep.size}  {trial}")


def train_cell(words: list[str], metric: Metric | None, hyperband: Hyperband | None, folder: Path) -> Report | None:
    """Train a cell, where an executor calls this; None where another command is at it. Hyperband compares it with the
    values of others in `folder`.
    """
    from scaling.training.run import train_run

    assembled = experiment(words)
    ledger = Ledger.create(assembled.config["runs"])
    run = ledger.add(assembled.spec)
    followed = [] if metric is None or hyperband is None else [_follow(metric, hyperband, folder, ledger, run)]
    described = point(assembled)
    result = ledger.result(run) or train_run(assembled, ledger, listeners=followed)
    if result is None:
        return None
    values = [] if metric is None else metric.of(ledger.history(run))
    if followed:
        _publish(folder / run, values)
    return Report(run, result["outcome"], result["loss"], values, described)


def _follow(metric: Metric, hyperband: Hyperband, folder: Path, ledger: Ledger, run: str) -> Callable[[Any], None]:
    """A listener to a run's log, which stops the run where hyperband does with the values so far."""
    steps = {entry["step"]: value for entry in ledger.history(run) for value in metric.of([entry])}

    def follow(entry: Mapping[str, Any]) -> None:
        for value in metric.of([entry]):
            steps[entry["step"]] = value
            values = [steps[step] for step in sorted(steps) if step <= entry["step"]]
            _publish(folder / run, values)
            others = [other for other in folder.iterdir() if RUN_ID.fullmatch(other.name) and other.name != run]
            if hyperband.stops(values, [atomic.read_json(other) for other in others]):
                os.kill(os.getpid(), PRUNE)

    return follow


def _publish(file: Path, values: list[float]) -> None:
    with disk("cannot write the values of a run"):
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_json(file, values)
