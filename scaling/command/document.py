"""The number that every JSON document of the command line carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SCHEMA = 1
"""Rises when a key that scripts may read goes or changes its meaning (docs/json.md)."""


def numbered(document: Mapping[str, Any]) -> dict[str, Any]:
    return {"schema": SCHEMA, **document}
