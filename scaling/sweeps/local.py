"""Local: a sweep with no server. The command draws the cells, and an executor's processes train them.

The ledger holds the runs: the same command again finds what is done and goes on with the rest.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from scaling.base import atomic
from scaling.base.errors import DISK, ScalingError
from scaling.base.printing import csv_rows
from scaling.base.signals import PRUNE
from scaling.executors import End, Executor, Resources
from scaling.executors.scheduler import ExecutorName, Job, Scheduler, started
from scaling.ledger import Ledger
from scaling.ledger.document import disk
from scaling.ledger.identity import RUN_ID
from scaling.studies.findings import row, write_points
from scaling.studies.progress import RETRIES
from scaling.sweeps.cells import experiment, name, point_columns, searched
from scaling.sweeps.file import Cell, Hyperband, Metric, Sweep
from scaling.training.machine import cores
from scaling.training.point import point

PATIENCE = 5.0  # seconds until a run that another command has is submitted again


@dataclass(frozen=True)
class Report:
    """The result of a cell: the run, its outcome, the metric's values (lower better), and its point."""

    run: str | None
    outcome: str
    loss: float | None = None
    values: list[float] = field(default_factory=list)
    point: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None


@dataclass
class Trial:
    """A cell that was drawn, and what came of it."""

    number: int
    cell: Cell
    report: Report | None = None
    failures: int = 0

    @property
    def is_missing(self) -> bool:
        """Whether it has no result."""
        return self.report is None or self.report.outcome in ("failed", "refused")

    def __str__(self) -> str:
        if self.report is None:
            return f"{name(self.cell)}  not trained"
        loss = "" if self.report.loss is None else f", loss {self.report.loss:.4f}"
        why = f": {self.report.reason}" if self.report.reason and self.is_missing else ""
        return f"{name(self.cell)}  {self.report.outcome}{loss}{why}"


def run(
    sweep: Sweep,
    folder: Path,
    words: Sequence[str],
    workers: int | None,
    announce: Callable[[object], None],
    executor: ExecutorName = "local",
    parameters: Mapping[str, Any] | None = None,
) -> tuple[list[Trial], list[dict[str, Any]], Path]:
    """The trials of a sweep that is trained by `workers`, the rows of its points.csv, and the folder of that file, in
    the `folder` of the ledger; `words` hold for every run.
    """
    gpus = torch.cuda.device_count()
    slots = min(number for number in (workers or gpus or cores(), sweep.size) if number)
    folder = folder / "sweeps" / f"{sweep.name}-{sweep.identity(words)[:8]}"
    with started(executor, folder, slots, gpus, workers, parameters or {}) as jobs:
        cells = Cells(jobs, sweep, words, Resources(gpus=min(1.0, gpus / slots)), folder, announce)
        cells.work()
    if cells.disk is not None:
        raise ScalingError(cells.disk, code=DISK)
    by_run: dict[str, dict[str, Any]] = {}  # cells that are one run are one row
    for trial in cells.trials:
        if (report := trial.report) is not None and report.run is not None:
            result = {"outcome": report.outcome, "loss": report.loss}
            line = row(report.run, name(trial.cell), result, point_columns(trial.cell, report.point))
            by_run.setdefault(report.run, line)
    table = sorted(by_run.values(), key=lambda row: (row["name"], row["run"]))
    drawn, file = {name(trial.cell) for trial in cells.trials}, folder / "points.csv"
    earlier = csv_rows(file.read_text(encoding="utf-8")) if file.exists() else []
    others = [line for line in earlier if line.get("name") not in drawn]  # of a command with a larger count
    if table:
        write_points(sorted([*table, *others], key=lambda row: (row["name"], row["run"])), file)
    return cells.trials, table, folder


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
        self.search = searched(sweep, folder)
        self.trials: list[Trial] = []
        self.again: list[Job] = []

    def ready(self) -> Iterator[Job]:
        for job in [job for job in self.again if job.is_due]:
            self.again.remove(job)
            if self.has_given_up(job):
                self._conclude(job.subject, Report(None, "failed", reason=job.troubles[-1]))
            else:
                yield job
        while not self.has_stopped and (cell := self.search.draw()) is not None:
            label = name(cell)
            log = {"group": self.sweep.name, "name": label, "tags": [f"sweep={self.sweep.name}"]}
            named = [f"log.{key}={json.dumps(value, ensure_ascii=False)}" for key, value in log.items()]
            words = [*self.sweep.overrides(cell), *named, *self.words]
            call = train_cell, words, self.sweep.metric, self.sweep.hyperband, self.folder / "values"
            self.trials.append(Trial(len(self.trials), cell))
            yield Job(label, call, self.resources, self.trials[-1])

    def take(self, job: Job, end: End) -> bool:
        trial, report = job.subject, end.value
        if report is None:
            self.again.append(job)
            return False
        trial.failures += report.outcome == "failed"
        if report.outcome == "busy" or (report.outcome == "failed" and trial.failures <= RETRIES):
            job.postpone(PATIENCE if report.outcome == "busy" else 0.0)
            self.again.append(job)
        else:
            self._conclude(trial, report)
        return True

    def is_done(self) -> bool:
        return not self.again

    def _conclude(self, trial: Trial, report: Report) -> None:
        trial.report = report
        self.search.hear(trial.number, report.outcome, report.values[-1] if report.values else None)
        done = sum(each.report is not None for each in self.trials)
        self.announce(f"{done} of {self.sweep.size}  {trial}")


def train_cell(words: list[str], metric: Metric | None, hyperband: Hyperband | None, folder: Path) -> Report:
    """Train a cell, where an executor calls this. Hyperband compares it with the values of others in `folder`."""
    from scaling.training.run import train_run

    try:
        assembled = experiment(words)
        ledger = Ledger.create(assembled.config["runs"])
        run = ledger.add(assembled.spec)
    except ScalingError as error:
        if error.code == DISK:
            raise
        return Report(None, "refused", reason=str(error))
    followed = [] if metric is None or hyperband is None else [_follow(metric, hyperband, folder, ledger, run)]
    described = point(assembled)
    try:
        result = ledger.result(run) or train_run(assembled, ledger, listeners=followed)
    except Exception as error:
        # The attempt has recorded the reason; the sweep goes on with the other runs.
        if isinstance(error, ScalingError) and error.code == DISK:
            raise
        traceback.print_exception(error, file=sys.stderr)
        return Report(run, "failed", point=described, reason=" ".join(str(error).split())[:300])
    if result is None:
        return Report(run, "busy", point=described, reason="another command is at it")
    values = [] if metric is None else metric.of(ledger.history(run))
    if followed:
        _publish(folder / run, values)
    return Report(run, result["outcome"], result["loss"], values, described, result.get("reason"))


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
