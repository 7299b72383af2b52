"""Overrides of a config, as words (`size=tiny`) and as keywords (`optimizer__lr=1e-3`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from scaling.config import Config, load

RUNS = "runs"
"""The ledger's folder, unless another is named; as in defaults.yaml."""
SHORT = {"tokens": "train.tokens", "steps": "trainer.max_steps"}
"""Keys that are asked for so often that their section may be left out."""


def words(overrides: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """`("size=tiny",)` and `{"tokens": "5M", "optimizer__lr": 1e-3}` as `size=tiny train.tokens=5M optimizer.lr=0.001`.

    A double underscore in a keyword is the dot that Python does not allow there.
    """
    return [*overrides, *(_word(key.replace("__", "."), value) for key, value in settings.items())]


def _word(key: str, value: Any) -> str:
    return f"{SHORT.get(key, key)}={value if isinstance(value, str) else json.dumps(value)}"


def resolved(
    model: str | None, overrides: Sequence[str], settings: Mapping[str, Any], overlays: Sequence[str] = ()
) -> Config:
    """The config of a model under overrides as words and as keywords; a first word with `=` is an override too."""
    if model is not None and "=" in model:
        model, overrides = None, (model, *overrides)
    return load(model, words(overrides, settings), overlays=overlays)
