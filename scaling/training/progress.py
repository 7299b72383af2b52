"""Progress of a run: a bar on a terminal, plain lines everywhere else; always on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

LINES = 5.0  # seconds between plain lines of training


class Pace:
    """How much of a run is done, and how long the rest takes at the pace so far."""

    def __init__(self) -> None:
        self._marks: list[tuple[float, float]] = []  # times and fractions: from where the pace counts, and the last
        self._stride = 0.0  # the largest fraction between two reports
        self._started = False

    def report(self, done: float) -> None:
        """Hear that a fraction of the run is done now."""
        now = (time.monotonic(), done)
        if not self._marks:
            self._marks = [now, now]
        elif done > self._marks[1][1]:
            first, last = self._marks
            # The first update takes longer than the others: from the second on, the pace counts from its end.
            if last != first and not self._started:
                first, self._started = last, True
            self._stride = max(self._stride, done - last[1])
            self._marks = [first, now]

    @property
    def _rate(self) -> float:
        """The fraction of the run that is done per second, 0 where that is not known."""
        if not self._marks:
            return 0.0
        (started, before), (now, done) = self._marks
        return (done - before) / (now - started) if now > started else 0.0

    def done(self) -> float:
        """The fraction that is done by now: between two reports it goes on at the pace, up to the next one."""
        if not self._marks:
            return 0.0
        reported, done = self._marks[1]
        return min(1.0, done + min(self._stride, self._rate * (time.monotonic() - reported)))

    def left(self) -> float | None:
        """Seconds until the end, None where the pace is not known."""
        if not self._rate:
            return None
        reported, done = self._marks[1]
        return (1 - done) / self._rate - (time.monotonic() - reported)


class Lines:
    """One line an evaluation, and one every few seconds."""

    def __init__(self) -> None:
        self.pace = Pace()
        self._next = 0.0
        self._speeds = ""

    def __call__(self, entry: Mapping[str, Any]) -> None:
        if entry["kind"] == "evaluate":
            score = f"  score {entry['score']:.4f}" if "score" in entry else ""
            self._print(f"step {entry['step']:>7,} held-out loss {entry['loss']:.4f}{score}")
        elif entry["kind"] == "train":
            self._speeds = _speeds(entry)
            self._show(entry, self._speeds, last=entry["step"] == entry["steps"])
        elif entry["kind"] == "progress":
            self.pace.report(entry["done"])
            evaluated = entry["evaluated"]
            self._show(entry, self._speeds if evaluated is None else f"evaluating, {evaluated:.0%}")

    def _print(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def _show(self, entry: Mapping[str, Any], what: str, last: bool = False) -> None:
        if not self._speeds or (time.monotonic() < self._next and not last):
            return
        self._next = time.monotonic() + LINES
        left = self.pace.left() if entry["step"] < entry["steps"] else None
        clock = "" if left is None else f"  {_clock(left)} left"
        self._print(f"step {entry['step']:>7,} of {entry['steps']:,}  {what}{clock}")


class Bar(Lines):
    """A bar with the loss, the speed, the fraction of the machine's peak where that is known, and the time left. It
    stands where the pace puts it by now, so that it moves also while a step takes long.
    """

    def __init__(self) -> None:
        super().__init__()
        self._count = self._what = ""
        self._live = Live(get_renderable=self._row, console=Console(stderr=True), transient=True)

    def _print(self, line: str) -> None:
        self._live.console.print(line, highlight=False)
        self._what = self._speeds

    def _show(self, entry: Mapping[str, Any], what: str, last: bool = False) -> None:
        self._count, self._what = f"{entry['step']:,} of {entry['steps']:,}", what
        self._live.start(refresh=True)

    def _row(self) -> Table:
        left = self.pace.left()
        row = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=1.0, completed=self.pace.done(), width=40)
        clock = "-:--:--" if left is None else _clock(left)
        row.add_row(self._count, bar, self._what, Text(f"{clock} left", style="progress.remaining"))
        return row

    def close(self) -> None:
        self._live.stop()


@contextmanager
def teller() -> Iterator[Lines | Bar]:
    """What suits standard error."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    bar = Bar()
    try:
        yield bar
    finally:
        bar.close()


def _speeds(entry: Mapping[str, Any]) -> str:
    text = f"loss {entry['loss']:.4f}"
    if entry["tokens_per_second"]:
        text += f"  {entry['tokens_per_second']:,.0f} tokens/s"
    if entry["mfu"]:
        text += f"  {entry['mfu']:.0%} of peak"
    return text


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(max(0.0, seconds))))
