"""Progress: the progress of a study's runs from the ledger, and its text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scaling.base.errors import plural
from scaling.base.printing import span
from scaling.base.standard_error import say
from scaling.ledger import RESULTS, Ledger
from scaling.studies.plan import Plan

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
class Speed:
    """Seconds of a step by its FLOPs, as they were timed, the smallest first."""

    timed: tuple[tuple[float, float], ...]
    busy: bool = False  # whether the machine had other work meanwhile, so that it may be faster than this

    def seconds(self, flops: float) -> float:
        """Seconds of one step."""
        (first, least), (last, most) = self.timed[0], self.timed[-1]
        if flops <= first:
            return least * math.sqrt(flops / first)
        if flops >= last:
            return most * flops / last
        x, y = np.log(np.array(self.timed)).T
        return float(np.exp(np.interp(math.log(flops), x, y)))


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


def progress_of(ledger: Ledger, plan: Plan) -> Progress:
    """The progress of a study now."""
    trunks = plan.trunks.values()
    rows = {run.run: ledger.status(run.run) for run in (*plan.runs, *trunks)}
    finished = [run for run in plan.runs if rows[run.run].state in RESULTS]
    open_runs = [run for run in plan.runs if rows[run.run].state not in RESULTS]
    left = [run for run in open_runs if rows[run.run].state in ("waiting", "running") or not hopeless(ledger, run.run)]
    needed = {run.trunk.run for run in left if run.trunk is not None}
    done, waiting, steps_left = sum(run.flops for run in finished), 0, list[tuple[float, int]]()
    for run in (*left, *trunks):
        first = 0 if run.trunk is None else run.trunk.step
        at, flops = max(first, rows[run.run].step or 0), run.flops / max(1, run.steps - first)  # of a step
        done += flops * (min(at, run.steps) - first)
        if at < run.steps and (not run.is_trunk or run.run in needed):
            steps_left.append((flops, run.steps - at))
            waiting += run.is_trunk
    whole, failed = sum(run.flops for run in (*plan.runs, *trunks)), len(open_runs) - len(left)
    share = min(1.0, done / whole) if left or failed else 1.0
    timed = {}  # seconds of a step by its FLOPs; the steps of a trunk are those of its branches
    for run in plan.runs:
        for row in (rows[run.run], *([] if run.trunk is None else [rows[run.trunk.run]])):
            if row.tokens_per_second:
                timed[run.point["C"] / run.steps] = run.point["D"] / run.steps / row.tokens_per_second
    workers, time_left = sum(row.state == "running" for row in rows.values()), None
    if timed and steps_left and workers:  # until the last worker is done: small models may still be to come
        speed = Speed(tuple(sorted(timed.items())))
        seconds = [speed.seconds(flops) * steps for flops, steps in steps_left]
        time_left = max(sum(seconds) / workers, max(seconds))
    return Progress(len(plan.runs), len(plan.runs) - len(left), share, waiting, time_left, failed)


def announcer(progress: bool) -> Callable[[object], None]:
    """`say`; without `progress` nothing is printed."""
    return say if progress else lambda _: None


def summary(now: Progress, elapsed: float | None = None) -> str:
    """The progress in a line, with the seconds that it took and those that are left, where they are known."""
    first = f" ({plural(now.trunks, 'trunk')} to train first)" if now.trunks else ""
    failed = f", {now.failed} failed" if now.failed else ""
    times = ("" if elapsed is None else f", {span(elapsed)}") + ("" if now.left is None else f", {span(now.left)} left")
    runs = f"{now.settled - now.failed} of {plural(now.planned, 'run')}{failed}{first}"
    return f"{runs}, {now.share:.0%} of the compute{times}"
