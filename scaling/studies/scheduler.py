"""Scheduler: the runs of a plan as jobs of an executor, the most expensive first, until none is left.

A trunk comes before its branches, and a branch begins as soon as its trunk has saved the branch's step. The ledger
decides what is done, so that several commands may train one study: a run that another command has is passed over, and
looked at again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scaling.base.errors import DISK, nearest, refuse
from scaling.base.standard_error import say
from scaling.config.compose import load
from scaling.config.document import Config
from scaling.executors import End, Executor
from scaling.executors.scheduler import PAUSE, ExecutorName, Job, Scheduler, started
from scaling.executors.slurm import Slurm
from scaling.ledger import Ledger
from scaling.studies.machine import Size, resources, sized
from scaling.studies.plan import Plan, Run, entered
from scaling.studies.progress import failures, hopeless, progress_of, settled, summary
from scaling.training.machine import suited
from scaling.training.ranks import launched

LOOK = 0.5  # seconds between looks at the whole study, at least
SHARE = 0.05  # of the command's time that looking may take, so that ten thousand runs are looked at more rarely
SOME = 20  # runs that are named


@dataclass(frozen=True)
class Unfinished:
    """Why a study is not done: a line for each run that lacks a result, and the exit code."""

    lines: tuple[str, ...]
    code: int

    def __str__(self) -> str:
        return "\n".join(self.lines)


def train(
    ledger: Ledger,
    plan: Plan,
    announce: Callable[[str], None],
    *,
    workers: int | None = None,
    executor: ExecutorName = "local",
    parameters: Mapping[str, Any] | None = None,
    retry_failed: bool = False,
    decided: Callable[[], Plan] | None = None,
) -> Unfinished | None:
    """Train what is not done of a study that was entered; `announce` receives the lines of its progress.

    What is left undone at the end, None where every run has a result. `retry_failed`: runs that failed too often are
    tried again. `decided` is asked, as runs come to their end, for the plan as it is then: that of an adaptive study.
    """
    if retry_failed:
        for run in (*plan.trunks, *(cell.run for cell in plan.runs)):
            ledger.retry(run)
    progress = progress_of(ledger, plan)
    left = progress.planned - progress.settled
    if not left:
        announce(summary(progress))
        return unfinished(ledger, plan)
    size = _size(plan, workers)
    folder = ledger.study_folder(plan.question.name)
    slots = size.workers if decided else min(size.workers, left)  # more may be decided for
    with started(executor, folder, slots, size.gpus, workers, parameters or {}) as jobs:
        runs = Runs(jobs, ledger, size, plan, announce, decided)
        runs.work()
    runs.report()
    return unfinished(ledger, runs.plan, runs)


def _size(plan: Plan, workers: int | None = None) -> Size:
    """The workers, with the threads that suit the largest run; a GPU computes what its workers' threads do not."""
    size = sized(plan, workers)
    threads = size.threads if size.gpus else max(suited(run.experiment, size.threads) for run in plan.runs)
    return replace(size, threads=threads)


