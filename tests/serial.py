"""Executors and plans in the process of a test: no process is started, and what a test has patched holds."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scaling.executors.executor import ONE_THREAD, End, Resources, Status, ended
from scaling.executors.scheduler import Scheduler
from scaling.ledger import Ledger
from scaling.studies.machine import Size
from scaling.studies.plan import Plan
from scaling.studies.scheduler import Runs, Unfinished, unfinished


@dataclass
class Done:
    name: str
    end: End

    def status(self) -> Status:
        return self.end.status

    def wait(self, timeout: float | None = None) -> End:
        return self.end

    def logs(self) -> str:
        return ""

    def cancel(self, number: int = signal.SIGTERM) -> None: ...


class Serial:
    """Does a job as it is submitted."""

    slots, log = 1, "standard error"

    def submit(
        self, name: str, function: Callable[..., Any], *arguments: Any, resources: Resources = ONE_THREAD
    ) -> Done:
        return Done(name, ended(name, function, arguments))

    def wait(self, timeout: float) -> None:
        time.sleep(0.01)

    def close(self) -> None: ...


def work(ledger: Ledger, plan: Plan) -> Unfinished | None:
    """Train a plan that was entered."""
    scheduler = Scheduler(Serial())
    runs = Runs(ledger, scheduler, Size(1), plan)
    scheduler.work(runs)
    return unfinished(ledger, plan, runs)
