"""Jobs that are all to be done, by whatever executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from scaling.errors import ScalingError
from scaling.executors.executor import ONE_THREAD, Executor, Handle, Resources
from scaling.executors.local import Local
from scaling.executors.ray import Ray
from scaling.executors.slurm import Slurm
from scaling.standard_error import say
from scaling.training.signals import deferred

ExecutorName = Literal["local", "slurm", "ray"]
Job = tuple[str, Callable[..., Any], tuple[Any, ...]]
LOOK = 1.0  # seconds between looks at jobs
TRIES = 3  # of a job whose process died


@contextmanager
def opened(kind: ExecutorName, workers: int | None, folder: Path, parameters: Mapping[str, Any]) -> Iterator[Executor]:
    """An executor for jobs on CPUs, which logs to `folder`; it is closed at the end."""
    if kind == "slurm":
        executor: Executor = Slurm(workers or 1, folder / "slurm", parameters)
    elif kind == "ray":
        executor = Ray(workers, parameters)
    else:
        executor = Local(workers or 1, folder / "workers.log")
    try:
        yield executor
    finally:
        with deferred():
            executor.close()


def finish(executor: Executor, jobs: Sequence[Job], resources: Resources = ONE_THREAD) -> None:
    """Return when all jobs are done; the first that fails is an error, and one whose process died is tried again."""

    def submit(job: Job) -> Handle:
        name, function, arguments = job
        return executor.submit(name, function, *arguments, resources=resources)

    running = [(submit(job), job, 1) for job in jobs]
    done = 0
    while running:
        executor.wait(LOOK)
        left: list[tuple[Handle, Job, int]] = []
        for handle, job, tries in running:
            end = handle.wait(0)
            if end is None:
                left.append((handle, job, tries))
            elif end.status == "done":
                done += 1
                say(f"{handle.name} is done, {done} of {len(jobs)} here")
            elif end.status == "died" and tries < TRIES:
                say(f"{handle.name}: {end.reason}; it is tried again")
                left.append((submit(job), job, tries + 1))
            else:
                fix = None if end.status == "failed" else f"see {executor.log}; the same command goes on"
                raise ScalingError(end.reason or f"{handle.name} was {end.status}", fix=fix, code=end.code)
        running = left