class Runs(Scheduler):
    """The runs of a plan as jobs; `decided` has the newest plan of an adaptive study."""

    def __init__(
        self,
        executor: Executor,
        ledger: Ledger,
        size: Size,
        plan: Plan,
        announce: Callable[[str], None] = lambda line: None,
        decided: Callable[[], Plan] | None = None,
    ):
        super().__init__(executor)
        self.ledger, self.size, self.announce, self.decided = ledger, size, announce, decided
        self.jobs: dict[str, Job] = {}
        self.failed: dict[str, int] = {}  # failures of a run when its job was submitted
        self.started, self.next_look = time.monotonic(), 0.0
        self.reported: tuple[int, int] | None = None
        self._take_up(plan)
        self.report()

    def _take_up(self, plan: Plan) -> None:
        self.plan = plan
        self.branches: dict[str, list[Run]] = {name: [] for name in plan.trunks}
        for run in plan.runs:
            if run.trunk is not None:
                self.branches[run.trunk.run].append(run)
        # A trunk counts with its most expensive branch.
        after = {name: max(run.flops for run in runs) for name, runs in self.branches.items()}
        self.left = sorted(
            (*plan.trunks.values(), *plan.runs), key=lambda run: (-run.flops - after.get(run.run, 0.0), run.run)
        )
        for run in self.left:
            name = f"trunk {run.run}" if run.is_trunk else _label(run)
            takes = resources(run, self.size, plan.question.resources)
            job = self.jobs.setdefault(run.run, Job(name, (), takes, run.run))
            job.call = _call(self.ledger, run)  # a trunk is trained as far as the newest plan needs it

    def ready(self) -> Iterator[Job]:
        if self.decided is not None and (newest := self.decided()) is not self.plan:
            self._take_up(newest)
        self.left.sort(key=lambda run: len(self.jobs[run.run].troubles))  # what may kill its process comes last
        for run in list(self.left):
            job = self.jobs[run.run]
            if job in self.running or not job.is_due:
                continue
            if self.has_given_up(job) or self._is_done(run):
                self.left.remove(run)
            elif not self.ledger.is_held(run.run) and is_ready(
                self.ledger, run, lambda trunk: self.has_given_up(self.jobs[trunk])
            ):
                self.failed[run.run] = failures(self.ledger, run.run)
                yield job

    def take(self, job: Job, end: End) -> bool:
        if end.status == "done" and not end.value:  # another command was quicker
            job.postpone(PAUSE)
        return end.status == "done" or failures(self.ledger, job.subject) > self.failed[job.subject]

    def is_done(self) -> bool:
        return not self.left and (self.decided is None or self.decided() is self.plan)

    def look(self) -> float:
        if (begun := time.monotonic()) >= self.next_look:
            self.report()
            self.next_look = time.monotonic() + max(LOOK, (time.monotonic() - begun) / SHARE)
        return max(0.0, min(PAUSE, self.next_look - time.monotonic()))

    def report(self) -> None:
        """Announce a line for each run that is done, and for each twentieth of the compute."""
        progress = progress_of(self.ledger, self.plan)
        seen = progress.settled, int(20 * progress.share)
        if seen != self.reported:
            self.reported = seen
            self.announce(summary(progress, time.monotonic() - self.started))

    def _is_done(self, run: Run) -> bool:
        """Whether a run is settled, or a trunk has reached the step that the branches that are not settled need."""
        if run.run not in self.branches:
            return settled(self.ledger, run.run)
        return all(
            is_ready(self.ledger, branch) or settled(self.ledger, branch.run) for branch in self.branches[run.run]
        )


def _label(run: Run) -> str:
    return f"{run.name} (run {run.run})"


def _call(ledger: Ledger, *runs: Run | None) -> tuple[Any, ...]:
    """The call of `train_job`, small enough to send: an experiment is assembled where it is trained."""
    root = str(ledger.root.resolve())
    return train_job, root, *(run and replace(run, planned=None, root=root) for run in runs)


def train_job(root: str, job: Run, trunk: Run | None = None) -> bool:
    """Train a job of a plan, where an executor calls this, after its `trunk` where no job has brought that so far;
    False where another command has the job, or has done it.
    """
    from scaling.training.run import train_run  # imports Lightning, which the command does without

    ledger = Ledger(root)
    if trunk is not None:
        grow(ledger, job, trunk)
    return train_run(job.experiment, ledger) is not None


def is_ready(ledger: Ledger, job: Run, has_given_up: Callable[[str], bool] = lambda _: False) -> bool:
    """Whether a job can begin: a branch waits for its trunk, unless that cannot be trained.

    A budget that was added to a study may branch off where its trunk has passed and kept nothing: it is trained whole.
    """
    if job.trunk is None or ledger.checkpoint(job.trunk.run, job.trunk.step) is not None:
        return True
    trunk, step, _ = job.trunk
    return ledger.reached(trunk) > step or hopeless(ledger, trunk) or has_given_up(trunk)


