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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.base.errors import ScalingError
from scaling.base.signals import Stopped
from scaling.config import schema
from scaling.executors import ONE_THREAD, End, Handle, Resources, Status, ended

if TYPE_CHECKING:
    from submitit import Job

WARNING = signal.SIGUSR1  # what SLURM sends before a job ends; submitit's own choice, SIGUSR2, ends a run early
SHARED = ("name", "timeout_min", "mem_gb", "nodes", "cpus_per_task", "gpus_per_node", "tasks_per_node")
"""Parameters that submitit names alike for every cluster; all others are sbatch's."""
NEEDED, INSTALL = "SLURM needs submitit", "install it: pip install 'scaling[slurm]'"


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
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, *arguments)


class SlurmHandle(Handle):
    """A job that waits to be packed, or the place of one in its pack."""

    executor: Slurm

    def __init__(self, executor: Slurm, name: str, call: tuple[Any, ...], resources: Resources):
        super().__init__(executor, name)
        self.call, self.resources = call, resources
        self.job: Job[list[End]] | None = None
        self.place = 0

    def status(self) -> Status:
        job = self.job
        if self.end is None and job is not None and job.done():
            ends = self.executor.ends(job)
            self.end = ends if isinstance(ends, End) else ends[self.place]
        return self.end.status if self.end is not None else "waiting" if job is None else "running"

    def cancel(self, number: int = signal.SIGTERM) -> None:
        """Cancel the pack that holds the job."""
        if self.job is not None and not self.job.done():
            self.job.cancel()
        self.end = self.end or End("cancelled")


class Slurm:
    """At most `workers` jobs of SLURM at a time, one for each kind of resources at least; `parameters` are sbatch's, or
    submitit's (`timeout_min`, `mem_gb`), and come before what the jobs take. `cluster` among them takes another of
    submitit's plugins: `local` starts processes of this machine.
    """

    slots = sys.maxsize  # what waits is packed

    def __init__(self, workers: int, folder: Path, parameters: Mapping[str, Any]):
        os.environ.setdefault("SUBMITIT_PREEMPT_SIGNAL", WARNING.name.removeprefix("SIG"))
        try:
            import submitit
        except ImportError:
            raise ScalingError(NEEDED, key="--executor", value="slurm", fix=INSTALL) from None
        names = {key: key if key in SHARED or key.startswith("slurm_") else f"slurm_{key}" for key in parameters}
        options = {names[key]: value for key, value in parameters.items() if key != "cluster"}

        def cluster(**takes: Any) -> submitit.AutoExecutor:
            opened = submitit.AutoExecutor(folder, cluster=parameters.get("cluster", "slurm"))
            opened.update_parameters(**{**takes, **options})
            return opened

        self.cluster = cluster
        try:
            cluster()
        except (RuntimeError, NameError, TypeError, ValueError, AssertionError) as error:
            raise _refused(error) from None
        self.workers, self.log = workers, str(folder)
        self.waiting: list[SlurmHandle] = []
        self.jobs: list[Job[list[End]]] = []
        self.known: dict[str, list[End] | End] = {}  # of jobs that are done

    def ends(self, job: Job[list[End]]) -> list[End] | End:
        """The ends of a pack that is done, or the one of all its runs; submitit waits long for that of a lost one."""
        if job.job_id not in self.known:
            if (error := job.exception()) is None:
                self.known[job.job_id] = job.result()
            else:
                first = str(error).strip().partition("\n")[0]
                reason = f"job {job.job_id} of SLURM ended with {job.state}: {first}"
                self.known[job.job_id] = End("died", reason=reason)
        return self.known[job.job_id]

    def submit(
        self, name: str, function: Callable[..., Any], *arguments: Any, resources: Resources = ONE_THREAD
    ) -> SlurmHandle:
        """Keep a job for the next pack."""
        self.waiting.append(SlurmHandle(self, name, (name, function, arguments), resources))
        return self.waiting[-1]

    def wait(self, timeout: float) -> None:
        self.jobs = [job for job in self.jobs if not job.done()]
        if self.waiting and (free := self.workers - len(self.jobs)) > 0:
            alike: dict[Resources, list[SlurmHandle]] = {}
            for handle in self.waiting:
                alike.setdefault(handle.resources, []).append(handle)
            for resources, handles in alike.items():
                self._submit(resources, handles, max(1, free * len(handles) // len(self.waiting)))
            self.waiting.clear()
        time.sleep(timeout)

    def _submit(self, resources: Resources, handles: Sequence[SlurmHandle], number: int) -> None:
        """Submit handles as an array of at most `number` jobs, which take the same resources."""
        # They come most expensive first, so that each pack has expensive and cheap ones.
        packs = [pack for first in range(number) if (pack := handles[first::number])]
        takes: dict[str, Any] = {"cpus_per_task": resources.threads}
        if resources.gpus:
            takes["gpus_per_node"] = math.ceil(resources.gpus)
        if resources.memory is not None:
            takes["mem_gb"] = resources.memory
        if resources.minutes is not None:
            takes["timeout_min"] = math.ceil(resources.minutes * len(packs[0]))
        try:
            cluster, jobs = self.cluster(**takes), []
            with cluster.batch():
                for pack in packs:
                    jobs.append(cluster.submit(Pack(), [handle.call for handle in pack], schema.extensions()))
        except (RuntimeError, OSError, ValueError, AssertionError) as error:  # as sbatch's own
            raise _refused(error) from None
        self.jobs += jobs
        for job, pack in zip(jobs, packs, strict=True):
            for place, handle in enumerate(pack):
                handle.job, handle.place = job, place

    def close(self) -> None:
        for job in self.jobs:
            if not job.done():
                job.cancel(check=False)  # one that cannot be cancelled is no reason to leave the others


def _refused(error: Exception) -> ScalingError:
    """A mistake in what is asked of SLURM, in its own words."""
    what = " ".join(str(error).split()) or type(error).__name__
    return ScalingError(f"submitit refuses: {what}", key="--executor", value="slurm", fix="correct --set")


def cancel_all(folder: Path) -> int:
    """Cancel the jobs that were submitted in a folder, by whatever command, and are not done; their number."""
    try:
        from submitit import SlurmJob
    except ImportError:
        raise ScalingError(NEEDED, key="--executor", value="slurm", fix=INSTALL) from None
    names = (path.name.removesuffix("_submitted.pkl") for path in folder.glob("*_submitted.pkl"))
    jobs = [job for job in (SlurmJob[Any](folder, name) for name in sorted(names)) if not job.done(force_check=True)]
    for job in jobs:
        job.cancel(check=False)
    return len(jobs)
