"""Local: a sweep with no server. One controller draws the cells, warm workers forked from it train them.

Torch and Lightning are imported once, before the workers are forked, so a run costs its training and some hundredths
of a second. The ledger holds the runs: the same command again finds what is done and goes on with the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from scaling import parent
from scaling.errors import DISK, ScalingError
from scaling.studies.findings import write_points
from scaling.sweeps.check import Looks, alone, check
from scaling.sweeps.file import Cell, Sweep
from scaling.sweeps.search import Search, searched
from scaling.sweeps.table import name, ordered, row
from scaling.sweeps.worker import DISK_FULL, Report, heard, say, serve
from scaling.training.signals import Stopped, deferred, forked

LOOK = 0.5  # seconds between looks at runs that others have
RETRIES = 1  # of a cell whose worker died or whose run failed; a divergence is a result
PATIENCE = 5.0  # seconds until a run that another worker has is asked for again
LEAVING = 60.0  # seconds in which a worker may save its run and leave


@dataclass
class Trial:
    """A cell that was drawn, and what came of it."""

    number: int
    cell: Cell
    report: Report | None = None
    values: list[float] = field(default_factory=list)  # of the metric so far, lower better
    failures: int = 0
    not_before: float = 0.0

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


@dataclass
class Trials:
    """The trials of one sweep: those drawn, those to be tried again, and what the search hears of them."""

    sweep: Sweep
    search: Search
    tell: Callable[[Trial], None]
    drawn: list[Trial] = field(default_factory=list)
    again: list[Trial] = field(default_factory=list)

    def following(self) -> Trial | None:
        """What to train next, None where there is nothing at the moment."""
        ready = next((trial for trial in self.again if trial.not_before <= time.monotonic()), None)
        if ready is not None:
            self.again.remove(ready)
            return ready
        cell = self.search.draw()
        if cell is None:
            return None
        self.drawn.append(Trial(len(self.drawn), cell))
        return self.drawn[-1]

    def ended(self, trial: Trial, report: Report) -> None:
        """Take a report for the trial's end, or put the trial back."""
        trial.failures += report.outcome == "failed"
        if report.outcome == "busy" or (report.outcome == "failed" and trial.failures <= RETRIES):
            trial.not_before = time.monotonic() + (PATIENCE if report.outcome == "busy" else 0.0)
            self.again.append(trial)
            return
        trial.report, trial.values = report, report.values
        self.search.hear(trial.number, report.outcome, report.values[-1] if report.values else None)
        self.tell(trial)

    def stops(self, trial: Trial) -> bool:
        """Whether hyperband stops a trial with the values it has now."""
        others = [other.values for other in self.drawn if other is not trial and other.values]
        return self.sweep.hyperband is not None and self.sweep.hyperband.stops(trial.values, others)


@dataclass
class Worker:
    """A forked process, the place it trains at (a device's number, None for a core), and what it is at."""

    process: int
    pipe: Connection
    place: str | None
    trial: Trial | None = None


def places() -> list[str | None]:
    """Where workers train: on each of this machine's GPUs, else on each core that this process may use."""
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # counting devices must not touch one before the fork
    count = torch.cuda.device_count()
    if not count:
        return [None] * len(os.sched_getaffinity(0))
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return list(named.split(",")) if named else [str(number) for number in range(count)]


@contextmanager
def workers(sweep: Sweep, at: Sequence[str | None], log: Path) -> Iterator[list[Worker]]:
    """The workers, forked now: before this process has touched a device, which a fork would not survive."""
    log.parent.mkdir(parents=True, exist_ok=True)
    crew: list[Worker] = []
    try:
        for place in at:
            _add(crew, sweep, place, log)
        yield crew
    finally:
        with deferred():
            _stop(crew)


def run(
    sweep: Sweep, looks: Looks, words: Sequence[str], count: int | None, tell: Callable[[object], None]
) -> tuple[list[Trial], list[dict[str, Any]], Path]:
    """The trials of a sweep that is trained on this machine by `count` workers, the rows of its points.csv, and the
    folder of that file; `words` hold for every run.
    """

    def ended(trial: Trial) -> None:
        tell(f"{sum(each.report is not None for each in trials.drawn)} of {sweep.size}  {trial}")

    at = places()
    at = at if count is None else [at[number % len(at)] for number in range(count)]
    folder = Path(looks.first["runs"]) / "sweeps" / f"{sweep.name}-{sweep.identity(words)[:8]}"
    log = folder / "workers.log"
    with workers(sweep, at[: sweep.size or len(at)], log) as crew:
        outlook = check(sweep, looks)
        alone(sweep, looks.first)
        tell(outlook.described(sweep))
        trials = Trials(sweep, searched(sweep, folder), ended)
        _train(trials, words, crew, log)
    table = _rows(trials.drawn)
    if table:
        write_points(table, folder / "points.csv")
    return trials.drawn, table, folder


