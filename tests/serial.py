"""Executors and plans in the process of a test: no process is started, and what a test has patched holds."""

from __future__ import annotations

import time

from scaling.executors import Executor, Handle, ended
from scaling.ledger import Ledger
from scaling.studies.machine import Size
from scaling.studies.plan import Plan, enter
from scaling.studies.scheduler import Runs, Unfinished, unfinished


class Serial(Executor):
    """Does a job as it is submitted."""

    def __init__(self):
        super().__init__(1, "standard error")

    def begin(self) -> None:
        for handle in self.waiting:
            handle.end = ended(*handle.call)
        self.waiting.clear()

    def wait(self, timeout: float) -> None:
        time.sleep(0.01)

    def kill(self, handle: Handle, number: int) -> None: ...

    def close(self) -> None: ...


def work(ledger: Ledger, plan: Plan) -> Unfinished | None:
    """Enter a plan and train it."""
    enter(ledger, plan)
    runs = Runs(Serial(), ledger, Size(1), plan)
    runs.work()
    return unfinished(ledger, plan, runs)
