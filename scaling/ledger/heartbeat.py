"""Heartbeat: a counter that a living worker moves on, and the watch by which others notice that it stopped.

Clocks of two machines disagree and file times are cached, so neither is trusted: an observer remembers when *its own*
monotonic clock last saw the counter change, and calls a worker stale after three minutes of looking in vain.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_ENDED = b"ended".ljust(20) + b"\n"


@dataclass(frozen=True)
class Lease:
    """Seconds between two beats, and seconds of silence after which a worker counts as stale."""

    beat: float = 15.0
    silence: float = 180.0


class Heartbeat:
    """Beats in a thread of its own until stopped; `beat` may be called from anywhere besides."""

    def __init__(self, path: Path, lease: Lease, at_each_beat: Callable[[], None]):
        # The counter is overwritten in place: that needs no new block on a full disk, no rename that would leave
        # readers over NFS with a stale handle, and a torn read is still a change.
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        self._lease, self._at_each_beat = lease, at_each_beat
        self._counter, self._lock, self._stopped = 0, threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self.beat()
        self._thread.start()

    def beat(self) -> None:
        with self._lock:
            if self._stopped.is_set():
                return
            self._counter += 1
            os.pwrite(self._handle, b"%020d\n" % self._counter, 0)
            os.fsync(self._handle)  # NFS hands it to the server only now

    def stop(self) -> None:
        with self._lock:
            if self._stopped.is_set():
                return
            self._stopped.set()
            # The last word fits in the counter's place, so it is written even when a full disk has no room for an exit.
            with suppress(OSError):
                os.pwrite(self._handle, _ENDED, 0)
            os.close(self._handle)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(self._lease.beat)

    def _run(self) -> None:
        while not self._stopped.wait(self._lease.beat):
            # A beat that cannot be written is a beat missed; training goes on, and at worst is done twice.
            with suppress(OSError):
                self.beat()
                self._at_each_beat()


@dataclass
class _Seen:
    counter: bytes | None
    looked: float
    silent: float


class Watch:
    """How long each heartbeat has been silent, as far as this observer has seen itself."""

    def __init__(self, lease: Lease, clock: Callable[[], float] = time.monotonic):
        self._lease, self._clock = lease, clock
        self._seen: dict[Path, _Seen] = {}

    def is_stale(self, path: Path) -> bool:
        """Look at a heartbeat; True once it has not moved for the lease's silence."""
        return has_ended(path) or self.silent(path) >= self._lease.silence

    def silent(self, path: Path) -> float:
        """The watched seconds for which a heartbeat has not moved."""
        now, counter = self._clock(), _counter(path)
        seen = self._seen.get(path)
        if seen is None or seen.counter != counter:
            self._seen[path] = _Seen(counter, now, 0.0)
            return 0.0
        # One look vouches for a third of the silence at most: an observer that was itself suspended together with
        # the worker (a paused machine, Ctrl-Z) must not count the pause against it.
        seen.silent += min(now - seen.looked, self._lease.silence / 3)
        seen.looked = now
        return seen.silent


def has_ended(path: Path) -> bool:
    """True where the worker itself has ended its heartbeat."""
    return _counter(path) == _ENDED


def _counter(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