def _rows(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    """A row a run that was trained; cells that are one run are one row."""
    by_run: dict[str, dict[str, Any]] = {}
    for trial in trials:
        report = trial.report
        if report is not None and report.run is not None:
            line = row(report.run, name(trial.cell), report.outcome, report.loss, trial.cell, report.point)
            by_run.setdefault(report.run, line)
    return ordered(by_run.values())


def _train(trials: Trials, words: Sequence[str], crew: list[Worker], log: Path) -> None:
    while True:
        for worker in crew:
            if worker.trial is None:
                _hand(worker, trials, words)
        busy = {worker.pipe: worker for worker in crew if worker.trial is not None}
        if not busy and not trials.again:
            return
        if not busy:
            time.sleep(LOOK)
            continue
        for pipe in wait(list(busy), LOOK if trials.again else None):
            _hear(busy[pipe], trials, crew, log)  # type: ignore[index]


def _stop(crew: Sequence[Worker]) -> None:
    """A worker that is at a run saves it at its next step; one that is not finds its pipe closed."""
    for worker in crew:
        if worker.trial is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.process, signal.SIGTERM)
        worker.pipe.close()
    until = time.monotonic() + LEAVING
    for worker in crew:
        with contextlib.suppress(ChildProcessError):
            if not _ended(worker.process, until):
                os.kill(worker.process, signal.SIGKILL)
                os.waitpid(worker.process, 0)


def _ended(process: int, until: float) -> bool:
    """Whether a process ends until then."""
    while not os.waitpid(process, os.WNOHANG)[0]:
        if time.monotonic() >= until:
            return False
        time.sleep(0.01)
    return True


def _hand(worker: Worker, trials: Trials, words: Sequence[str]) -> None:
    trial = worker.trial = trials.following()
    if trial is not None:
        trial.values = []
        sweep = trials.sweep.name
        log = {"group": sweep, "name": name(trial.cell), "tags": [f"sweep={sweep}"]}
        named = [f"log.{key}={json.dumps(value)}" for key, value in log.items()]
        say(worker.pipe, [*trials.sweep.overrides(trial.cell), *named, *words])


def _hear(worker: Worker, trials: Trials, crew: list[Worker], log: Path) -> None:
    trial = worker.trial
    assert trial is not None
    try:
        message = heard(worker.pipe)
    except (EOFError, ConnectionResetError):
        trials.ended(trial, Report(None, "failed", reason="its worker died"))
        _replace(crew, worker, trials.sweep, log)
        return
    if "values" in message:
        trial.values = message["values"]
        say(worker.pipe, trials.stops(trial))
    else:
        worker.trial = None
        report = Report(**message["report"])
        if report.outcome == DISK_FULL:
            raise ScalingError(report.reason or "the disk is full", code=DISK)
        trials.ended(trial, report)


def _replace(crew: list[Worker], dead: Worker, sweep: Sweep, log: Path) -> None:
    """Another worker in the place of one that died, unless this process has touched a device meanwhile."""
    dead.pipe.close()
    os.waitpid(dead.process, 0)
    crew.remove(dead)
    if not torch.cuda.is_initialized():
        _add(crew, sweep, dead.place, log)
    elif not crew:
        raise RuntimeError(f"every worker has died; {log} shows why")


def _add(crew: list[Worker], sweep: Sweep, place: str | None, log: Path) -> None:
    """One more worker, or none: a signal comes before it or after it."""
    with deferred():
        crew.append(_forked(sweep, place, log, crew))


def _forked(sweep: Sweep, place: str | None, log: Path, crew: Sequence[Worker]) -> Worker:
    ours, theirs = Pipe()
    controller = os.getpid()
    process = os.fork()
    if process:
        theirs.close()
        return Worker(process, ours, place)
    code = 1
    try:
        parent.follow(controller)
        os.setpgrp()  # the terminal's signals reach the controller, which hands them on
        forked()
        # Pipes of others that stay open here would never close there.
        for pipe in (ours, *(worker.pipe for worker in crew)):
            pipe.close()
        log_file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        for descriptor in (sys.stdout.fileno(), sys.stderr.fileno()):
            os.dup2(log_file, descriptor)
        if place is None:
            torch.set_num_threads(1)
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = place
        serve(theirs, sweep.metric, sweep.hyperband is not None)
        code = 0
    except Stopped as stopped:
        code = stopped.code
    finally:
        os._exit(code)
