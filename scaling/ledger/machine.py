"""Machine: which machine this is, and whether a process that claimed a run is known to be gone from it.

Only a process of the same boot and the same process namespace can be looked up; of any other nothing is known here,
and its heartbeat has to show. A wrong answer costs a run done twice, never a damaged one.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scaling import atomic


@dataclass(frozen=True)
class Machine:
    """A host name for people, and an identifier of the machine or container; None where it cannot be known."""

    host: str
    boot_id: str | None
    process_namespace: str | None


@cache
def this_machine() -> Machine:
    return Machine(socket.gethostname(), atomic.boot_id(), atomic.process_namespace())


def signature(machine: Machine) -> dict[str, Any]:
    """Who is asking: the part of a claim that names the machine and the process."""
    return {**asdict(machine), "pid": os.getpid(), "process_started": _started(os.getpid())}


def is_gone(claim: Mapping[str, Any], machine: Machine) -> bool:
    """True where the claiming process ran on `machine` and runs no more; False where it runs, or nothing is known."""
    same_boot = machine.boot_id is not None and claim.get("boot_id") == machine.boot_id
    pid = claim.get("pid")
    if not same_boot or claim.get("process_namespace") != machine.process_namespace or not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False  # another user's process: it runs, and more is not ours to know
    fields = _stat(pid)
    # A zombie has ended; another start time means that the number was given to a later process.
    return fields is not None and (fields[0] in "ZX" or _started(pid) != claim.get("process_started"))


def _started(pid: int) -> int | None:
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; the command before them may hold spaces and brackets."""
    line = _first_line(f"/proc/{pid}/stat")
    return None if line is None else line.rpartition(")")[2].split()


def _first_line(path: str) -> str | None:
    try:
        return Path(path).read_text(errors="replace").partition("\n")[0]
    except OSError:
        return None
