"""How far a long job is: a bar for a person at a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_EVERY = 10.0  # seconds between lines in a log
Advance = Callable[[int], None]


@contextmanager
def bar(title: str, total: int | None) -> Iterator[Advance]:
    """What to call with the bytes that were done; MB/s and, where `total` is known, the time left are shown."""
    if not sys.stderr.isatty():
        yield _lines(title, total)
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(title, total=total)
        yield lambda count: shown.advance(task, count)


def _lines(title: str, total: int | None) -> Advance:
    start = last = time.monotonic()
    done = 0

    def advance(count: int) -> None:
        nonlocal last, done
        done += count
        now = time.monotonic()
        if now - last < _EVERY:
            return
        last = now
        rate = done / (now - start)
        left = "" if total is None else f" of {total / 1e6:.0f} MB, {max(0.0, total - done) / rate:.0f} s left"
        print(f"{title}: {done / 1e6:.0f} MB{left}, {rate / 1e6:.1f} MB/s", file=sys.stderr)

    return advance
