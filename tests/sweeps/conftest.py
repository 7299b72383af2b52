"""A W&B server of our own, and sweeps small enough that a run takes a fraction of a second."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scaling.sweeps import wandb_client
from tests.training.conftest import words
from tests.wandb_server.server import Server, serving

# W&B's own limits, for machines on which all is slow.
PATIENT = {"WANDB_INIT_TIMEOUT": "600", "WANDB_FINISH_TIMEOUT": "600"}
OWN = {"log.wandb": "absent", "model.block.mixer.dropout": "absent", "train.checkpoint_every": "absent"}
WORDS = words("absent", **OWN, **{"evaluate.points": 4, "log.every": 4})  # without the folder of the runs


def tree(**changes: Any) -> dict[str, Any]:
    return {
        "program": "scaling",
        "command": ["scaling", "train", *WORDS, "${args_no_hyphens}"],
        "method": "grid",
        "metric": {"name": "evaluate/loss", "goal": "minimize"},
        "parameters": {"optimizer.lr": {"values": [0.01, 0.02]}, "seed": {"values": [1, 2]}},
        **changes,
    }


def write(path: Path, **changes: Any) -> Path:
    path.write_text(yaml.safe_dump(tree(**changes)))
    return path


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture
def client(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """The real W&B client of this process, at our server."""
    import wandb

    wandb.teardown()
    for name in [name for name in os.environ if name.startswith("WANDB")]:
        monkeypatch.delenv(name)
    for name, value in {**server.environment(), **PATIENT, "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    quick = {"x_graphql_retry_max": 3, "x_graphql_retry_wait_min_seconds": 0.1, "x_graphql_retry_wait_max_seconds": 2}
    monkeypatch.setattr(wandb_client, "SETTINGS", {**wandb_client.SETTINGS, **quick})
    monkeypatch.setattr(wandb_client, "FIRST_WAIT", 1.5)
    monkeypatch.chdir(tmp_path)
    yield server
    wandb.teardown()
