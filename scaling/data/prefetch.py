"""Batches made ahead of the step that takes them, by one thread: numpy leaves the interpreter free while it works."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")

SHARE = 0.1  # of the time of a step: below it, two threads that take turns lose more than is gained
FADE = 0.8  # decay of the averaged fraction: a run's first steps are slow


def ahead(make: Callable[[Item], Made], items: Iterable[Item], depth: int) -> Generator[Made, None, None]:
    """`make(item)` for each item in order; where making takes long, up to `depth` are made before they are asked for.

    An error of `make` is raised where its item would have come.
    """
    left = iter(items)
    making = whole = 0.0
    for item in left:
        started = time.perf_counter()
        result = make(item)
        making = FADE * making + time.perf_counter() - started
        yield result
        whole = FADE * whole + time.perf_counter() - started
        if making > SHARE * whole:
            break
    yield from _by_a_thread(make, left, depth)


def _by_a_thread(make: Callable[[Item], Made], items: Iterator[Item], depth: int) -> Iterator[Made]:
    pool = ThreadPoolExecutor(1, thread_name_prefix="batches")
    waiting: deque[Future[Made]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(make, item))
            if len(waiting) > depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
