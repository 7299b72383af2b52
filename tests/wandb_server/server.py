"""A small W&B server on 127.0.0.1: it answers what the client asks, keeps every byte, and fails when told to."""

from __future__ import annotations

import base64
import gzip
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from tests.wandb_server.graphql import execute
from tests.wandb_server.world import World

KEY = "c0ffee" * 6 + "beef"
STREAM = re.compile(r"/files/[^/]+/[^/]+/([^/]+)/file_stream")


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
    """Fail the next `times` requests that match: with a status, by hanging, or by cutting the connection."""

    kind: Literal["status", "hang", "cut"]
    times: int = 1
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 60.0
    matches: Callable[[Request], bool] = lambda request: True


class Server:
    """Listens from the moment it is made; `stop` and `start` let it die and come back at the same port."""

    def __init__(self, seed: int = 0):
        self.world = World(seed)
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.key = KEY
        self.listening: ThreadingHTTPServer | None = None
        # Bound and never listening: while the server is down, who asks is refused and nobody else is given the port.
        self._kept = socket.socket()
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._kept.bind(("127.0.0.1", 0))
        self.port = self._kept.getsockname()[1]
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """What a client needs to find this server, and no other."""
        return {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": self.key, "WANDB_ENTITY": "me"}

    def start(self) -> None:
        handler = type("Handler", (_Handler,), {"server_of": self})
        self.listening = _Listening(("127.0.0.1", self.port), handler)
        threading.Thread(target=self.listening.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        listening, self.listening = self.listening, None
        if listening is not None:
            listening.shutdown()
            listening.server_close()

    def close(self) -> None:
        self.stop()
        self._kept.close()

    def fail(self, kind: Literal["status", "hang", "cut"], **how: Any) -> None:
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
        world = self.world
        with world.lock:
            if request.path == "/graphql":
                asked = json.loads(request.body)
                roots = {
                    "query": {
                        "viewer": world.viewer,
                        "project": world.known_project,
                        "model": world.project,
                        "serverInfo": lambda: {"features": [], "cliVersionInfo": None},
                    },
                    "mutation": {
                        "upsertSweep": world.upsert_sweep,
                        "createAgent": world.create_agent,
                        "agentHeartbeat": world.agent_heartbeat,
                        "upsertBucket": world.upsert_bucket,
                        "createRunFiles": lambda input: world.create_run_files(input, self.url),
                    },
                }
                return {"data": execute(asked["query"], asked.get("variables") or {}, roots)}
            if (stream := STREAM.fullmatch(request.path)) is not None:
                return world.file_stream(stream[1], json.loads(request.body))
        return {}


class _Listening(ThreadingHTTPServer):
    allow_reuse_port = True
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed cuts its connection; that is no failure of the server."""


class _Handler(BaseHTTPRequestHandler):
    server_of: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or every answer waits for the client's delayed acknowledgement, 40 ms

    def _answer(self) -> None:
        if self.server_of.listening is None:  # a connection from before
            self.close_connection = True
            return
        body = b"".join(self._chunks())
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        request = Request(self.command, self.path, str(self.headers), body)
        fault = self.server_of.due(request)
        if fault is not None and fault.kind == "hang":
            time.sleep(fault.seconds)
        if fault is not None and fault.kind != "status":
            self.close_connection = True
            return
        if fault is not None:
            self._reply(fault.status, {"errors": [{"message": "told to fail"}]}, fault.headers)
        elif not self._authorised():
            self._reply(401, {"errors": [{"message": "permission denied"}]})
        else:
            self._reply(200, self.server_of.answer(request))

    def _chunks(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding") != "chunked":
            yield self.rfile.read(int(self.headers.get("Content-Length") or 0))
            return
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _authorised(self) -> bool:
        told = base64.b64encode(f"api:{self.server_of.key}".encode()).decode()
        return not self.path.startswith(("/graphql", "/files")) or self.headers.get("Authorization") == f"Basic {told}"

    def _reply(self, status: int, document: Any, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = _answer

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def serving(seed: int = 0) -> Iterator[Server]:
    server = Server(seed)
    try:
        yield server
    finally:
        server.close()
