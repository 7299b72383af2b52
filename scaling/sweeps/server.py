"""Server: the three requests of an agent to a W&B server, over plain HTTP, with bounded waits and patience.

The client's own calls sit in a process of their own that training must not wait for; an agent lives for days and has to
know why a call failed. So these few go straight to the server, at the address and with the key that the client uses.
"""

from __future__ import annotations

import base64
import http.client
import json
import logging
import netrc
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from scaling.errors import ScalingError

TIMEOUT = 30.0  # seconds for one answer
PATIENCE = 600.0  # seconds in which a server may be out of reach before an agent gives up
FIRST_WAIT = 5.0  # seconds in which a server that was not asked before has to be found
FIRST, MOST = 0.5, 60.0  # seconds between tries
BUSY = (408, 429, 500, 502, 503, 504)

AGENT = """mutation CreateAgent($host: String!, $projectName: String, $entityName: String, $sweep: String!) {
  createAgent(input: {host: $host, projectName: $projectName, entityName: $entityName, sweep: $sweep}) { agent { id } }
}"""
HEARTBEAT = """mutation Heartbeat($id: ID!, $metrics: JSONString, $runState: JSONString) {
  agentHeartbeat(input: {id: $id, metrics: $metrics, runState: $runState}) { agent { id } commands }
}"""
VIEWER = "query Viewer { viewer { id entity } }"
SWEEP = """query Sweep($entity: String, $project: String, $sweep: String!) {
  project(name: $project, entityName: $entity) { sweep(sweepName: $sweep) { id name state config } }
}"""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Path:
    """Which sweep: `entity/project/id`, as `wandb sweep` prints it."""

    entity: str
    project: str
    sweep: str

    @staticmethod
    def of(text: str, entity: str | None = None) -> Path:
        parts = text.split("/")
        around = [entity or os.environ.get("WANDB_ENTITY", ""), os.environ.get("WANDB_PROJECT", "scaling")]
        named = [*around[: max(0, 3 - len(parts))], *parts]
        if len(named) != 3 or not all(named):
            raise ScalingError("a sweep is named ENTITY/PROJECT/ID", key="SWEEP", value=text)
        return Path(*named)

    def __str__(self) -> str:
        return f"{self.entity}/{self.project}/{self.sweep}"


class Refused(ScalingError):
    """The server answered with a refusal."""


