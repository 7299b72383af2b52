"""Parent: a process that was started to work for another one ends with it, however that one ended.

Ranks of a run would otherwise continue to train, on cores and devices that the next command takes to be free. They are
killed, because what is killed cannot hang; a run continues from its last checkpoint. Only processes started with
`named()` in their environment are concerned.
"""

from __future__ import annotations

import os
import signal
import threading
import time

NAME = "SCALING_PARENT"  # the environment variable that holds the parent's process id
LOOK = 0.5  # seconds between looks at who the parent is


def named() -> dict[str, str]:
    """What this process adds to the environment of one that is to end with it."""
    return {NAME: str(os.getpid())}


def follow() -> None:
    """End with the parent that the environment names; without one, do nothing.

    A thread sees that another process has taken the parent's place.
    """
    parent = os.environ.pop(NAME, None)  # its own children have another parent
    if parent is not None:
        _end_without(int(parent))  # it may have ended already
        threading.Thread(target=_watch, args=(int(parent),), name="parent", daemon=True).start()


def _watch(parent: int) -> None:
    while True:
        time.sleep(LOOK)
        _end_without(parent)


def _end_without(parent: int) -> None:
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
