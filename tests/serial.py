"""Executors and plans in the process of a test: no process is started, and what a test has patched holds."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from scaling.executors import ONE_THREAD, End, Handle, Resources, Status, ended
from scaling.ledger import Ledger
from scaling.studies.machine import Size
from scaling.studies.plan import Plan
from scaling.studies.scheduler import Runs, Unfinished, unfinished


class Done(Handle):
    def __init__(self, executor: Serial, name: str, end: End):
        super().__init__(executor, name)
        self.ended = self.end = end

    def status(self) -> Status:
        return self.ended.status

    def cancel(self, number: int = signal.SIGTERM) -> None: ...


class Serial:
    """Does a job as it is submitted."""

    slots, log = 1, "standard error"

    def submit(
        self, name: str, function: Callable[..., Any], *arguments: Any, resources: Resources = ONE_THREAD
    ) -> Done:
        return Done(self, name, ended(name, function, arguments))

    def wait(self, timeout: float) -> None:
        time.sleep(0.01)

    def close(self) -> None: ...


def work(ledger: Ledger, plan: Plan) -> Unfinished | None:
    """Train a plan that was entered."""
    runs = Runs(Serial(), ledger, Size(1), plan)
    runs.work()
    return unfinished(ledger, plan, runs)
