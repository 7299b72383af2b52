"""Keyword arguments as overrides of a config, the words that the command line takes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

SHORT = {"tokens": "train.tokens", "steps": "train.steps"}
"""Keys that are asked for so often that their section may be left out."""


def words(overrides: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """`("size=tiny",)` and `{"tokens": "5M", "optimizer__lr": 1e-3}` as `size=tiny train.tokens=5M optimizer.lr=0.001`.

    A double underscore in a keyword is the dot that Python does not allow there.
    """
    return [*overrides, *(_word(key.replace("__", "."), value) for key, value in settings.items())]


def _word(key: str, value: Any) -> str:
    return f"{SHORT.get(key, key)}={value if isinstance(value, str) else json.dumps(value)}"


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names, and overrides."""
    return [word for word in words if "=" not in word], [word for word in words if "=" in word]
