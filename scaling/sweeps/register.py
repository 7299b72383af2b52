"""Register: hand a checked sweep to the W&B server, by the client's own call."""

from __future__ import annotations

import contextlib
import io
import os
from typing import Any

from scaling.errors import BAD_INPUT, ScalingError
from scaling.sweeps.file import Sweep
from scaling.sweeps.server import BUSY, Server


def register(sweep: Sweep) -> str:
    """The path `entity/project/id` of the sweep as it was registered. Without a key nothing is sent."""
    server = Server.of_client()
    if server is None:
        fix = "`wandb login`, --local to run it here, or --dry-run to check it alone"
        raise ScalingError("there is no W&B key: nothing was sent", fix=fix)
    own = server.entity()
    project = os.environ.get("WANDB_PROJECT") or sweep.tree.get("project") or "scaling"
    entity = os.environ.get("WANDB_ENTITY") or sweep.tree.get("entity") or own
    os.environ["WANDB_SILENT"] = "true"
    import wandb

    try:
        with contextlib.redirect_stdout(io.StringIO()):  # our command prints it instead
            name = wandb.sweep(dict(sweep.tree), entity=entity, project=project)
    except Exception as error:
        why, status = " ".join(str(error).split())[:200], _status(error)
        if 400 <= status < 500 and status not in BUSY:
            fix, code = f"may the key write to {entity}/{project}?", BAD_INPUT
        else:
            fix, code = "the same command again, or --local to run it here", 1
        raise ScalingError(f"W&B did not take the sweep: {why}", fix=fix, code=code) from None
    return f"{entity}/{project}/{name}"


def _status(error: Any) -> int:
    """The HTTP status that the client's error comes from; 0 where there is none."""
    return getattr(getattr(getattr(error, "exc", None), "response", None), "http_status", 0)
