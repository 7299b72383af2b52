"""Progress of a run: a bar on a terminal, plain lines everywhere else; always on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

LINES = 5.0  # seconds between plain lines of training


class Lines:
    """One line an evaluation, and one of training every few seconds."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, entry: Mapping[str, Any]) -> None:
        if entry["kind"] == "train" and (time.monotonic() >= self._next or entry["step"] == entry["steps"]):
            self._next = time.monotonic() + LINES
            print(f"step {entry['step']:>7,} of {entry['steps']:,}  {_speeds(entry)}", file=sys.stderr, flush=True)
        elif entry["kind"] == "evaluate":
            print(f"step {entry['step']:>7,} {_held_out(entry)}", file=sys.stderr, flush=True)


class Bar:
    """A bar with the loss, the speed, the share of the machine's peak where that is known, and the time left."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.completed:,} of {task.total:,}"), BarColumn(), TextColumn("{task.description}"))
        console = Console(stderr=True)
        self._bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True, refresh_per_second=4)
        self._task = None

    def __call__(self, entry: Mapping[str, Any]) -> None:
        if entry["kind"] == "evaluate":
            self._bar.console.print(f"step {entry['step']:>7,} {_held_out(entry)}", highlight=False)
        elif entry["kind"] == "train":
            if self._task is None:
                self._bar.start()
                self._task = self._bar.add_task("", total=entry["steps"], completed=entry["step"])
            self._bar.update(self._task, completed=entry["step"], description=_speeds(entry))
            if entry["step"] == entry["steps"]:
                self.close()

    def close(self) -> None:
        self._bar.stop()


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
    told = f"loss {entry['loss']:.4f}"
    if entry["tokens_per_second"]:
        told += f"  {entry['tokens_per_second']:,.0f} tokens/s"
    if entry["mfu"]:
        told += f"  {entry['mfu']:.0%} of peak"
    return told


def _held_out(entry: Mapping[str, Any]) -> str:
    return f"held-out loss {entry['loss']:.4f}"
