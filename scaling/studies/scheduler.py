"""Scheduler: the runs of a plan as jobs of an executor, the most expensive first, until none is left.

A trunk comes before its branches, and a branch begins as soon as its trunk has saved the branch's step. The ledger
decides what is done, so that several commands may train one study: a run that another command has is passed over, and
looked at again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from scaling.errors import DISK
from scaling.executors.executor import Executor, Handle
from scaling.executors.local import Local
from scaling.executors.ray import Ray
from scaling.executors.slurm import Slurm
from scaling.ledger import Ledger
from scaling.standard_error import say
from scaling.studies.machine import Size, resources, sized, threads
from scaling.studies.plan import Plan, Run, entered
from scaling.studies.progress import Progress, Watch, failures, hopeless, settled
from scaling.training.signals import deferred

LOOK = 0.5  # seconds between looks at the whole study, at least
SHARE = 0.05  # of the command's time that looking may take, so that ten thousand runs are looked at more rarely
PAUSE = 0.2  # seconds between looks at jobs that wait for a trunk or for another command
TRIES = 3  # of a job that ended, or whose process did, without a record of it in the ledger
IN_A_ROW = 10  # such ends, after which they are not the jobs' own
WAIT = 1.0  # seconds until such a job is tried again, twice as long each time
SOME = 20  # runs that are named
REASON = 300  # letters of one

ExecutorName = Literal["local", "slurm", "ray"]


@dataclass(frozen=True)
class Unfinished:
    """Why a study is not done: a line for each run that lacks a result, and the exit code."""

    lines: tuple[str, ...]
    code: int

    def __str__(self) -> str:
        return "\n".join(self.lines)


def train(
    ledger: Ledger,
    name: str,
    plan: Plan,
    tell: Callable[[Progress], None],
    *,
    workers: int | None = None,
    executor: ExecutorName = "local",
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
    size = sized(plan, workers)
    if not size.gpus:  # a GPU computes what its workers' threads do not
        size = replace(size, threads=threads(plan, size.threads))
    folder = ledger.study_folder(name)
    if executor == "slurm":
        jobs: Executor = Slurm(workers or 1, folder / "slurm", parameters or {})
    elif executor == "ray":
        jobs = Ray(workers, parameters or {})
    else:
        jobs = Local(min(size.workers, now.planned - now.settled), folder / "workers.log", size.gpus)
    scheduler, next_look = Scheduler(ledger, jobs, size, plan), 0.0
    try:
        while scheduler.submit() or (decided is not None and decided() is not plan):
            if (started := time.monotonic()) >= next_look:
                tell(watch.look())
                next_look = time.monotonic() + max(LOOK, (time.monotonic() - started) / SHARE)
            jobs.wait(max(0.0, min(PAUSE, next_look - time.monotonic())))
            scheduler.take()
            if decided is not None and (newest := decided()) is not plan:
                plan, watch = newest, Watch(ledger, newest)
                scheduler.take_up(plan)
    finally:
        with deferred():
            jobs.close()
    tell(watch.look())
    return unfinished(ledger, plan, scheduler)


class Scheduler:
    """Submits what can run of a plan, and takes the ends."""

    def __init__(self, ledger: Ledger, executor: Executor, size: Size, plan: Plan):
        self.ledger, self.executor, self.size = ledger, executor, size
        self.running: dict[str, tuple[Handle, int]] = {}  # by run: with its failures so far
        self.troubles: dict[str, list[str]] = {}  # by run: why a try ended, where the ledger has no record of it
        self.not_before: dict[str, float] = {}  # by run: when it may be tried again
        self.in_a_row = 0  # of troubles
        self.disk: str | None = None  # why the disk ends all
        self.take_up(plan)

    def take_up(self, plan: Plan) -> None:
        """Go on with another plan of the study."""
        self.branches: dict[str, list[Run]] = {name: [] for name in plan.trunks}
        for run in plan.runs:
            if run.trunk is not None:
                self.branches[run.trunk.run].append(run)
        # A trunk counts with its most expensive branch.
        after = {name: max(run.flops for run in runs) for name, runs in self.branches.items()}
        self.left = sorted(
            (*plan.trunks.values(), *plan.runs), key=lambda run: (-run.flops - after.get(run.run, 0.0), run.run)
        )

    def submit(self) -> bool:
        """Submit what the executor has room for; whether anything is left to do or to wait for."""
        if self.disk is not None:
            return False
        if len(self.running) >= self.executor.slots:
            return True
        self.left.sort(key=lambda job: len(self.troubles.get(job.run, ())))  # what may kill its process comes last
        for job in list(self.left):
            if len(self.running) >= self.executor.slots:
                break
            if job.run in self.running or time.monotonic() < self.not_before.get(job.run, 0.0):
                continue
            if self.given_up(job.run) or self._is_done(job):
                self.left.remove(job)
            elif is_ready(self.ledger, job, self.given_up) and not self.ledger.is_held(job.run):
                name = f"trunk {job.run}" if job.is_trunk else f"{job.name} (run {job.run})"
                root = str(self.ledger.root.resolve())
                # It is small enough to send: an experiment is assembled where it is trained.
                sent = replace(job, planned=None, root=root)
                handle = self.executor.submit(name, train_job, root, sent, resources=resources(job, self.size))
                self.running[job.run] = handle, failures(self.ledger, job.run)
        return bool(self.running or self.left)

    def take(self) -> None:
        """Take the ends of jobs."""
        for run, (handle, failed_before) in list(self.running.items()):
            end = handle.wait(0)
            if end is None:
                continue
            del self.running[run]
            if end.status == "done":
                self.in_a_row = 0
                if not end.value:  # another command was quicker
                    self.not_before[run] = time.monotonic() + PAUSE
            elif end.code == DISK:
                self.disk = end.reason
            elif failures(self.ledger, run) == failed_before:
                reasons = self.troubles.setdefault(run, [])
                reasons.append(end.reason or end.status)
                self.in_a_row += 1
                self.not_before[run] = time.monotonic() + WAIT * 2 ** (len(reasons) - 1)
                say(f"{handle.name}: {end.reason}; {'given up' if self.given_up(run) else 'it is tried again'}")

    def given_up(self, run: str) -> bool:
        return len(self.troubles.get(run, ())) >= TRIES or self.in_a_row >= IN_A_ROW

    def _is_done(self, job: Run) -> bool:
        """Whether a run is settled, or a trunk has reached the step that the branches that are not settled need."""
        if job.run not in self.branches:
            return settled(self.ledger, job.run)
        return all(is_ready(self.ledger, run) or settled(self.ledger, run.run) for run in self.branches[job.run])


def train_job(root: str, job: Run) -> bool:
    """Train a job of a plan, where an executor calls this; False where another command has it, or has done it."""
    from scaling.training.run import train_run  # imports Lightning, which the command does without

    return train_run(job.experiment, Ledger(root)) is not None


def is_ready(ledger: Ledger, job: Run, given_up: Callable[[str], bool] = lambda _: False) -> bool:
    """Whether a job can begin: a branch waits for its trunk, unless that cannot be trained.

    A budget that was added to a study may branch off where its trunk has passed and kept nothing: it is trained whole.
    """
    if job.trunk is None or ledger.checkpoint(job.trunk.run, job.trunk.step) is not None:
        return True
    trunk, step, _ = job.trunk
    return ledger.reached(trunk) > step or hopeless(ledger, trunk) or given_up(trunk)


def grow(ledger: Ledger, plan: Plan, branch: Run) -> None:
    """Bring the trunk of one run to where it branches off: trained here, or waited for where another command has it,
    which takes no longer than to train the run whole.
    """
    while branch.trunk is not None and not is_ready(ledger, branch):
        trunk = branch.trunk.run
        before = failures(ledger, trunk)
        try:
            if not train_job(str(ledger.root), plan.trunks[trunk]):
                time.sleep(PAUSE)
        except Exception as error:
            if failures(ledger, trunk) == before:
                raise
            say(f"trunk {trunk}: {error}")  # its record has the traceback


def detach(ledger: Ledger, name: str, plan: Plan, workers: int, parameters: Mapping[str, Any]) -> int:
    """Submit all that is not done of a study to SLURM, for no scheduler to wait for; the number of runs."""
    runs = [run for run in plan.runs if not settled(ledger, run.run)]
    executor = Slurm(workers, ledger.study_folder(name) / "slurm", parameters)
    for run in sorted(runs, key=lambda run: -run.flops):
        executor.submit(f"{run.name} (run {run.run})", train_detached, str(ledger.root.resolve()), name, run.run)
    executor.wait(0)
    return len(runs)


def train_detached(root: str, name: str, run: str) -> bool:
    """Train a run of a study, after its trunk where no other job has brought that so far."""
    ledger = Ledger(root)
    plan = entered(ledger, name)
    job = next(job for job in plan.runs if job.run == run)
    grow(ledger, plan, job)
    return train_job(root, job)


def unfinished(ledger: Ledger, plan: Plan, scheduler: Scheduler | None = None) -> Unfinished | None:
    """What a study lacks, None where that is nothing."""
    missing = [run for run in plan.runs if ledger.result(run.run) is None]
    if not missing:
        return None
    troubles = {} if scheduler is None else scheduler.troubles
    first = f"{len(missing)} of {len(plan.runs)} runs {'has' if len(missing) == 1 else 'have'} no result"
    lines = [first]
    for run in missing[:SOME]:
        tries = troubles.get(run.run)
        reason = _reason(ledger, run.run) if tries is None else f"{tries[-1]}; tried {len(tries)} times"
        lines.append(f"  {run.name} (run {run.run}): {reason}")
    if len(missing) > SOME:
        lines.append(f"  and {len(missing) - SOME} more")
    if scheduler is not None:
        lines += [] if scheduler.disk is None else [f"  {scheduler.disk}"]
        lines.append(f"  what the runs printed is in {scheduler.executor.log}")
    if any(hopeless(ledger, run.run) for run in missing):
        lines.append("  --retry-failed tries runs again that have failed")
    return Unfinished(tuple(lines), DISK if scheduler is not None and scheduler.disk is not None else 1)


def _reason(ledger: Ledger, run: str) -> str:
    """Why a run has no result, by its last attempt."""
    row = ledger.status(run)
    if row.state == "waiting":
        return "not started"
    if row.reason is None:
        return "its process died" if row.state == "stale" else row.state
    reason = row.reason if len(row.reason) <= REASON else row.reason[: REASON - 1] + "…"
    return f"{row.state}: {reason}"
