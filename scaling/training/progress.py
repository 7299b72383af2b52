"""Progress of a run: a bar on a terminal, plain lines everywhere else; always on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
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
        self._next = 0.0
        self._pace = Pace()
        self._speeds = ""

    def __call__(self, entry: Mapping[str, Any]) -> None:
        if entry["kind"] == "train":
            self._speeds = _speeds(entry)
            if time.monotonic() >= self._next or entry["step"] == entry["steps"]:
                self._say(entry, self._speeds)
        elif entry["kind"] == "evaluate":
            print(f"step {entry['step']:>7,} {_held_out(entry)}", file=sys.stderr, flush=True)
        elif entry["kind"] == "progress":
            self._pace.report(entry["done"])
            if self._speeds and time.monotonic() >= self._next:
                self._say(entry, self._speeds if entry["evaluated"] is None else _evaluating(entry))

    def _say(self, entry: Mapping[str, Any], what: str) -> None:
        self._next = time.monotonic() + LINES
        left = self._pace.left() if entry["step"] < entry["steps"] else None
        clock = "" if left is None else f"  {_clock(left)} left"
        print(f"step {entry['step']:>7,} of {entry['steps']:,}  {what}{clock}", file=sys.stderr, flush=True)


class Bar:
    """A bar with the loss, the speed, the fraction of the machine's peak where that is known, and the time left."""

    def __init__(self) -> None:
        self._pace = Pace()
        columns = (
            TextColumn("{task.fields[step]:,} of {task.fields[steps]:,}"),
            _Moving(self._pace),
            TextColumn("{task.description}"),
            _Left(self._pace),
        )
        console = Console(stderr=True)
        self._bar = Progress(*columns, console=console, transient=True, refresh_per_second=4)
        self._task = None
        self._speeds = ""

    def __call__(self, entry: Mapping[str, Any]) -> None:
        if entry["kind"] == "evaluate":
            self._bar.console.print(f"step {entry['step']:>7,} {_held_out(entry)}", highlight=False)
            if self._task is not None:
                self._bar.update(self._task, description=self._speeds)
        elif entry["kind"] == "train":
            self._speeds = _speeds(entry)
            self._show(entry, self._speeds)
        elif entry["kind"] == "progress":
            self._pace.report(entry["done"])
            self._show(entry, self._speeds if entry["evaluated"] is None else _evaluating(entry))

    def _show(self, entry: Mapping[str, Any], what: str) -> None:
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task("", total=1.0, step=entry["step"], steps=entry["steps"])
        self._bar.update(self._task, step=entry["step"], steps=entry["steps"], description=what)

    def close(self) -> None:
        self._bar.stop()


class _Moving(BarColumn):
    """The bar where the pace puts it by now, so that it moves also while a step takes long."""

    def __init__(self, pace: Pace):
        super().__init__()
        self._pace = pace

    def render(self, task: Task) -> ProgressBar:
        bar = super().render(task)
        bar.completed = self._pace.done()
        return bar


class _Left(ProgressColumn):
    """The time left, by the clock between two reports."""

    def __init__(self, pace: Pace):
        super().__init__()
        self._pace = pace

    def render(self, task: Task) -> Text:
        left = self._pace.left()
        return Text("-:--:-- left" if left is None else f"{_clock(left)} left", style="progress.remaining")


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


def _evaluating(entry: Mapping[str, Any]) -> str:
    return f"evaluating, {entry['evaluated']:.0%}"


def _held_out(entry: Mapping[str, Any]) -> str:
    score = f"  score {entry['score']:.4f}" if "score" in entry else ""
    return f"held-out loss {entry['loss']:.4f}{score}"


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(max(0.0, seconds))))
