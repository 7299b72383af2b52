"""Paged: the history of one run from a W&B server, page by page, in a process that does this and nothing else.

What takes time is reading and writing numbers, a few million a minute. Each process asks for a whole run and reads it;
what it hands back is the run's log, as bytes.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, parent_process

from scaling.sweeps.pull.history_check import Fetched, fetched, merged
from scaling.sweeps.pull.wandb_run import History, Row, WandbRun
from scaling.sweeps.server import Server

PAGE = 1_000  # rows that a server gives at once
DENSE = 0.5  # the fraction of a page that is requested of an evenly logged history
EACH = 25  # runs for which another process is worth its start
HISTORY = """query HistoryPage(
  $entity: String!, $project: String!, $run: String!, $minStep: Int64!, $maxStep: Int64!, $pageSize: Int!
) {
  project(name: $project, entityName: $entity) {
    run(name: $run) { history(minStep: $minStep, maxStep: $maxStep, samples: $pageSize) }
  }
}"""


@dataclass(frozen=True)
class Pages:
    """Where the runs of a project are asked for, and for how long at most."""

    server: Server
    entity: str
    project: str
    patience: float  # seconds in which a page has to come

    def fetch(self, run: str, shown: WandbRun) -> Fetched:
        history, size, steps = History(), page(shown), 0 if shown.last is None else shown.last + 1
        for first in range(0, steps, size):
            merged(history, self._rows(run, first, size))
        return fetched(history, shown)

    def _rows(self, run: str, first: int, size: int) -> list[Row]:
        """The rows of a page, each of which the server sends as a text of its own; none where the run is gone."""
        variables = {"entity": self.entity, "project": self.project, "run": run}
        variables |= {"minStep": first, "maxStep": first + size, "pageSize": size}
        project = self.server.ask(HISTORY, variables, self.patience)["project"] or {}
        rows = (project.get("run") or {}).get("history") or []
        return json.loads(f"[{','.join(rows)}]")


def page(run: WandbRun) -> int:
    """The steps to ask for at once: a server cuts a page off at PAGE rows, and rows may be many steps apart."""
    if not run.lines or run.last is None:
        return PAGE
    return max(PAGE, int(DENSE * PAGE * (run.last + 1) / run.lines))


@contextmanager
def readers(runs: int, most: int) -> Iterator[Executor]:
    """As many processes as these runs are worth. What is under way when the block is left is not waited for."""
    # Spawned: the client's threads would not survive a fork.
    pool = ProcessPoolExecutor(min(most, 1 + runs // EACH), get_context("spawn"), _alone)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _alone() -> None:
    """Ctrl-C ends it without a word, and so does the end of the process that asked, whatever that was."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
