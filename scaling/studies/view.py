"""View: a study's progress on standard error. One live picture of all runs on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from scaling.errors import plural
from scaling.printing import span
from scaling.standard_error import say
from scaling.studies.progress import Progress

MOST_ROWS = 20
WIDTH = 40  # of a run's name

Tell = Callable[[Progress], None]


def teller(progress: bool) -> Callable[[object], None]:
    """`say`; without `progress` nothing is printed."""
    return say if progress else lambda _: None


@contextmanager
def listener(progress: bool = True) -> Iterator[Tell]:
    """A callback that shows how far a study is in the way that suits standard error; without `progress`, nothing."""
    clock = Clock()
    if not progress:
        yield lambda now: None
        return
    if not sys.stderr.isatty():
        yield Lines(clock)
        return
    with Live(console=Console(stderr=True), refresh_per_second=4, transient=True) as live:
        yield lambda now: live.update(picture(now, clock))


class Clock:
    """Time passed, and time left."""

    def __init__(self) -> None:
        self.started = time.monotonic()

    def text(self, now: Progress) -> str:
        passed = span(time.monotonic() - self.started)
        return passed if now.left is None else f"{passed}, {span(now.left)} left"


class Lines:
    """A line for each run that is done, and for each twentieth of the compute."""

    def __init__(self, clock: Clock):
        self.clock, self.printed = clock, (-1, -1)

    def __call__(self, now: Progress) -> None:
        clock, progress = self.clock.text(now), (now.settled, int(20 * now.share))
        if progress != self.printed:
            self.printed = progress
            print(f"{summary(now)}, {clock}", file=sys.stderr, flush=True)


def summary(now: Progress) -> str:
    first = f" ({plural(now.trunks, 'trunk')} to train first)" if now.trunks else ""
    failed = f", {now.failed} failed" if now.failed else ""
    return f"{now.settled - now.failed} of {plural(now.planned, 'run')}{failed}{first}, {now.share:.0%} of the compute"


def picture(now: Progress, clock: Clock) -> Group:
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
    return Group(bar, Text(f"{summary(now)}, {clock.text(now)}"), table)
