"""Progress: the progress of a study's runs from the ledger, and its text for a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from scaling.base.errors import plural
from scaling.base.printing import span
from scaling.base.standard_error import say
from scaling.ledger import RESULTS, Ledger, Row
from scaling.studies.estimate import evaluating
from scaling.studies.machine import Speed
from scaling.studies.plan import Plan, Run

RETRIES = 1  # of a run that failed; a divergence is a result and is not tried again


def settled(ledger: Ledger, run: str) -> bool:
    """Whether nothing is left to do: it has a result, or has failed too often."""
    return ledger.result(run) is not None or hopeless(ledger, run)


def finished_loss(ledger: Ledger, run: str) -> float | None:
    """The loss of a run that has finished."""
    result = ledger.result(run)
    return None if result is None or result["outcome"] != "finished" else result["loss"]


def hopeless(ledger: Ledger, run: str) -> bool:
    """Whether a run has failed more often than it is tried again."""
    return failures(ledger, run) > RETRIES


def failures(ledger: Ledger, run: str) -> int:
    """The number of failures of a run since the last request to try it again (`Ledger.retry`)."""
    return sum(record.failed for record in ledger.attempts(run))


@dataclass(frozen=True)
class Progress:
    """How many runs there are and have come to their end, and how much of the compute is done. `failed` of those that
    have come to their end have no result, and are tried no more.

    `trunks` are those that runs still wait for; `left` is in seconds, None while no run has reported its speed.
    """

    planned: int
    settled: int
    share: float
    trunks: int = 0
    left: float | None = None
    failed: int = 0


class Watch:
    """Looks at a study again and again, at little cost."""

    def __init__(self, ledger: Ledger, plan: Plan):
        self.ledger, self.plan = ledger, plan
        self.left = {run.run: run for run in plan.runs}
        self.whole = sum(run.flops for run in (*plan.runs, *plan.trunks.values()))
        self.passed, self.failed = 0.0, 0  # by runs that are settled
        self.timed: dict[float, float] = {}  # seconds of a step by its FLOPs, as runs under way last reported

    def look(self) -> Progress:
        passed, trunks, workers, todo = 0.0, 0, 0, list[tuple[float, float]]()
        for run in (*self.left.values(), *self.plan.trunks.values()):
            row = self.ledger.status(run.run)
            if not run.is_trunk and self._is_settled(run, row):
                continue
            first = run.trunk.step if run.trunk else 0
            at, each = min(run.steps, max(first, row.step or 0)), run.flops / max(1, run.steps - first)
            passed += each * (at - first)
            if not run.is_trunk:
                # A branch may have no steps of its own; what its evaluation takes is then not known.
                todo.append((each, run.steps - at + (evaluating(run.experiment) / each if each else 0.0)))
            elif at < run.steps and any(left.trunk and left.trunk.run == run.run for left in self.left.values()):
                trunks += 1
                todo.append((each, run.steps - at))
            workers += row.state == "running"
            if row.state == "running" and row.step and row.step < run.steps and row.tokens_per_second:
                # One key for a trunk and its branches, whose quotients may differ in a bit.
                model = float(f"{each:.9g}")
                tokens = run.experiment.tokens(run.steps) - run.experiment.tokens(row.step)
                self.timed[model] = tokens / row.tokens_per_second / (run.steps - row.step)
        left = None
        if self.timed and todo and workers:  # until the last worker is done: small models may still be to come
            speed = Speed(tuple(sorted(self.timed.items())))
            seconds = [speed.seconds(each) * steps for each, steps in todo]
            left = max(sum(seconds) / workers, max(seconds))
        done = len(self.plan.runs) - len(self.left)
        share = 1.0 if not self.left and not self.failed else min(1.0, (self.passed + passed) / self.whole)
        return Progress(len(self.plan.runs), done, share, trunks, left, self.failed)

    def _is_settled(self, run: Run, row: Row) -> bool:
        """Whether a run has come to its end, which is then counted."""
        finished = row.state in RESULTS
        if not finished and (row.state in ("waiting", "running") or not settled(self.ledger, run.run)):
            return False
        finished = finished or self.ledger.result(run.run) is not None
        self.passed += run.flops * finished
        self.failed += not finished
        del self.left[run.run]
        return True


Announce = Callable[[Progress], None]


def announcer(progress: bool) -> Callable[[object], None]:
    """`say`; without `progress` nothing is printed."""
    return say if progress else lambda _: None


def listener(progress: bool = True) -> Announce:
    """A callback that prints a line for each run that is done, and for each twentieth of the compute."""
    started, printed = time.monotonic(), set[tuple[int, int]]()

    def announce(now: Progress) -> None:
        seen = now.settled, int(20 * now.share)
        if progress and seen not in printed:
            printed.add(seen)
            left = "" if now.left is None else f", {span(now.left)} left"
            print(f"{summary(now)}, {span(time.monotonic() - started)}{left}", file=sys.stderr, flush=True)

    return announce


def summary(now: Progress) -> str:
    first = f" ({plural(now.trunks, 'trunk')} to train first)" if now.trunks else ""
    failed = f", {now.failed} failed" if now.failed else ""
    return f"{now.settled - now.failed} of {plural(now.planned, 'run')}{failed}{first}, {now.share:.0%} of the compute"
