"""Batches made ahead of the step that takes them, by one thread: numpy leaves the interpreter free while it works."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def ahead(make: Callable[[Item], Made], items: Iterable[Item], depth: int) -> Iterator[Made]:
    """`make(item)` for each item in order, up to `depth` of them made before they are asked for.

    An error of `make` is raised where its item would have come.
    """
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
