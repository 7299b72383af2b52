"""Progress: how far the runs of a study are, as the ledger shows it, and as a person is told."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from scaling.errors import plural
from scaling.ledger import RESULTS, Ledger, Row
from scaling.printing import span
from scaling.standard_error import say
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
    """How often a run has failed since someone asked to try it again (`Ledger.retry`)."""
    return sum(record.failed for record in ledger.attempts(run))


@dataclass(frozen=True)
class Active:
    """A run or a trunk under way; `left` in seconds, at its last speed."""

    name: str
    row: Row
    left: float | None


@dataclass(frozen=True)
class Progress:
    """How many runs there are and have come to their end, and how much of the compute is done. `failed` of those that
    have come to their end have no result, and are tried no more.

    `trunks` are those that runs still wait for; `left` is in seconds, None while no run has reported its speed.
    """

    planned: int
    settled: int
    share: float
    active: Sequence[Active]
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
        passed, trunks, active, todo = 0.0, 0, list[Active](), list[tuple[float, float]]()
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
            if row.state == "running":
                active.append(self._heard(run, row, each))
        done = len(self.plan.runs) - len(self.left)
        share = 1.0 if not self.left and not self.failed else min(1.0, (self.passed + passed) / self.whole)
        left = None
        if self.timed and todo and active:  # until the last worker is done: small models may still be to come
            speed = Speed(tuple(sorted(self.timed.items())))
            seconds = [speed.seconds(each) * steps for each, steps in todo]
            left = max(sum(seconds) / len(active), max(seconds))
        return Progress(len(self.plan.runs), done, share, active, trunks, left, self.failed)

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

    def _heard(self, run: Run, row: Row, each: float) -> Active:
        """A run under way; its reported speed is kept, by the FLOPs of its step."""
        if not row.step or not row.tokens_per_second:
            return Active(run.name, row, None)
        experiment = run.experiment
        left = (experiment.tokens(run.steps) - experiment.tokens(row.step)) / row.tokens_per_second
        if row.step < run.steps:
            model = float(f"{each:.9g}")  # one key for a trunk and its branches, whose quotients may differ in a bit
            self.timed[model] = left / (run.steps - row.step)
        return Active(run.name, row, left)


MOST_ROWS = 20
WIDTH = 40  # of a run's name

Tell = Callable[[Progress], None]


def teller(progress: bool) -> Callable[[object], None]:
    """`say`; without `progress` nothing is printed."""
    return say if progress else lambda _: None


@contextmanager
def listener(progress: bool = True) -> Iterator[Tell]:
    """A callback that shows how far a study is: as a live table where standard error is a terminal, else as lines."""
    if not progress:
        yield lambda now: None
        return
    started = time.monotonic()

    def clock(now: Progress) -> str:
        passed = span(time.monotonic() - started)
        return passed if now.left is None else f"{passed}, {span(now.left)} left"

    if not sys.stderr.isatty():
        yield lines(clock)
        return
    with Live(console=Console(stderr=True), refresh_per_second=4, transient=True) as live:
        yield lambda now: live.update(picture(now, clock(now)))


def lines(clock: Callable[[Progress], str]) -> Tell:
    """A callback that prints a line for each run that is done, and for each twentieth of the compute."""
    printed: set[tuple[int, int]] = set()

    def tell(now: Progress) -> None:
        progress = now.settled, int(20 * now.share)
        if progress not in printed:
            printed.add(progress)
            print(f"{summary(now)}, {clock(now)}", file=sys.stderr, flush=True)

    return tell


def summary(now: Progress) -> str:
    first = f" ({plural(now.trunks, 'trunk')} to train first)" if now.trunks else ""
    failed = f", {now.failed} failed" if now.failed else ""
    return f"{now.settled - now.failed} of {plural(now.planned, 'run')}{failed}{first}, {now.share:.0%} of the compute"


def picture(now: Progress, clock: str) -> Group:
    """A bar for the study, and a line for each run under way."""
    table = Table(box=None, pad_edge=False)
    table.add_column("run", max_width=WIDTH, no_wrap=True)
    for head in ("step", "loss", "tokens/s", "left", "host"):
        table.add_column(head, justify="right")
    for active in now.active[:MOST_ROWS]:
        row = active.row
        step = "" if row.step is None else f"{row.step:,} of {row.steps:,}"
        loss = "" if row.loss is None else f"{row.loss:.4f}"
        speed = "" if row.tokens_per_second is None else f"{row.tokens_per_second:,.0f}"
        left = "" if active.left is None else span(active.left)
        table.add_row(Text(active.name), step, loss, speed, left, row.host or "")
    bar = ProgressBar(total=1.0, completed=now.share, width=60)
    return Group(bar, Text(f"{summary(now)}, {clock}"), table)
