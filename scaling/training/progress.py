"""Progress of a run: a bar on a terminal, plain lines everywhere else; always on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress

LINES = 5.0  # seconds between plain lines of training
PERIOD = 600.0  # seconds by which the speed is estimated, and with it the time left


class Teller:
    """Prints each evaluation, and in between how far the run is: the loss, the speed, the fraction of the machine's
    peak where that is known, and the time left. On a terminal that is a bar, elsewhere a line every few seconds.
    """

    def __init__(self, console: Console):
        columns = (
            "{task.completed:,.0f} of {task.total:,.0f}",
            BarColumn(),
            "{task.fields[speeds]}",
            "{task.description}",
        )
        is_plain = not console.is_terminal
        self._bar = Progress(*columns, console=console, transient=True, disable=is_plain, speed_estimate_period=PERIOD)
        self._bar.add_task("", total=1, visible=False, speeds="")
        (self._task,) = self._bar.tasks
        self._next = 0.0

    def __call__(self, entry: Mapping[str, Any]) -> None:
        step, evaluating = entry["step"], False
        if entry["kind"] == "evaluate":
            score = f"  score {entry['score']:.4f}" if "score" in entry else ""
            self._print(f"step {step:>7,} held-out loss {entry['loss']:.4f}{score}")
            return
        if entry["kind"] == "train":
            self._task.fields["speeds"] = _speeds(entry)
        else:
            evaluating = entry["evaluating"]
        left = self._task.time_remaining
        clock = "" if left is None or step == entry["steps"] else f"{timedelta(seconds=round(left))} left"
        what = "evaluating" if evaluating else clock
        self._bar.update(self._task.id, completed=step, total=entry["steps"], description=what, visible=True)
        is_last = entry["kind"] == "train" and step == entry["steps"]
        if self._bar.disable and self._task.fields["speeds"] and (time.monotonic() >= self._next or is_last):
            self._next = time.monotonic() + LINES
            self._print(f"step {step:>7,} of {entry['steps']:,}  {self._task.fields['speeds']}  {what}".rstrip())

    def _print(self, line: str) -> None:
        if self._bar.disable:
            print(line, file=sys.stderr, flush=True)
        else:
            self._bar.console.print(line, highlight=False)

    def __enter__(self) -> Teller:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def teller() -> Teller:
    """What suits standard error."""
    return Teller(Console(stderr=True))


def _speeds(entry: Mapping[str, Any]) -> str:
    text = f"loss {entry['loss']:.4f}"
    if entry["tokens_per_second"]:
        text += f"  {entry['tokens_per_second']:,.0f} tokens/s"
    if entry["mfu"]:
        text += f"  {entry['mfu']:.0%} of peak"
    return text
