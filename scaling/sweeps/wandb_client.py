"""W&B's client: its `Api` with bounded waits, its `sweep`, and its failures as one line."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import requests

from scaling.base.errors import BAD_INPUT, ScalingError, refuse
from scaling.sweeps.file import Sweep

if TYPE_CHECKING:
    import wandb

FIRST_WAIT = 5.0  # seconds in which a server that was not asked before has to answer
# What the client's own requests may take: five more tries, at most half a minute each and between two.
SETTINGS: dict[str, Any] = {
    "silent": True,
    "x_graphql_retry_max": 5,
    "x_graphql_retry_wait_min_seconds": 1,
    "x_graphql_retry_wait_max_seconds": 30,
    "x_graphql_timeout_seconds": 30,
}
BUSY = (408, 429)  # refusals that pass
NO_KEY = "`wandb login`, or set WANDB_API_KEY"
T = TypeVar("T")


def connect(no_key: str = NO_KEY) -> wandb.Api:
    """The client's `Api` at its server. Refused within seconds where there is no key or no server, or where the server
    does not know the key; `no_key` is what to do where there is none.
    """
    import wandb
    from wandb.errors import UsageError

    logging.getLogger("wandb").setLevel(logging.CRITICAL)
    try:
        client = wandb.setup(settings=wandb.Settings(**SETTINGS)).settings
    except (UsageError, ValueError) as error:
        reasons = getattr(error, "errors", list)()  # pydantic's, which name the setting; the other is about the key
        key = f"WANDB_{reasons[0]['loc'][0]}".upper() if reasons else "WANDB_API_KEY"
        what = "W&B refuses it: " + (reasons[0]["msg"] if reasons else str(error).partition(":")[0])
        raise ScalingError(what, key=key, fix="correct the variable, or unset it") from None
    base = str(client.base_url).rstrip("/")
    _, login = requests.utils.get_netrc_auth(base) or ("", "")  # which `wandb login` has left
    key = client.api_key or login
    refuse(not key, "there is no W&B key: nothing was sent", no_key)
    try:
        requests.get(base, timeout=FIRST_WAIT)
    except (requests.RequestException, ValueError) as error:
        fix = "check the network and WANDB_BASE_URL"
        raise ScalingError(f"{base}: {' '.join(str(error).split())[:200]}", fix=fix) from None
    with answered(f"check the key: {NO_KEY}"):
        return wandb.Api(api_key=key, timeout=60)


@contextmanager
def answered(refused: str) -> Iterator[None]:
    """The client's failures as one line. It has tried again by itself, as often and as late as the server asked; what
    to do where the server `refused`, differs.
    """
    try:
        yield
    except ScalingError:
        raise
    except Exception as error:
        why, status = " ".join(str(error).split())[:200], _status(error)
        is_refusal = (400 <= status < 500 and status not in BUSY) or "could not find" in why.lower()
        fix = refused if is_refusal else "the same command goes on where this one stopped"
        raise ScalingError(f"W&B: {why}", fix=fix, code=BAD_INPUT if is_refusal else 1) from None


def patient(call: Callable[[], T]) -> T:
    """The answer of a call of the client."""
    with answered("check the name and the key"):
        return call()


def register(sweep: Sweep) -> str:
    """The path `entity/project/id` of the sweep as it was registered. Without a key nothing is sent."""
    api = connect("`wandb login`, --local to run it here, or --dry-run to check it alone")
    import wandb

    project = os.environ.get("WANDB_PROJECT") or sweep.config.tree.get("project") or "scaling"
    entity = os.environ.get("WANDB_ENTITY") or sweep.config.tree.get("entity") or patient(lambda: api.default_entity)
    with answered(f"may the key write to {entity}/{project}?"), contextlib.redirect_stdout(io.StringIO()):
        name = wandb.sweep(dict(sweep.config.tree), entity=entity, project=project)
    return f"{entity}/{project}/{name}"


def _status(error: BaseException) -> int:
    """The HTTP status that one of the client's errors comes from; 0 where there is none."""
    status = 0
    for place in (error, getattr(error, "exc", None), error.__cause__, error.__context__):
        response = getattr(place, "response", None)
        status = status or getattr(response, "http_status", 0) or getattr(response, "status_code", 0)
    return status
