"""What a W&B server knows: projects, sweeps with their agents, runs with their history."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from tests.wandb_server import draw

ENTITY = "me"
PAGE = 1_000  # rows of a history that one answer holds


@dataclass
class Run:
    """One run; `rows` are its history by step."""

    project: str
    name: str
    number: int
    sweep: str | None = None
    given: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    drawn: dict[str, Any] = field(default_factory=dict)  # by its sweep
    summary: dict[str, Any] = field(default_factory=dict)
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    state: str = "running"
    exitcode: int | None = None
    stopped: bool = False

    @property
    def id(self) -> str:
        return f"run:{self.project}:{self.name}"

    @property
    def last_step(self) -> int:
        return max(self.rows, default=-1)

    def keys(self) -> dict[str, Any]:
        """What W&B calls historyKeys."""
        counts: dict[str, int] = {}
        for row in self.rows.values():
            for key in row:
                counts[key] = counts.get(key, 0) + 1
        keys = {key: {"typeCounts": [{"type": "number", "count": count}]} for key, count in counts.items()}
        return {"keys": keys, "sets": [], "lastStep": self.last_step}

    def live(self, keys: list[str] | None) -> list[dict[str, Any]]:
        """The rows that are not yet exported: those that have every asked key."""
        rows = [self.rows[step] for step in sorted(self.rows)]
        return [row for row in rows if all(key in row for key in keys or ())]

    def page(self, first: int, end: int, samples: int) -> list[str]:
        steps = sorted(step for step in self.rows if first <= step < end)
        return [json.dumps(self.rows[step]) for step in steps[: min(samples, PAGE)]]


@dataclass
class Sweep:
    name: str
    project: str
    config: dict[str, Any]
    drawn: Iterator[dict[str, Any]]
    state: str = "RUNNING"
    runs: list[str] = field(default_factory=list)


class World:
    """One server's state; its methods are what the queries ask for. Every method is called under the lock."""

    def __init__(self, seed: int = 0):
        self.lock = threading.RLock()
        self.chance = random.Random(seed)
        self.sweeps: dict[str, Sweep] = {}
        self.runs: dict[str, Run] = {}
        self.agents: dict[str, str] = {}
        self.claims: list[tuple[str, str]] = []  # (agent, run) in the order in which runs were handed out

    # Queries

    def viewer(self) -> dict[str, Any]:
        teams = {"edges": [{"node": {"name": ENTITY}}]}
        return {
            "id": "u",
            "entity": ENTITY,
            "username": ENTITY,
            "name": ENTITY,
            "email": "",
            "admin": False,
            "flags": "{}",
            "teams": teams,
        }

    def known_project(self, name: str | None = None, entityName: str | None = None) -> dict[str, Any] | None:
        """A project that something was sent to; null where nothing was."""
        known = {run.project for run in self.runs.values()} | {sweep.project for sweep in self.sweeps.values()}
        return self.project(name, entityName) if name in known else None

    def project(self, name: str | None = None, entityName: str | None = None) -> dict[str, Any]:
        own = [run for run in self.runs.values() if run.project == name]
        return {
            **self._project(name or ""),
            "internalId": "1",
            "readOnly": False,
            "sweep": lambda sweepName: self._sweep(self.sweeps.get(sweepName)),
            "run": lambda name: self._run(self._found(own, name)),
            "bucket": lambda name, missingOk=False: self._run(self._found(own, name)),
            "runCount": lambda filters=None: len(self._filtered(own, filters)),
            "runs": lambda filters=None, after=None, first=50, order=None: self._connection(
                self._filtered(own, filters), after, first
            ),
        }

    def _project(self, name: str) -> dict[str, Any]:
        return {"id": f"project:{name}", "name": name, "entity": {"id": ENTITY, "name": ENTITY}}

    def _found(self, own: list[Run], name: str) -> Run | None:
        return next((run for run in own if run.name == name), None)

    def _filtered(self, own: list[Run], filters: str | None) -> list[Run]:
        wanted = json.loads(filters or "{}")
        sweep = wanted.get("sweep")
        return [run for run in own if sweep is None or run.sweep == sweep]

    def _connection(self, own: list[Run], after: str | None, first: int) -> dict[str, Any]:
        begin = int(after) if after else 0
        page = own[begin : begin + first]
        edges = [{"cursor": str(begin + at + 1), "node": self._run(run)} for at, run in enumerate(page)]
        end = begin + len(page)
        return {
            "edges": edges,
            "pageInfo": {"endCursor": str(end), "hasNextPage": end < len(own)},
            "totalCount": len(own),
        }

    def _sweep(self, sweep: Sweep | None) -> dict[str, Any] | None:
        if sweep is None:
            return None
        own = [self.runs[name] for name in sweep.runs]
        return {
            "id": f"sweep:{sweep.name}",
            "name": sweep.name,
            "method": sweep.config["method"],
            "state": sweep.state,
            "description": sweep.config.get("description"),
            "config": yaml.safe_dump(sweep.config),
            "displayName": sweep.config.get("name"),
            "project": self._project(sweep.project),
            "priorRuns": {"edges": []},
            "runCount": len(own),
            "runs": lambda **asked: self._connection(own, asked.get("after"), asked.get("first") or 1000),
        }

    def _run(self, run: Run | None) -> dict[str, Any] | None:
        if run is None:
            return None
        return {
            "id": run.id,
            "name": run.name,
            "displayName": run.given.get("displayName") or run.name,
            "projectId": "1",
            "project": self._project(run.project),
            "sweepName": run.sweep,
            "state": run.state,
            "config": json.dumps(run.config),
            "group": run.given.get("groupName"),
            "jobType": run.given.get("jobType"),
            "tags": run.given.get("tags") or [],
            "createdAt": "2026-01-01T00:00:00Z",
            "heartbeatAt": "2026-01-01T00:00:00Z",
            "readOnly": False,
            "summaryMetrics": json.dumps(run.summary),
            "historyLineCount": len(run.rows),
            "logLineCount": 0,
            "eventsLineCount": 0,
            "historyTail": json.dumps([json.dumps(run.rows[run.last_step])] if run.rows else []),
            "eventsTail": "[]",
            "historyKeys": run.keys,
            "wandbConfig": "{}",
            "stopped": run.stopped,
            "shouldStop": run.stopped,
            "running": run.state == "running",
            "failed": run.state in ("failed", "crashed"),
            "exitcode": run.exitcode,
            "user": {"name": ENTITY, "username": ENTITY},
            "history": lambda minStep=0, maxStep=None, samples=500: run.page(minStep, maxStep or 1 << 60, samples),
            "parquetHistory": lambda liveKeys=None: {"parquetUrls": [], "liveData": run.live(liveKeys)},
        }

    # Mutations

    def upsert_sweep(self, input: dict[str, Any]) -> dict[str, Any]:
        name = str(input.get("id") or "").removeprefix("sweep:")
        sweep = self.sweeps.get(name)
        if sweep is None:
            name = f"s{len(self.sweeps):07d}"
            config = yaml.safe_load(input["config"])
            project = input.get("projectName") or "uncategorized"
            sweep = Sweep(name, project, config, draw.configs(config, self.chance))
            self.sweeps[name] = sweep
        elif input.get("config"):
            sweep.config = yaml.safe_load(input["config"])
            handed = [self.runs[name].drawn for name in sweep.runs] if sweep.config["method"] == "grid" else []
            sweep.drawn = (one for one in draw.configs(sweep.config, self.chance) if one not in handed)
        sweep.state = input.get("state") or sweep.state
        return {"sweep": self._sweep(sweep), "configValidationWarnings": []}

    def create_agent(self, input: dict[str, Any]) -> dict[str, Any]:
        name = f"agent{len(self.agents)}"
        self.agents[name] = input["sweep"]
        return {"agent": {"id": name}}

    def agent_heartbeat(self, input: dict[str, Any]) -> dict[str, Any]:
        agent = input["id"]
        sweep = self.sweeps[self.agents[agent]]
        at_work = json.loads(input.get("runState") or "{}")
        commands = [{"type": "stop", "run_id": name} for name in at_work if self.runs[name].stopped]
        if not at_work:
            commands = [self._next(agent, sweep)]
        return {"agent": {"id": agent}, "commands": json.dumps(commands)}

    def _next(self, agent: str, sweep: Sweep) -> dict[str, Any]:
        cap = sweep.config.get("run_cap")
        if sweep.state != "RUNNING" or (cap is not None and len(sweep.runs) >= cap):
            return {"type": "exit"}
        drawn = next(sweep.drawn, None)
        if drawn is None:
            return {"type": "exit"}
        name = f"r{len(self.runs):07d}"
        self.runs[name] = Run(sweep.project, name, len(self.runs), sweep.name)
        self.runs[name].config = {key: {"value": value} for key, value in drawn.items()}
        self.runs[name].drawn = drawn
        sweep.runs.append(name)
        self.claims.append((agent, name))
        args = {key: {"value": value} for key, value in drawn.items()}
        return {"type": "run", "run_id": name, "args": args, "program": sweep.config.get("program", "")}

    def upsert_bucket(self, input: dict[str, Any]) -> dict[str, Any]:
        name = input.get("name") or str(input["id"]).rpartition(":")[2]
        new = name not in self.runs
        run = self.runs.setdefault(name, Run(input.get("modelName") or "uncategorized", name, len(self.runs)))
        run.given |= {key: value for key, value in input.items() if value is not None}
        run.config |= json.loads(input.get("config") or "{}")
        run.state = "running"
        if input.get("sweep") and run.sweep is None:
            run.sweep = input["sweep"]
        return {"bucket": self._run(run), "inserted": new}

    def create_run_files(self, input: dict[str, Any], base: str) -> dict[str, Any]:
        files = [{"name": name, "uploadUrl": f"{base}/upload/{name}"} for name in input["files"]]
        return {"runID": input["runName"], "uploadHeaders": [], "files": files}

    def file_stream(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """History and summary lines as they come, each at its offset."""
        run = self.runs[name]
        for file, chunk in body.get("files", {}).items():
            for at, line in enumerate(chunk["content"], start=chunk.get("offset", 0)):
                if file == "wandb-history.jsonl":
                    row = json.loads(line)
                    run.rows.setdefault(row["_step"], {}).update(row)
                elif file == "wandb-summary.json":
                    run.summary = json.loads(line)
                run.lines[file] = max(run.lines.get(file, 0), at + 1)
        if body.get("complete"):
            run.exitcode = body.get("exitcode", 0)
            run.state = "finished" if run.exitcode == 0 else "failed"
        return {"stopped": True} if run.stopped else {}
