"""Listeners to a run's entries, each in a thread of its own: none can hold the training up or fail it."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

MOST = 10_000  # entries that may wait; further ones are dropped, and counted

logger = logging.getLogger(__name__)

Entry = Mapping[str, Any]


class BackgroundListener:
    """Hands entries to `tell`, which takes them one after the other until there are no more, under the name `name`."""

    def __init__(self, name: str, tell: Callable[[Iterator[Entry]], None], patience: float):
        self._name, self._tell, self._patience = name, tell, patience
        self._waiting: queue.Queue[Entry | None] = queue.Queue(MOST)
        self._dropped = 0
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def __call__(self, entry: Entry) -> None:
        try:
            self._waiting.put_nowait(entry)
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Let it take what is left, for at most `patience` seconds."""
        while True:
            try:
                self._waiting.put_nowait(None)
                break
            except queue.Full:
                self._waiting.get_nowait()
                self._dropped += 1
        self._thread.join(self._patience)
        if self._thread.is_alive():
            logger.warning("%s did not finish in time; the ledger has everything", self._name)
        if self._dropped:
            logger.warning("%s was too slow for %d entries; the ledger has them", self._name, self._dropped)

    def _work(self) -> None:
        try:
            self._tell(iter(self._waiting.get, None))
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            logger.warning("%s: %s; the run goes on without it", self._name, reason)
