"""Online: a project's or a sweep's runs from a W&B server; all of it takes a bounded time.

Runs are listed by the client's own `Api`, their histories read page by page, which the client asks for in the same
words: its scan makes and parses a message of every number. What is found is held to what the server counts. Where rows
are missing the client scans after all, and then once more for each key that still falls short, since its `history()`
samples, and `scan_history(keys=[…])` leaves out every row that lacks one of the keys.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from scaling.errors import ScalingError
from scaling.sweeps.pull.history_check import Fetched, fetched, merged, short
from scaling.sweeps.pull.paged import PAGE, Pages, page, readers
from scaling.sweeps.pull.wandb_run import History, WandbRun
from scaling.sweeps.server import Server

RUNS = 100  # of one page of the list
AT_ONCE = 8  # histories under way
PATIENCE = 150.0  # seconds in which a page has to come
# What the client's own requests may take: five more tries, of at most half a minute each, and as long between them.
SETTINGS: dict[str, Any] = {
    "x_graphql_retry_max": 5,
    "x_graphql_retry_wait_min_seconds": 1,
    "x_graphql_retry_wait_max_seconds": 30,
    "x_graphql_timeout_seconds": 30,
}
PROJECT = """query Project($entity: String, $project: String!, $sweep: String!) {
  project(name: $project, entityName: $entity) { id runCount sweep(sweepName: $sweep) { id } }
}"""
T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """A project, or one sweep of it."""

    entity: str
    project: str
    sweep: str | None

    def __str__(self) -> str:
        return "/".join(part for part in (self.entity, self.project, self.sweep) if part)


def find(name: str) -> Place:
    """The project or sweep of a name: PROJECT, ENTITY/PROJECT, or ENTITY/PROJECT/SWEEP."""
    parts = name.split("/")
    if len(parts) > 3 or not all(parts):
        raise ScalingError("expected ENTITY/PROJECT or ENTITY/PROJECT/SWEEP", key="PROJECT", value=name)
    server = Server.needed(**SETTINGS)
    own = server.entity()
    entity = parts.pop(0) if len(parts) > 1 else os.environ.get("WANDB_ENTITY") or own
    project, sweep = parts[0], parts[1] if len(parts) > 1 else None
    variables = {"entity": entity, "project": project, "sweep": sweep or ""}
    answer = server.first(PROJECT, variables)["project"]
    if answer is None:
        raise ScalingError("W&B has no such project", key="PROJECT", value=f"{entity}/{project}")
    if sweep is not None and answer["sweep"] is None:
        raise ScalingError("W&B has no such sweep", key="SWEEP", value=name)
    return Place(entity, project, sweep)


class Online:
    """The runs of a place. `listed` has all of them; `histories` fetches some, a few at a time."""

    def __init__(self, place: Place):
        import wandb

        self.place = place
        self._server = Server.needed(**SETTINGS)
        self._api = _patient(lambda: wandb.Api(timeout=60))
        self._runs: dict[str, Any] = {}

    def listed(self) -> list[WandbRun]:
        """Every run, without its history; paged, and compared with the server's own count."""
        place = self.place
        filters = {"sweep": place.sweep} if place.sweep else {}
        runs = self._api.runs(f"{place.entity}/{place.project}", filters, per_page=RUNS, lazy=False)
        listed = _patient(lambda: list(runs))
        self._runs = {f"{place.entity}/{place.project}/{run.id}": run for run in listed}
        if len(self._runs) < (total := len(runs)):
            raise ScalingError(f"W&B lists {len(self._runs)} of {total} runs", fix="try again", code=1)
        return [_shown(path, run) for path, run in self._runs.items()]

    def sweeps(self, names: Collection[str]) -> dict[str, Mapping[str, Any]]:
        """The files of sweeps, as the server has them."""
        place = self.place
        return {
            name: _patient(lambda name=name: self._api.sweep(f"{place.entity}/{place.project}/{name}").config)
            for name in names
        }

    def histories(self, runs: list[WandbRun]) -> Iterator[tuple[WandbRun, Fetched]]:
        """The histories, as they come."""
        pages = Pages(self._server, self.place.entity, self.place.project, PATIENCE)
        waiting = iter(runs)
        under_way: dict[Future[Fetched], WandbRun] = {}
        with readers(len(runs), AT_ONCE) as pool:
            while True:
                while len(under_way) < AT_ONCE and (run := next(waiting, None)) is not None:
                    under_way[pool.submit(pages.fetch, self._runs[run.path].id, run)] = run
                if not under_way:
                    return
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    run = under_way.pop(future)
                    history = _patient(future.result)
                    if history.missing:
                        history = _patient(lambda run=run: fetched(self._scanned(run), run))
                    yield run, history

    def _scanned(self, shown: WandbRun) -> History:
        run = self._runs[shown.path]
        history = merged(History(), run.scan_history(page_size=page(shown), use_cache=False))
        for key in short(history, shown):
            merged(history, run.scan_history(keys=[key], page_size=PAGE, use_cache=False))
        return history


def _shown(path: str, run: Any) -> WandbRun:
    keys, summary = run.history_keys or {}, dict(run.summary_metrics)
    counts = {
        key: sum(kind.get("count", 0) for kind in entry["typeCounts"])
        for key, entry in (keys.get("keys") or {}).items()
    }
    return WandbRun(
        path=path,
        name=run.name,
        state=run.state,
        created=run.created_at,
        config=run.config,
        summary=summary,
        sweep=run.sweep_name,
        trunk=run.job_type == "trunk",
        lines=run.history_line_count,
        counts=counts,
        last=max(keys.get("lastStep", -1), summary.get("_step", -1)),
        beat=run.heartbeat_at or "",
    )


def _patient(call: Callable[[], T]) -> T:
    """What a call of the client's finds. It has tried again by itself, as often and as late as the server asked."""
    logging.getLogger("wandb").setLevel(logging.CRITICAL)
    try:
        return call()
    except ScalingError:
        raise
    except Exception as error:
        why = " ".join(str(error).split())[:200]
        raise ScalingError(f"W&B: {why}", fix="the same command goes on where this one stopped", code=1) from None
