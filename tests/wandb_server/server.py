"""A small W&B server on 127.0.0.1: it answers what the client asks, keeps every byte, and fails when told to."""

import base64
import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml

ENTITY, KEY = "me", "c0ffee" * 6 + "beef"
PAGE = 1_000  # rows of a history that one answer holds
STREAM = re.compile(r"/files/[^/]+/[^/]+/([^/]+)/file_stream")
Answer = dict[str, Any]


@dataclass
class Run:
    """One run; `rows` are its history by step, and `lines` as many as the server says that it has."""

    project: str
    name: str
    sweep: str | None = None
    given: Answer = field(default_factory=dict)
    config: Answer = field(default_factory=dict)
    summary: Answer = field(default_factory=dict)
    rows: dict[int, Answer] = field(default_factory=dict)
    lines: int | None = None
    state: str = "running"
    stopped: bool = False

    def document(self, asked: Answer) -> Answer:
        steps = sorted(step for step in self.rows if asked.get("minStep", 0) <= step < asked.get("maxStep", 1 << 60))
        fixed = {"id": f"run:{self.project}:{self.name}", "name": self.name, "displayName": self.name, "jobType": None}
        fixed |= dict.fromkeys(("createdAt", "heartbeatAt"), "2026-01-01T00:00:00Z")
        return fixed | {
            "project": project_of(self.project),
            "sweepName": self.sweep,
            "state": self.state,
            "stopped": self.stopped,
            "config": json.dumps(self.config),
            "summaryMetrics": json.dumps(self.summary),
            "historyLineCount": len(self.rows) if self.lines is None else self.lines,
            "historyKeys": {"lastStep": max(self.rows, default=-1)},
            "history": [json.dumps(self.rows[step]) for step in steps[: min(asked.get("pageSize", 500), PAGE)]],
            "parquetHistory": {"parquetUrls": [], "liveData": []},
        }


@dataclass
class Sweep:
    name: str
    project: str
    config: Answer
    cells: Iterator[Answer]
    runs: list[str] = field(default_factory=list)

    def document(self) -> Answer:
        fixed = {"id": f"sweep:{self.name}", "name": self.name, "method": self.config["method"], "state": "RUNNING"}
        fixed |= {"project": project_of(self.project), "runs": {"edges": []}}
        return fixed | {"config": yaml.safe_dump(self.config), "runCount": len(self.runs)}


def project_of(name: str) -> Answer:
    return {"id": f"project:{name}", "name": name, "entity": {"id": ENTITY, "name": ENTITY}}


def cells(config: Answer) -> Iterator[Answer]:
    """The cells of a grid, as W&B hands them out."""
    lines = dict(sorted(config["parameters"].items()))
    rows = [line["values"] if "values" in line else range(line["min"], line["max"] + 1) for line in lines.values()]
    return (dict(zip(lines, values)) for values in itertools.product(*rows))