@dataclass(frozen=True)
class Server:
    base: str
    key: str

    @staticmethod
    def of_client(**settings: Any) -> Server | None:
        """The server and key that the W&B client would use, None without a key; it sends no request."""
        import wandb

        try:
            client = wandb.setup(settings=wandb.Settings(silent=True, **settings)).settings
        except ValueError as error:  # pydantic's, which names the setting
            raise _misset(error) from None
        base = str(client.base_url).rstrip("/")
        key = client.api_key or _login(base)
        return Server(base, key) if key else None

    @staticmethod
    def needed(**settings: Any) -> Server:
        """As `of_client`; refused without a key."""
        server = Server.of_client(**settings)
        if server is None:
            raise ScalingError("there is no W&B key", fix="`wandb login`, or set WANDB_API_KEY")
        return server

    def entity(self) -> str:
        """Whose the key is; a key that the server does not know is refused."""
        viewer = self.first(VIEWER, {})["viewer"]
        if viewer is None:
            raise Refused("W&B does not know the key", fix="`wandb login`, or set WANDB_API_KEY")
        return viewer["entity"]

    def sweep(self, path: Path) -> dict[str, Any]:
        """The sweep's id, state and config; refused where there is none."""
        answer = self.ask(SWEEP, {"entity": path.entity, "project": path.project, "sweep": path.sweep})
        sweep = (answer.get("project") or {}).get("sweep")
        if sweep is None:
            raise Refused("the server knows no such sweep", key="SWEEP", value=str(path))
        return sweep

    def register(self, path: Path) -> str:
        """The id of a new agent; its host is not sent."""
        variables = {"host": "scaling", "entityName": path.entity, "projectName": path.project, "sweep": path.sweep}
        return self.ask(AGENT, variables)["createAgent"]["agent"]["id"]

    def heartbeat(self, agent: str, running: list[str], patience: float = PATIENCE) -> list[dict[str, Any]]:
        """Report which runs are under way, and return what to do."""
        variables = {"id": agent, "metrics": "{}", "runState": json.dumps(dict.fromkeys(running, True))}
        return json.loads(self.ask(HEARTBEAT, variables, patience)["agentHeartbeat"]["commands"])

    def first(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        """One answer of a server that may not be there at all, which is reported within seconds."""
        try:
            return self.ask(query, variables, FIRST_WAIT)
        except Refused:
            raise
        except ScalingError as error:
            raise ScalingError(f"{self.base}: {error.what}", fix="check the network and WANDB_BASE_URL") from None

    def ask(self, query: str, variables: dict[str, Any], patience: float = PATIENCE) -> dict[str, Any]:
        """One answer. Where the server is busy or out of reach, again and again, later each time, for `patience`."""
        started, pause = time.monotonic(), FIRST
        while True:
            try:
                return self._answer(query, variables)
            except urllib.error.HTTPError as error:
                if error.code not in BUSY:
                    raise Refused(
                        f"W&B refused ({error.code} {error.reason})", fix="check the key and the path"
                    ) from None
                why, wait = f"{error.code} {error.reason}", _retry_after(error) or pause
            except (OSError, http.client.HTTPException, ValueError) as error:
                why, wait = str(error), pause
            if time.monotonic() + wait - started > patience:
                raise ScalingError(f"W&B is out of reach: {why}", fix="the same command goes on", code=1) from None
            logger.warning("W&B: %s; again in %.0f s", why, wait)
            time.sleep(wait)
            pause = min(2 * pause, MOST)

    def _answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        signed = base64.b64encode(f"api:{self.key}".encode()).decode()
        request = urllib.request.Request(
            f"{self.base}/graphql",
            json.dumps({"query": query, "variables": variables}).encode(),
            {"Authorization": f"Basic {signed}", "Content-Type": "application/json", "User-Agent": "scaling"},
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT) as reply:
            answer = json.loads(reply.read())
        if answer.get("errors"):
            raise Refused(f"W&B refused: {answer['errors'][0].get('message')}")
        return answer["data"]


def _misset(error: ValueError) -> ScalingError:
    """A setting of W&B's that its client refuses: the variable of the environment that holds it, where one does."""
    reasons = getattr(error, "errors", list)()
    name = str(next((part for reason in reasons for part in reason["loc"]), ""))
    variable = f"WANDB_{name.upper()}"
    what = reasons[0]["msg"] if reasons else " ".join(str(error).split())[:200]
    if variable not in os.environ:
        return ScalingError(f"W&B refuses its settings: {what}", key=name or None)
    fix = f"correct {variable}, or unset it"
    return ScalingError(f"W&B refuses it: {what}", key=variable, value=os.environ[variable], fix=fix)


def _login(base: str) -> str | None:
    """The key that `wandb login` has left for a server."""
    try:
        login = netrc.netrc().authenticators(urllib.parse.urlsplit(base).hostname or "")
    except (OSError, netrc.NetrcParseError):
        return None
    return login[2] if login else None


def _retry_after(error: urllib.error.HTTPError) -> float | None:
    """The seconds that the server asks for. A date counts from the server's own clock, which may be wrong."""
    header = error.headers.get("Retry-After")
    if not header:
        return None
    if header.strip().isdigit():
        return min(float(header), MOST)
    try:
        now = parsedate_to_datetime(error.headers["Date"])
        return min(max(0.0, (parsedate_to_datetime(header) - now).total_seconds()), MOST)
    except (TypeError, ValueError):
        return None