def grow(ledger: Ledger, branch: Run, trunk: Run) -> None:
    """Bring a trunk to where a run branches off: trained here, or waited for where another command has it, which takes
    no longer than to train the run whole.
    """
    while not is_ready(ledger, branch):
        before = failures(ledger, trunk.run)
        try:
            if not train_job(str(ledger.root), trunk):
                time.sleep(PAUSE)
        except Exception as error:
            if failures(ledger, trunk.run) == before:
                raise
            say(f"trunk {trunk.run}: {error}")  # its record has the traceback


def detach(ledger: Ledger, plan: Plan, workers: int, parameters: Mapping[str, Any]) -> int:
    """Submit all that is not done of a study to SLURM, for no scheduler to wait for; the number of runs."""
    runs = [run for run in plan.runs if not settled(ledger, run.run)]
    executor, size = Slurm(workers, ledger.study_folder(plan.question.name) / "slurm", parameters), _size(plan)
    for run in sorted(runs, key=lambda run: -run.flops):
        trunk = None if run.trunk is None else plan.trunks[run.trunk.run]
        takes = resources(run, size, plan.question.resources)
        executor.submit(_label(run), *_call(ledger, run, trunk), resources=takes)
    executor.wait(0)
    return len(runs)


def unfinished(ledger: Ledger, plan: Plan, runs: Runs | None = None) -> Unfinished | None:
    """The unfinished part of a study, or None; `runs` are the jobs that this command had."""
    missing = [run for run in plan.runs if ledger.result(run.run) is None]
    if not missing:
        return None
    lines = [f"{len(missing)} of {len(plan.runs)} runs {'has' if len(missing) == 1 else 'have'} no result"]
    for run in missing[:SOME]:
        tries: Sequence[str] = () if runs is None else runs.jobs[run.run].troubles
        reason = f"{tries[-1]}; tried {len(tries)} times" if tries else _reason(ledger, run.run)
        lines.append(f"  {_label(run)}: {reason}")
    if len(missing) > SOME:
        lines.append(f"  and {len(missing) - SOME} more")
    if runs is not None:
        lines += [] if runs.disk is None else [f"  {runs.disk}"]
        lines.append(f"  what the runs printed is in {runs.executor.log}")
    if any(hopeless(ledger, run.run) for run in missing):
        lines.append("  --retry-failed tries runs again that have failed")
    return Unfinished(tuple(lines), 1 if runs is None or runs.disk is None else DISK)


def _reason(ledger: Ledger, run: str) -> str:
    """Why a run has no result, by its last attempt."""
    row = ledger.status(run)
    state = {"waiting": "not started", "stale": "its process died"}.get(row.state, row.state)
    return state if row.reason is None else f"{row.state}: {row.reason}"


# One run of a planned study, which `scaling train study=NAME run=ID runs=FOLDER` trains


def planned(words: Sequence[str]) -> Config:
    """The config of the run that `study=` and `run=` name."""
    ledger, plan, run = _find(words)
    logged = [word for word in words if word.startswith("log.")]
    return load(plan.question.base, (*run.overrides, f"runs={ledger.root}", *logged))


def prepare(words: Sequence[str]) -> None:
    """Bring the trunk of the run to where the run branches off. The ledger shows it, and W&B does not."""
    ledger, plan, run = _find(words, ["log.wandb=disabled"])
    if run.trunk is not None and not launched() and ledger.result(run.run) is None:
        grow(ledger, run, plan.trunks[run.trunk.run])


def _find(words: Sequence[str], further: Sequence[str] = ()) -> tuple[Ledger, Plan, Run]:
    """The run that the words name; `further` words hold for its training."""
    settings = {key: value for key, _, value in (word.partition("=") for word in words)}
    for key in settings:
        is_ours = key in ("study", "run", "runs") or key.startswith("log.")
        refuse(not is_ours, "the plan sets what a run of a study is", key=key, value=settings[key])
    ledger = Ledger.open(settings.get("runs", "runs"))
    plan = entered(ledger, settings["study"], further)
    runs = {cell.run: cell for cell in plan.runs}
    name = settings.get("run", "")
    refuse(name not in runs, "the study has no such run", nearest(name, runs), key="run", value=name)
    return ledger, plan, runs[name]
