"""Executors run the jobs of a study or a sweep, here or elsewhere: calls of functions. A handle reports how one ended.

The ledger holds what a job of training leaves; a handle reports what the ledger cannot: that a job's process died, or
that its function was refused before it came to the ledger.
"""

from __future__ import annotations

import math
import signal
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from scaling.base.errors import DISK, ScalingError, from_os

LOOK = 2.0  # seconds between looks at a job that is waited for

Status = Literal["waiting", "running", "done", "failed", "died", "cancelled"]


@dataclass(frozen=True)
class Resources:
    """What a job takes: threads of a CPU, a fraction of a GPU or a number of them, GB of the machine's memory, and the
    minutes after which a cluster may end it. The last two are the cluster's where they are None.
    """

    threads: int = 1
    gpus: float = 0.0
    memory: float | None = None
    minutes: float | None = None


ONE_THREAD = Resources()


@dataclass(frozen=True)
class End:
    """How a job ended: `done` with the value of its function, `failed` with an error, `died` with its process, by
    `signal` where one ended it, or `cancelled` before it began.
    """

    status: Status
    value: Any = None
    reason: str | None = None
    code: int = 1
    signal: int = 0


@dataclass(eq=False)
class Handle:
    """A job that was submitted: a call of a function. Its executor sets `place`, what does the job (a process, a job of
    a cluster), when it begins, and `end` when it has ended.
    """

    executor: Executor
    name: str
    call: tuple[Any, ...]
    resources: Resources
    place: Any = None
    end: End | None = None

    def status(self) -> Status:
        return self.end.status if self.end else "waiting" if self.place is None else "running"

    def wait(self, timeout: float = math.inf) -> End | None:
        """The job's end; None where it has none within `timeout` seconds."""
        until = time.monotonic() + timeout
        while self.end is None and (left := until - time.monotonic()) > 0:
            self.executor.wait(min(left, LOOK))
        return self.end

    def logs(self) -> str:
        """What the job, and what ran in its place before and after it, has printed, or where that is."""
        return self.executor.printed(self)

    def cancel(self, number: int = signal.SIGTERM) -> None:
        """Have the job save its run and leave; another signal that a run knows may ask for another end."""
        if self.status() == "running":
            self.executor.kill(self, number)
        elif self.end is None:
            self.executor.waiting.remove(self)
            self.end = End("cancelled")


class Executor(ABC):
    """A place where jobs run, at most `slots` at a time: to submit more brings nothing forward. What they print is in
    `log`; `waiting` has the jobs that have not begun.
    """

    def __init__(self, slots: int, log: str):
        self.slots, self.log = slots, log
        self.waiting: list[Handle] = []

    def submit(
        self, name: str, function: Callable[..., Any], *arguments: Any, resources: Resources = ONE_THREAD
    ) -> Handle:
        handle = Handle(self, name, (name, function, arguments), resources)
        self.waiting.append(handle)
        self.begin()
        return handle

    @abstractmethod
    def begin(self) -> None:
        """Begin those of the `waiting` jobs for which there is room."""

    @abstractmethod
    def wait(self, timeout: float) -> None:
        """Return when a job has ended, or after `timeout` seconds, with the ends of all that have ended set."""

    def printed(self, handle: Handle) -> str:
        file = Path(self.log)
        return file.read_text(errors="replace") if file.is_file() else f"It is in {self.log}."

    @abstractmethod
    def kill(self, handle: Handle, number: int) -> None:
        """Send a signal to a job that is running."""

    @abstractmethod
    def close(self) -> None:
        """Have all jobs save their runs and leave; those that cannot within a minute are killed."""


def ended(name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> End:
    """Call a job's function, in the process that was made for it. Standard error, its log, shows what goes wrong."""
    try:
        return End("done", function(*arguments))
    except Exception as error:
        if isinstance(error, OSError) and (full := from_os(error, "the operating system refused")).code == DISK:
            error = full
        is_mistake = isinstance(error, ScalingError)
        reason = str(error) if is_mistake else "".join(traceback.format_exception(error))
        print(f"{name}: {reason}", file=sys.stderr, flush=True)
        return End("failed", reason=" ".join(str(error).split())[:300], code=error.code if is_mistake else 1)
