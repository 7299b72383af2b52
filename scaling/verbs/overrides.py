"""Overrides of a config, as words (`size=tiny`) and as keywords (`optimizer__lr=1e-3`)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

RUNS = "runs"
"""The ledger's folder, unless another is named; as in defaults.yaml."""
OVERRIDE = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*=", re.ASCII)
SHORT = {"tokens": "train.tokens", "steps": "trainer.max_steps"}
"""Keys that are asked for so often that their section may be left out."""


def words(overrides: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """`("size=tiny",)` and `{"tokens": "5M", "optimizer__lr": 1e-3}` as `size=tiny train.tokens=5M optimizer.lr=0.001`.

    A double underscore in a keyword is the dot that Python does not allow there.
    """
    keys = {name: SHORT.get(name, name.replace("__", ".")) for name in settings}
    values = (value if isinstance(value, str) else json.dumps(value, default=str) for value in settings.values())
    return [*overrides, *(f"{key}={value}" for key, value in zip(keys.values(), values))]
