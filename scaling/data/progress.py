"""How far a long job is: a line now and then on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

EVERY = 10.0  # seconds between lines


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
