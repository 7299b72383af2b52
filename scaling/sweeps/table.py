"""Table: a sweep's runs as rows of points.csv, in the format that studies, tables and fits read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from scaling.ledger.identity import assignments
from scaling.training.point import COLUMNS, plain

OWN = ("run", "name", "status", "held_out", "loss", "trunk")


def name(cell: Mapping[str, Any]) -> str:
    """A run's name within its sweep: what sets it apart."""
    return " ".join(assignments(dict(sorted(cell.items()))))


def columns(cell: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """A run's point, after a column for each swept key; one that every point has already, like `seed`, is that."""
    swept = {key: value for key, value in sorted(_columns(cell)) if key not in OWN and key not in COLUMNS}
    return {**swept, **point}


def _columns(cell: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Swept keys and their values; a mapping has a column for each of its keys."""
    for key, value in cell.items():
        if isinstance(value, Mapping):
            yield from _columns(value, f"{above}{key}.")
        else:
            yield above + key, json.dumps(value) if isinstance(value, list | tuple) else plain(value)


def ordered(table: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One order, in whatever order agents and servers had the runs."""
    return sorted(table, key=lambda row: (row["name"], row["run"]))
