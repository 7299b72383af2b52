"""Lock: a file that says who works in a folder. Whoever creates it has the right to; nobody waits for a dead process.

    lock    JSON: host, boot, process namespace, process, its start, and a random token

The holder touches the file every 15 seconds. A lock is taken over at once where its process is known to be gone (same
boot, same process namespace), never while that process is known to run, and where nothing is known of it, as on another
machine, after 180 seconds without a touch. Both times are the file system's: no machine's clock decides. A holder that
was wrongly thought dead finds another token in the file, and has then lost the lock.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from scaling import atomic
from scaling.ledger.document import disk

State = Literal["free", "held", "abandoned"]


@dataclass(frozen=True)
class Machine:
    """A host name for people, and an identifier of the machine or container; None where it cannot be known."""

    host: str
    boot_id: str | None
    process_namespace: str | None


@dataclass(frozen=True)
class Lease:
    """Seconds between two touches, and seconds of silence after which a lock counts as abandoned."""

    beat: float = 15.0
    silence: float = 180.0


@cache
def this_machine() -> Machine:
    return Machine(socket.gethostname(), atomic.boot_id(), atomic.process_namespace())


class Lock:
    """A lock as one process sees it: `take` it, `start` to touch it in a thread, and `release` it."""

    def __init__(self, path: Path, lease: Lease | None = None, machine: Machine | None = None):
        self.path, self.lease, self.machine = path, lease or Lease(), machine or this_machine()
        self.holder = {**asdict(self.machine), "pid": os.getpid(), "process_started": _started(os.getpid())}
        self.lost = False
        self._content = json.dumps({**self.holder, "token": secrets.token_hex(16)}).encode()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lock", daemon=True)

    def take(self) -> bool:
        """Create the lock, in the place of an abandoned one too; False where it is held."""
        with disk("cannot lock a run"):
            if self._create(self._content):
                return True
            if (seen := _look(self.path)) is not None:
                if _state(seen, self.lease, self.machine, self._file_time) == "held":
                    return False
                aside = atomic.temporary(self.path)
                with suppress(FileNotFoundError):
                    os.rename(self.path, aside)
                    moved = _look(aside)
                    aside.unlink()
                    if moved is not None and moved != seen:  # another worker was quicker, or the holder lives
                        self._create(moved[0])
                        return False
            return self._create(self._content)

    def start(self) -> None:
        """Touch the lock from now on, until it is released or lost."""
        self._thread.start()

    def renew(self) -> None:
        """Touch the lock; where it is another's by now, it is lost."""
        try:
            with self.path.open("rb") as file:
                self.lost = self.lost or file.read() != self._content
                if not self.lost:
                    os.utime(file.fileno())
        except FileNotFoundError:
            self.lost = True

    def release(self) -> None:
        """Remove the lock, unless it is another's by now."""
        if not self._stopped.is_set():
            self._stopped.set()
            if self._thread.is_alive() and self._thread is not threading.current_thread():
                self._thread.join(self.lease.beat)
            with suppress(OSError):
                self.renew()
                if not self.lost:
                    self.path.unlink()

    def __enter__(self) -> Lock:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _run(self) -> None:
        while not self._stopped.wait(self.lease.beat) and not self.lost:
            with suppress(OSError):  # a touch that fails is one missed: at worst the run is trained twice
                self.renew()

    def _create(self, content: bytes) -> bool:
        try:
            file = self.path.open("xb")
        except FileExistsError:
            return False
        try:
            with file:
                file.write(content)
                atomic.flush(file)
        except OSError:
            self.path.unlink(missing_ok=True)
            raise
        return True

    def _file_time(self) -> float:
        """The time that the file system gives a file that is written now."""
        clock = atomic.temporary(self.path.with_name("clock"))
        try:
            clock.touch()
            return clock.stat().st_mtime
        finally:
            clock.unlink(missing_ok=True)


def state(path: Path, lease: Lease, machine: Machine) -> State:
    """Whether a lock is held, for listings: the age of another machine's is judged by the clock of this one."""
    seen = _look(path)
    return "free" if seen is None else _state(seen, lease, machine, time.time)


def last_touch(path: Path) -> float | None:
    """When a lock was touched, as Unix time; None where there is none."""
    seen = _look(path)
    return None if seen is None else seen[1]


def _state(seen: tuple[bytes, float], lease: Lease, machine: Machine, now: Callable[[], float]) -> State:
    runs = _runs(seen[0], machine)
    return "held" if runs or (runs is None and now() - seen[1] <= lease.silence) else "abandoned"


def _look(path: Path) -> tuple[bytes, float] | None:
    """What a lock holds, and when it was touched."""
    try:
        with path.open("rb") as file:  # opened, so that NFS asks its server
            return file.read(), os.fstat(file.fileno()).st_mtime
    except (FileNotFoundError, NotADirectoryError):
        return None


def _runs(content: bytes, machine: Machine) -> bool | None:
    """Whether the process that a lock names runs on this machine; None where nothing is known of it."""
    try:
        holder: Any = json.loads(content)
        pid, boot, namespace = holder["pid"], holder["boot_id"], holder["process_namespace"]
        if machine.boot_id is None or (boot, namespace) != (machine.boot_id, machine.process_namespace):
            return None
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # another user's process has this number
    except (ValueError, TypeError, KeyError):
        return None  # its writer was killed in the middle
    fields = _process(pid)
    # A zombie has ended; another start means that the number was given to a later process.
    return None if fields is None else fields[0] not in "ZX" and int(fields[19]) == holder.get("process_started")


def _started(pid: int) -> int | None:
    fields = _process(pid)
    return None if fields is None else int(fields[19])


def _process(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; the command before them may hold spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
