"""Trials: the cells that a local sweep has drawn, what came of each, and which is to be trained next."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaling.sweeps.file import Cell, Sweep
from scaling.sweeps.search import Search
from scaling.sweeps.table import name

if TYPE_CHECKING:
    from scaling.sweeps.worker import Report

RETRIES = 1  # of a cell whose worker died or whose run failed; a divergence is a result
PATIENCE = 5.0  # seconds until a run that another worker has is asked for again


@dataclass
class Trial:
    """A cell that was drawn, and what came of it."""

    number: int
    cell: Cell
    report: Report | None = None
    values: list[float] = field(default_factory=list)  # of the metric so far, lower better
    failures: int = 0
    not_before: float = 0.0

    @property
    def is_missing(self) -> bool:
        """Whether it has no result."""
        return self.report is None or self.report.outcome in ("failed", "refused")

    def __str__(self) -> str:
        if self.report is None:
            return f"{name(self.cell)}  not trained"
        loss = "" if self.report.loss is None else f", loss {self.report.loss:.4f}"
        why = f": {self.report.reason}" if self.report.reason and self.is_missing else ""
        return f"{name(self.cell)}  {self.report.outcome}{loss}{why}"


@dataclass
class Trials:
    """The trials of one sweep: those drawn, those to be tried again, and what the search hears of them."""

    sweep: Sweep
    search: Search
    tell: Callable[[Trial], None]
    drawn: list[Trial] = field(default_factory=list)
    again: list[Trial] = field(default_factory=list)

    def following(self) -> Trial | None:
        """What to train next, None where there is nothing at the moment."""
        ready = next((trial for trial in self.again if trial.not_before <= time.monotonic()), None)
        if ready is not None:
            self.again.remove(ready)
            return ready
        cell = self.search.draw()
        if cell is None:
            return None
        self.drawn.append(Trial(len(self.drawn), cell))
        return self.drawn[-1]

    def ended(self, trial: Trial, report: Report) -> None:
        """Take a report for the trial's end, or put the trial back."""
        trial.failures += report.outcome == "failed"
        if report.outcome == "busy" or (report.outcome == "failed" and trial.failures <= RETRIES):
            trial.not_before = time.monotonic() + (PATIENCE if report.outcome == "busy" else 0.0)
            self.again.append(trial)
            return
        trial.report, trial.values = report, report.values
        self.search.hear(trial.number, report.outcome, report.values[-1] if report.values else None)
        self.tell(trial)

    def stops(self, trial: Trial) -> bool:
        """Whether hyperband stops a trial with the values it has now."""
        others = [other.values for other in self.drawn if other is not trial and other.values]
        return self.sweep.hyperband is not None and self.sweep.hyperband.stops(trial.values, others)
