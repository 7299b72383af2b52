"""Standard error, on which progress is shown: that it cannot be written is no reason to stop what it is about.

Its reader may leave (`2>&1 | head`), its terminal may close, the disk of its log may fill. A run of hours goes on, and
its result, its log and its exit code report what the lost lines would have shown.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO


class Unbreakable:
    """A stream that falls silent where it cannot be written."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            self._silence()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._silence()

    def _silence(self) -> None:
        """Nowhere to write to from now on, for what is buffered too, and for libraries that write by themselves."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def say(what: object) -> None:
    """Print a line for a person to read."""
    print(f"scaling: {what}", file=sys.stderr, flush=True)


def keep_going() -> None:
    """Let this process outlive its standard error."""
    if sys.stderr is not None and not isinstance(sys.stderr, Unbreakable):
        sys.stderr = Unbreakable(sys.stderr)  # type: ignore[assignment]


EVERY = 10.0  # seconds between lines of progress


def progress(title: str, total: int | None) -> Callable[[int], None]:
    """A function to call with the bytes that were done; MB/s and, where `total` is known, the time left are shown."""
    start = last = time.monotonic()
    done = 0

    def advance(count: int) -> None:
        nonlocal last, done
        done += count
        now = time.monotonic()
        if now - last >= EVERY:
            last, rate = now, done / (now - start)
            left = "" if total is None else f" of {total / 1e6:.0f} MB, {max(0.0, total - done) / rate:.0f} s left"
            print(f"{title}: {done / 1e6:.0f} MB{left}, {rate / 1e6:.1f} MB/s", file=sys.stderr)

    return advance