class World:
    """What the server knows; every method is called under the lock, with the variables of a query. An answer has more
    than the fields that were asked for.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.sweeps: dict[str, Sweep] = {}
        self.runs: dict[str, Run] = {}

    def answer(self, text: str, asked: Answer) -> Answer:
        if mutation := re.match(r"\s*mutation[^{]*\{\s*(\w+)", text):
            return {mutation[1]: getattr(self, re.sub("([A-Z])", r"_\1", mutation[1]).lower())(asked)}
        viewer = {"id": "u", "entity": ENTITY, "username": ENTITY}
        known = {each.project for each in (*self.runs.values(), *self.sweeps.values())}
        name = asked.get("project") or asked.get("projectName")
        model = self.project(name, asked) if name else None
        roots = {"viewer": viewer, "model": model, "project": model if name in known else None}
        return {**roots, "serverInfo": {"features": []}}

    def project(self, name: str, asked: Answer) -> Answer:
        """A project with the run, the sweep or the page of runs that is asked for."""
        wanted = json.loads(asked.get("filters") or "{}").get("sweep")
        own = [run for run in self.runs.values() if run.project == name and wanted in (None, run.sweep)]
        begin, named = int(asked.get("cursor") or 0), asked.get("runName") or asked.get("runId") or asked.get("run")
        end = begin + asked.get("perPage", 50)
        nodes = [{"cursor": str(end), "node": run.document(asked)} for run in own[begin:end]]
        run = next((run.document(asked) for run in own if run.name == (named or asked.get("name"))), None)
        sweep = self.sweeps.get(asked.get("sweep") or asked.get("name") or "")
        page = {"edges": nodes, "pageInfo": {"endCursor": str(end), "hasNextPage": end < len(own)}}
        one = {"run": run, "bucket": run, "sweep": sweep and sweep.document(), "runs": page, "runCount": len(own)}
        return {**project_of(name), **one}

    def upsert_sweep(self, asked: Answer) -> Answer:
        name, config = f"s{len(self.sweeps):07d}", yaml.safe_load(asked["config"])
        self.sweeps[name] = Sweep(name, asked["projectName"], config, cells(config))
        return {"sweep": self.sweeps[name].document(), "configValidationWarnings": []}

    def create_agent(self, asked: Answer) -> Answer:
        return {"agent": {"id": asked["sweep"]}}

    def agent_heartbeat(self, asked: Answer) -> Answer:
        sweep, at_work = self.sweeps[asked["id"]], json.loads(asked.get("runState") or "{}")
        commands: list[Answer] = [{"type": "stop", "run_id": name} for name in at_work if self.runs[name].stopped]
        if not at_work:
            drawn, name = next(sweep.cells, None), f"r{len(self.runs):07d}"
            commands = [{"type": "exit"}]
            if drawn is not None:
                args = {key: {"value": value} for key, value in drawn.items()}
                self.runs[name] = Run(sweep.project, name, sweep.name, config=args)
                sweep.runs.append(name)
                program = sweep.config.get("program", "")
                commands = [{"type": "run", "run_id": name, "args": args, "program": program}]
        return {"agent": {"id": asked["id"]}, "commands": json.dumps(commands)}

    def upsert_bucket(self, asked: Answer) -> Answer:
        name = asked.get("name") or str(asked["id"]).rpartition(":")[2]
        is_new = name not in self.runs
        run = self.runs.setdefault(name, Run(asked["project"], name, asked.get("sweep")))
        run.given |= {key: value for key, value in asked.items() if value is not None}
        run.config |= json.loads(asked.get("config") or "{}")
        run.state = "running"
        return {"bucket": run.document({}), "inserted": is_new}

    def create_run_files(self, asked: Answer) -> Answer:
        files = [{"name": name, "uploadUrl": f"{asked['url']}/upload/{name}"} for name in asked["files"]]
        return {"runID": asked["run"], "uploadHeaders": [], "files": files}

    def file_stream(self, name: str, body: Answer) -> Answer:
        """History and summary lines as they come."""
        run = self.runs[name]
        for file, chunk in body.get("files", {}).items():
            for line in map(json.loads, chunk["content"]) if file.endswith((".json", ".jsonl")) else ():
                if file == "wandb-history.jsonl":
                    run.rows.setdefault(line["_step"], {}).update(line)
                elif file == "wandb-summary.json":
                    run.summary = line
        if body.get("complete"):
            run.state = "failed" if body.get("exitcode", 0) else "finished"
        return {"stopped": True} if run.stopped else {}


@dataclass
class Request:
    method: str
    path: str
    headers: str
    body: bytes

    @property
    def query(self) -> str:
        return json.loads(self.body)["query"] if self.path == "/graphql" else ""


@dataclass
class Fault:
    """Fail the next `times` requests that match: with a `status`, by a `hang`, or by a `cut` of the connection."""

    kind: str
    times: int = 1
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 60.0
    matches: Callable[[Request], bool] = lambda request: True


class Server:
    """Listens from the moment it is made, until `stop`."""

    def __init__(self) -> None:
        self.world, self.key = World(), KEY
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.is_down = False
        self.listening = Listening(("127.0.0.1", 0), type("Handler", (Handler,), {"server_of": self}))
        self.url = f"http://127.0.0.1:{self.listening.server_port}"
        threading.Thread(target=self.listening.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def environment(self) -> dict[str, str]:
        """What a client needs to find this server, and no other."""
        return {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": self.key, "WANDB_ENTITY": ENTITY}

    def stop(self) -> None:
        self.is_down = True
        self.listening.shutdown()
        self.listening.server_close()

    def fail(self, kind: str, **how: Any) -> None:
        with self.world.lock:
            self.faults.append(Fault(kind, **how))

    def sent(self) -> bytes:
        """Every byte that clients sent: lines, headers and bodies."""
        with self.world.lock:
            parts = [f"{one.method} {one.path}\n{one.headers}".encode() + one.body for one in self.requests]
        return b"\n".join(parts)

    def due(self, request: Request) -> Fault | None:
        with self.world.lock:
            self.requests.append(request)
            for fault in self.faults:
                if fault.times > 0 and fault.matches(request):
                    fault.times -= 1
                    return fault
        return None

    def answer(self, request: Request) -> Any:
        with self.world.lock:
            if request.path == "/graphql":
                asked = json.loads(request.body)
                return {"data": self.world.answer(asked["query"], {**(asked.get("variables") or {}), "url": self.url})}
            stream = STREAM.fullmatch(request.path)
            return {} if stream is None else self.world.file_stream(stream[1], json.loads(request.body))


class Listening(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed cuts its connection; that is not a failure of the server."""


class Handler(BaseHTTPRequestHandler):
    server_of: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or every answer waits for the client's delayed acknowledgement, 40 ms

    def answer(self) -> None:
        server = self.server_of
        if server.is_down:  # a connection from before
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(self.command, self.path, str(self.headers), body)
        output = base64.b64encode(f"api:{server.key}".encode()).decode()
        fault = server.due(request)
        if fault is not None and fault.kind != "status":
            time.sleep(fault.seconds if fault.kind == "hang" else 0)
            self.close_connection = True
        elif fault is not None:
            self.reply(fault.status, {"errors": [{"message": "told to fail"}]}, fault.headers)
        elif self.path.startswith(("/graphql", "/files")) and self.headers.get("Authorization") != f"Basic {output}":
            self.reply(401, {"errors": [{"message": "permission denied"}]})
        else:
            self.reply(200, server.answer(request))

    def reply(self, status: int, document: Any, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = answer

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    try:
        yield server
    finally:
        server.stop()
