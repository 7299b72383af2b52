"""Standard error, on which progress is shown: a run goes on where it cannot be written.

The reader may leave (`2>&1 | head`), the terminal may close, the disk of the log may fill. The result, the log and the
exit code of the run report what the lost lines would have shown.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable
from typing import Any


class Unbreakable(io.FileIO):
    """A file that falls silent where it cannot be written, for libraries that write to its descriptor too."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return len(data)


def say(what: object) -> None:
    """Print a line for a person to read."""
    print(f"scaling: {what}", file=sys.stderr, flush=True)


def keep_going() -> None:
    """Let this process outlive its standard error, and escape what its standard output cannot spell."""
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if isinstance(sys.stdout, io.TextIOWrapper):  # a notebook's is none
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is None:  # it was closed, and `print` would write to standard output
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
        return
    file = io.BufferedWriter(Unbreakable(sys.stderr.fileno(), "w", closefd=False))
    sys.stderr = io.TextIOWrapper(file, sys.stderr.encoding, sys.stderr.errors, line_buffering=True)


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
            left = ""
            if total is not None and done <= total:  # the size on disk, which compressed text exceeds
                left = f" of {total / 1e6:.0f} MB, {(total - done) / rate:.0f} s left"
            print(f"{title}: {done / 1e6:.0f} MB{left}, {rate / 1e6:.1f} MB/s", file=sys.stderr)

    return advance
