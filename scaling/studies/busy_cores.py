"""Busy cores: processes that keep the other cores busy while something is timed, as workers will."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

Work = Callable[[], None]


@contextmanager
def busy_cores(number: int, begin: Callable[[], Work]) -> Iterator[None]:
    """`number` processes that repeat what `begin` gives them, until the block ends or this process is gone.

    They are forked, so nothing is imported again; none where a device is in use, which a fork would not survive.
    """
    processes: list[int] = []
    try:
        if not torch.cuda.is_initialized():
            ready = [_forked(begin, processes) for _ in range(number)]
            for pipe in ready:
                os.read(pipe, 1)
                os.close(pipe)
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def _forked(begin: Callable[[], Work], processes: list[int]) -> int:
    """One more, and a pipe that can be read as soon as it has started or failed."""
    parent = os.getpid()
    reader, writer = os.pipe()
    process = os.fork()
    if process:
        processes.append(process)
        os.close(writer)
        return reader
    try:
        os.close(reader)
        deed = begin()
        os.close(writer)
        while os.getppid() == parent:
            deed()
    finally:
        os._exit(0)  # this process is a copy: what its parent would clean up or report is not its own
