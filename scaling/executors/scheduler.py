"""Scheduler: jobs of a study, a table or a sweep on an executor, until none is left.

A subclass of `Scheduler` names the jobs that can start and records how each ended. A job that ends without a record,
because its process died or its function was refused, is tried again, later each time. Jobs that keep ending so, one
after another, are not at fault themselves: the scheduler then gives up those that are left. A full disk ends all.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from scaling.base.errors import DISK, ScalingError, refuse
from scaling.base.signals import deferred
from scaling.base.standard_error import say
from scaling.executors import ONE_THREAD, End, Executor, Handle, Resources
from scaling.executors.local import Local
from scaling.executors.ray import Ray
from scaling.executors.slurm import Slurm

TRIES = 3  # of a job that ends without a record
IN_A_ROW = 10  # such ends, each of a job that started after the one before, after which all is given up
WAIT = 1.0  # seconds until such a job is tried again, twice as long each time
PAUSE = 0.2  # seconds between looks at jobs that wait for another job or another command

ExecutorName = Literal["local", "slurm", "ray"]


@dataclass(eq=False)
class Job:
    """A call of a function, for the `subject` that a scheduler knows it by. `troubles` are the reasons of tries that
    ended without a record.
    """

    name: str
    call: tuple[Any, ...]
    resources: Resources = ONE_THREAD
    subject: Any = None
    troubles: list[str] = field(default_factory=list)
    not_before: float = 0.0

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self.not_before

    def postpone(self, seconds: float) -> None:
        self.not_before = time.monotonic() + seconds


class Scheduler(ABC):
    """Jobs on an executor, until none is left. `queue` has those that wait, at first or again; `running` has the handle
    of each of the others, and `in_a_row` when it started.
    """

    def __init__(self, executor: Executor, jobs: Iterable[Job] = ()):
        self.executor, self.queue = executor, list(jobs)
        self.running: dict[Job, tuple[Handle, int]] = {}
        self.in_a_row = 0
        self.disk: str | None = None  # why the disk ends everything

    def ready(self) -> Iterator[Job]:
        """The jobs that can start now, the first first; each is asked for when there is room for it."""
        for job in [job for job in self.queue if job.is_due]:
            self.queue.remove(job)
            yield job

    @abstractmethod
    def take(self, job: Job, end: End) -> bool:
        """Take the end of a job; whether it is on record, so that the scheduler has no part in what follows."""

    def is_done(self) -> bool:
        """Whether no job is left to start."""
        return not self.queue

    def look(self) -> float:
        """What is done between two waits; the seconds that the next may take."""
        return PAUSE

    def work(self) -> None:
        """Do the jobs."""
        while self.disk is None:
            ready = self.ready()
            while len(self.running) < self.executor.slots and (job := next(ready, None)) is not None:
                handle = self.executor.submit(job.name, *job.call, resources=job.resources)
                self.running[job] = handle, self.in_a_row
            if not self.running and self.is_done():
                break
            self.executor.wait(self.look())
            for job, (handle, before) in list(self.running.items()):
                if handle.end is not None:
                    del self.running[job]
                    self._ended(job, handle.end, before)

    def _ended(self, job: Job, end: End, before: int) -> None:
        if end.code == DISK:
            self.disk = end.reason or "the disk is full"
        elif self.take(job, end):
            self.in_a_row = 0
        else:
            job.troubles.append(end.reason or end.status)
            self.in_a_row = max(self.in_a_row, before + 1)
            job.postpone(WAIT * 2 ** (len(job.troubles) - 1))
            say(f"{job.name}: {job.troubles[-1]}; {'given up' if self.has_given_up(job) else 'it is tried again'}")

    def has_given_up(self, job: Job) -> bool:
        return len(job.troubles) >= TRIES or self.has_stopped

    @property
    def has_stopped(self) -> bool:
        """Whether so many jobs ended without a record that no further one is worth a try."""
        return self.in_a_row >= IN_A_ROW


class All(Scheduler):
    """Jobs that all have to be done: the first that fails, or whose process dies too often, is an error."""

    def take(self, job: Job, end: End) -> bool:
        if end.status == "done":
            say(f"{job.name} is done, {len(self.queue) + len(self.running)} are left")
        elif end.status == "failed":
            raise ScalingError(end.reason or f"{job.name} failed", code=end.code)
        elif len(job.troubles) + 1 >= TRIES:
            fix = f"see {self.executor.log}; the same command goes on"
            raise ScalingError(f"{job.name}: {end.reason or end.status}", fix=fix, code=end.code)
        else:
            self.queue.append(job)
        return end.status == "done"


def finish(executor: Executor, jobs: Iterable[Job]) -> None:
    """Do jobs that all have to be done; an error where one is not."""
    scheduler = All(executor, jobs)
    scheduler.work()
    if scheduler.disk is not None:
        raise ScalingError(scheduler.disk, code=DISK)


@contextmanager
def started(
    name: ExecutorName, folder: Path, slots: int, gpus: int, workers: int | None, parameters: Mapping[str, Any]
) -> Iterator[Executor]:
    """An executor whose output is in `folder`. On this machine it has `slots` jobs at a time and its `gpus`; `workers`
    and `parameters` are those of SLURM or Ray.
    """
    what = "it applies to SLURM or Ray, and jobs run on this machine"
    refuse(name == "local" and parameters, what, "add --executor slurm or ray", key="--set", value=dict(parameters))
    if name == "slurm":
        executor: Executor = Slurm(workers or 1, folder / "slurm", parameters)
    elif name == "ray":
        executor = Ray(workers, parameters)
    else:
        executor = Local(slots, folder / "workers.log", gpus)
    try:
        yield executor
    finally:
        with deferred():
            executor.close()
