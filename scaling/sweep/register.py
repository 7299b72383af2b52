"""Register: hand a checked sweep to the W&B server, by the client's own call."""

from __future__ import annotations

import contextlib
import io
import os

from scaling.errors import ScalingError
from scaling.sweep.file import Sweep
from scaling.train.mirror import has_login


def has_key() -> bool:
    """Whether a W&B key is there, in the environment or from `wandb login`."""
    return bool(os.environ.get("WANDB_API_KEY")) or has_login()


def register(sweep: Sweep) -> str:
    """The path `entity/project/id` of the sweep as it was registered."""
    import wandb

    project = os.environ.get("WANDB_PROJECT") or sweep.tree.get("project") or "scaling"
    entity = os.environ.get("WANDB_ENTITY") or sweep.tree.get("entity")
    os.environ["WANDB_SILENT"] = "true"
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # what it says there, our command says
            name = wandb.sweep(dict(sweep.tree), entity=entity, project=project)
        entity = entity or wandb.Api().default_entity
    except Exception as error:
        raise ScalingError(
            f"W&B did not take the sweep: {' '.join(str(error).split())[:200]}", mend="run it here with --local", code=1
        ) from None
    return f"{entity}/{project}/{name}"
