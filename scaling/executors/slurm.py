"""Slurm: jobs on a cluster, submitted as arrays through submitit; small ones are packed, several into one of SLURM's.

SLURM sends a signal before it takes a node back or a job's time is over: the run that is under way is saved, and
submitit puts the job back into the queue.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.base.errors import ScalingError, imported
from scaling.base.signals import Stopped
from scaling.config import schema
from scaling.executors import End, Executor, Handle, Resources, ended

if TYPE_CHECKING:
    from submitit import Job

WARNING = signal.SIGUSR1  # what SLURM sends before a job ends; submitit's own choice, SIGUSR2, ends a run early
SHARED = ("name", "timeout_min", "mem_gb", "nodes", "cpus_per_task", "gpus_per_node", "tasks_per_node")
"""Parameters that submitit names alike for every cluster; all others are sbatch's."""


class Pack:
    """Several jobs, one after another, as one job of SLURM."""

    def __call__(self, calls: Sequence[tuple[Any, ...]], extensions: Sequence[str]) -> list[End]:
        for path in extensions:
            schema.extend(path)
        try:
            return [ended(*call) for call in calls]
        except Stopped as stopped:
            if stopped.signal == WARNING:
                os.kill(os.getpid(), WARNING)  # the run is saved, and submitit handles the signal now: `checkpoint`
            raise

    def checkpoint(self, *arguments: Any) -> Any:
        """The same job again: runs that are done are found in the ledger."""
        return submitit().helpers.DelayedSubmission(self, *arguments)


class Slurm(Executor):
    """At most `workers` jobs of SLURM at a time, one for each kind of resources at least; `parameters` are sbatch's, or
    submitit's (`timeout_min`, `mem_gb`), and come before what the jobs take. `cluster` among them takes another of
    submitit's plugins: `local` starts processes of this machine.
    """

    def __init__(self, workers: int, folder: Path, parameters: Mapping[str, Any]):
        super().__init__(sys.maxsize, str(folder))  # what waits is packed
        os.environ.setdefault("SUBMITIT_PREEMPT_SIGNAL", WARNING.name.removeprefix("SIG"))
        self.workers, self.plugin = workers, parameters.get("cluster", "slurm")
        names = {key: key if key in SHARED or key.startswith("slurm_") else f"slurm_{key}" for key in parameters}
        self.options = {names[key]: value for key, value in parameters.items() if key != "cluster"}
        self.packs: dict[Job[list[End]], list[Handle]] = {}  # those that are not done
        with accepted():
            self._cluster()

    def _cluster(self, **takes: Any) -> Any:
        cluster = submitit().AutoExecutor(self.log, cluster=self.plugin)
        cluster.update_parameters(**{**takes, **self.options})
        return cluster

    def begin(self) -> None:
        """None: they wait to be packed."""

    def wait(self, timeout: float) -> None:
        """Pack the jobs that wait, where there is room."""
        for job in [job for job in self.packs if job.done()]:
            self._end(job, self.packs.pop(job))
        if self.waiting and (free := self.workers - len(self.packs)) > 0:
            alike: dict[Resources, list[Handle]] = {}
            for handle in self.waiting:
                alike.setdefault(handle.resources, []).append(handle)
            for resources, handles in alike.items():
                self._submit(resources, handles, max(1, free * len(handles) // len(self.waiting)))
            self.waiting.clear()
        time.sleep(timeout)

    def _submit(self, resources: Resources, handles: Sequence[Handle], number: int) -> None:
        """Submit handles as an array of at most `number` jobs, which take the same resources."""
        # They come most expensive first, so that each pack has expensive and cheap ones.
        packs = [pack for first in range(number) if (pack := handles[first::number])]
        minutes = None if resources.minutes is None else math.ceil(resources.minutes * len(packs[0]))
        takes = {
            "cpus_per_task": resources.threads,
            "gpus_per_node": math.ceil(resources.gpus) or None,
            "mem_gb": resources.memory,
            "timeout_min": minutes,
        }
        with accepted():
            cluster, jobs = self._cluster(**{key: value for key, value in takes.items() if value is not None}), []
            with cluster.batch():
                for pack in packs:
                    jobs.append(cluster.submit(Pack(), [handle.call for handle in pack], schema.extensions()))
        for job, pack in zip(jobs, packs, strict=True):
            self.packs[job] = list(pack)
            for handle in pack:
                handle.place = job

    def _end(self, job: Job[list[End]], handles: Sequence[Handle]) -> None:
        if (error := job.exception()) is None:
            ends = job.result()
        else:
            first = str(error).strip().partition("\n")[0]
            ends = [End("died", reason=f"job {job.job_id} of SLURM ended with {job.state}: {first}")] * len(handles)
        for handle, end in zip(handles, ends, strict=True):
            handle.end = end

    def printed(self, handle: Handle) -> str:
        job = handle.place
        return "" if job is None else f"{job.stdout() or ''}{job.stderr() or ''}"

    def kill(self, handle: Handle, number: int) -> None:
        """Cancel the pack that holds the job."""
        handle.place.cancel()

    def close(self) -> None:
        for job in self.packs:
            job.cancel(check=False)  # one that cannot be cancelled is no reason to leave the others


def submitit() -> Any:
    """The module, which is an extra."""
    fix = "install it: pip install 'scaling[slurm]'"
    return imported("submitit", "SLURM needs submitit", fix, key="--executor", value="slurm")


@contextmanager
def accepted() -> Iterator[None]:
    """A mistake in what is asked of SLURM, in the words of submitit or of sbatch."""
    try:
        yield
    except (RuntimeError, OSError, NameError, TypeError, ValueError, AssertionError) as error:
        what = " ".join(str(error).split()) or type(error).__name__
        raise ScalingError(f"submitit refuses: {what}", key="--executor", value="slurm", fix="correct --set") from None


def cancel_all(folder: Path) -> int:
    """Cancel the jobs that were submitted in a folder, by whatever command, and are not done; their number."""
    names = sorted(path.name.removesuffix("_submitted.pkl") for path in folder.glob("*_submitted.pkl"))
    jobs = [job for job in (submitit().SlurmJob(folder, name) for name in names) if not job.done(force_check=True)]
    for job in jobs:
        job.cancel(check=False)
    return len(jobs)
