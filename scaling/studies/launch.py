"""Launch: workers started on this machine or by SLURM, watched until the study is done.

One that dies is replaced. Whatever the workers' codes, the ledger shows whether the study is done, and what it lacks.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from scaling import parent, schema
from scaling.errors import DISK, ScalingError
from scaling.ledger import Ledger
from scaling.standard_error import say
from scaling.studies.machine import Size, sized, threads
from scaling.studies.plan import Plan
from scaling.studies.progress import Progress, Watch, hopeless
from scaling.training.signals import deferred
from scaling.training.signals import name as name_of

LOOK = 0.5  # seconds between looks at the ledger, at least
SHARE = 0.1  # of the watching process's time that looking may take, so that ten thousand runs are looked at more rarely
DEATHS = 3  # of each worker's place while no run comes to its end: then what kills them is not chance
LEAVING = 60.0  # seconds in which a worker may save its run and leave
SOME, SOME_LINES = 20, 3  # runs that are named, lines of workers
REASON = 300  # letters of one

Launcher = Literal["local", "slurm"]


@dataclass(frozen=True)
class Unfinished:
    """Why a study is not done: a line for each run that lacks a result and for its workers, and the exit code."""

    lines: tuple[str, ...]
    code: int

    def __str__(self) -> str:
        return "\n".join(self.lines)


class Crew(Protocol):
    """Workers that were started."""

    codes: list[int | None]  # by which those that ended did; None where it is not known

    def alive(self, progress: int = 0) -> bool:
        """Whether some still work, after those that died were replaced; `progress` is the number of settled runs."""
        ...

    def stop(self) -> None:
        """Have each save its run at the next step and leave. One that cannot within a minute is killed."""
        ...

    def last_lines(self) -> Sequence[str]:
        """The last lines that workers left for people, where these are known."""
        ...


def train(
    ledger: Ledger,
    name: str,
    plan: Plan,
    tell: Callable[[Progress], None],
    *,
    workers: int | None = None,
    launcher: Launcher = "local",
    parameters: Mapping[str, Any] | None = None,
    retry_failed: bool = False,
    decided: Callable[[], Plan] | None = None,
) -> Unfinished | None:
    """Train what is not done of the study that was entered under `name`; `tell` receives its progress.

    What is left undone at the end, None where every run has a result. `retry_failed`: runs that failed too often are
    tried again. `decided` is asked, as runs come to their end, for the plan as it is then: that of an adaptive study.
    """
    if retry_failed:
        for run in (*plan.trunks, *(cell.run for cell in plan.runs)):
            ledger.retry(run)
    watch = Watch(ledger, plan)
    now = watch.look()
    tell(now)
    if now.settled == now.planned:
        return unfinished(ledger, plan)
    folder = ledger.study_folder(name)
    command = [sys.executable, "-m", "scaling", "work", name, f"runs={ledger.root.resolve()}"]
    command += [word for path in schema.extensions() for word in ("--extend", path)]
    log = folder / ("slurm" if launcher == "slurm" else "workers.log")
    if launcher == "slurm":
        crew: Crew = Submitted(command, workers or 1, log, parameters or {})
    else:
        size = sized(plan, workers)
        # A GPU computes what its workers' threads do not.
        size = size if size.gpus else replace(size, threads=threads(plan, size.threads))
        crew = Local(command, size, now.planned - now.settled, log)
    try:
        while crew.alive(now.settled):
            if decided is not None and (newest := decided()) is not plan:
                plan, watch = newest, Watch(ledger, newest)
            started = time.monotonic()  # of the look alone: workers wait for what is decided
            now = watch.look()
            tell(now)
            time.sleep(max(LOOK, (time.monotonic() - started) / SHARE))
    finally:
        with deferred():
            crew.stop()
    tell(watch.look())
    workers_end = f"workers ended with {', '.join(map(meaning, crew.codes))}; their output is in {log}"
    return unfinished(ledger, plan, (workers_end, *crew.last_lines()), DISK if DISK in crew.codes else 1)


def unfinished(ledger: Ledger, plan: Plan, workers: Sequence[str] = (), code: int = 1) -> Unfinished | None:
    """What a study lacks, None where that is nothing; `workers` are lines about those that have ended."""
    missing = [run for run in plan.runs if ledger.result(run.run) is None]
    if not missing:
        return None
    first = f"{len(missing)} of {len(plan.runs)} runs {'has' if len(missing) == 1 else 'have'} no result"
    lines = [first, *(f"  {run.name} (run {run.run}): {_reason(ledger, run.run)}" for run in missing[:SOME])]
    if len(missing) > SOME:
        lines.append(f"  and {len(missing) - SOME} more")
    lines += [f"  {line}" for line in workers]
    if any(hopeless(ledger, run.run) for run in missing):
        lines.append("  --retry-failed tries runs again that have failed")
    return Unfinished(tuple(lines), code)


def _reason(ledger: Ledger, run: str) -> str:
    """Why a run has no result, by its last attempt."""
    row = ledger.status(run)
    if row.state == "waiting":
        return "not started"
    if row.reason is None:
        return "its worker died" if row.state == "stale" else row.state
    reason = row.reason if len(row.reason) <= REASON else row.reason[: REASON - 1] + "…"
    return f"{row.state}: {reason}"


def meaning(code: int | None) -> str:
    """An exit code, with what it means where that is not plain."""
    if code is None:
        return "an unknown code"
    if code < 0:
        return f"{code} (killed by {name_of(-code)})"
    return f"{code} (the disk is full or failing)" if code == DISK else str(code)


class Local:
    """Processes of this machine, each with its threads and its GPU. One that dies is replaced, unless they all do."""

    def __init__(self, command: Sequence[str], size: Size, most: int, log: Path):
        self.command, self.size, self.log = command, size, log
        self.codes: list[int | None] = []
        self.processes: dict[int, subprocess.Popen[bytes]] = {}  # by place
        self.deaths = dict.fromkeys(range(min(size.workers, most)), 0)  # of each place that is not left
        self.settled = 0
        self.logged = log.stat().st_size if log.exists() else 0

    def alive(self, progress: int = 0) -> bool:
        if progress > self.settled:
            self.settled, self.deaths = progress, dict.fromkeys(self.deaths, 0)
        with deferred():
            for place in list(self.deaths):
                self._look(place)
        return bool(self.processes)

    def _look(self, place: int) -> None:
        process = self.processes.get(place)
        code = None if process is None else process.poll()
        if process is not None and code is None:
            return
        if code is not None:
            self.codes.append(code)
            self.deaths[place] += 1
            # A code of its own means that another would leave as well.
            if 0 <= code < 128 or self.deaths[place] > DEATHS:
                del self.processes[place], self.deaths[place]
                return
            say(f"a worker ended with {meaning(code)}; another takes its place")
        with self.log.open("ab") as output:
            self.processes[place] = _started(self.command, self.size, place, output)

    def stop(self) -> None:
        until = time.monotonic() + LEAVING
        try:
            for process in self.processes.values():
                process.send_signal(signal.SIGTERM)
            for process in self.processes.values():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, until - time.monotonic()))
        finally:  # one that is stuck, or that a person has no time for, loses what it did not save
            for process in self.processes.values():
                process.kill()
                process.wait()

    def last_lines(self) -> Sequence[str]:
        """The lines by which workers left, for people to read."""
        with self.log.open("rb") as output:
            output.seek(self.logged)
            lines = (line.decode(errors="replace").rstrip() for line in output)
            return list(dict.fromkeys(line for line in lines if line.startswith("scaling: ")))[-SOME_LINES:]


def _started(command: Sequence[str], size: Size, number: int, log: IO[bytes]) -> subprocess.Popen[bytes]:
    own = {**parent.named(), "OMP_NUM_THREADS": str(size.threads), "MKL_NUM_THREADS": str(size.threads)}
    if size.gpus:
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = seen.split(",") if seen else [str(index) for index in range(size.gpus)]
        own["CUDA_VISIBLE_DEVICES"] = names[number % size.gpus]
    return subprocess.Popen(command, env={**os.environ, **own}, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


class Submitted:
    """An array of SLURM jobs, each one worker; `parameters` are sbatch's, as submitit names them."""

    def __init__(
        self, command: Sequence[str], workers: int, folder: Path, parameters: Mapping[str, Any], cluster: str = "slurm"
    ):
        try:
            import submitit
        except ImportError:
            fix = "install it: pip install 'scaling[slurm]'"
            raise ScalingError(
                "SLURM is spoken to through submitit", key="--launcher", value="slurm", fix=fix
            ) from None
        try:
            executor = submitit.AutoExecutor(folder, cluster=cluster)
            executor.update_parameters(**parameters)
        except (RuntimeError, NameError, TypeError) as error:
            what = " ".join(str(error).split())
            raise ScalingError(f"submitit refuses: {what}", key="--launcher", value="slurm") from None
        self.codes: list[int | None] = []
        work = submitit.helpers.CommandFunction(list(command), verbose=False)
        with executor.batch():
            self.jobs = [executor.submit(work) for _ in range(workers)]

    def alive(self, progress: int = 0) -> bool:
        alive = any(not job.done() for job in self.jobs)
        self.codes = [] if alive else [0 if job.exception() is None else None for job in self.jobs]
        return alive

    def last_lines(self) -> Sequence[str]:
        return ()

    def stop(self) -> None:
        for job in self.jobs:
            if not job.done():
                job.cancel()
