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
from typing import Any, Literal, Protocol

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
    """How a job ended: `done` with the value of its function, `failed` with an error, `died` with its process."""

    status: Status
    value: Any = None
    reason: str | None = None
    code: int = 1


class Handle(ABC):
    """A job that was submitted; `end` is set once it has ended."""

    def __init__(self, executor: Executor, name: str):
        self.executor, self.name = executor, name
        self.end: End | None = None

    @abstractmethod
    def status(self) -> Status: ...

    def wait(self, timeout: float | None = None) -> End | None:
        """The job's end; None where it has none within `timeout` seconds."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        while self.status() in ("waiting", "running") and (left := until - time.monotonic()) > 0:
            self.executor.wait(min(left, LOOK))
        return self.end

    def logs(self) -> str:
        """What the job, and what ran in its process before and after it, has printed."""
        return f"It is in {self.executor.log}."

    @abstractmethod
    def cancel(self, number: int = signal.SIGTERM) -> None:
        """Have the job save its run and leave; another signal that a run knows may ask for another end."""


class Executor(Protocol):
    slots: int  # jobs that run at the same time, at most: to submit more brings nothing forward
    log: str  # where the jobs' output is

    def submit(
        self, name: str, function: Callable[..., Any], *arguments: Any, resources: Resources = ONE_THREAD
    ) -> Handle: ...

    def wait(self, timeout: float) -> None:
        """Return when a job has ended, or after `timeout` seconds."""
        ...

    def close(self) -> None:
        """Have all jobs save their runs and leave; those that cannot within a minute are killed."""
        ...


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
