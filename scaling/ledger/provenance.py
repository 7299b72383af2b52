"""Provenance: when a run was trained and on what, by its claims, its exits and its result's circumstances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from scaling.ledger.attempt import Record


def spans(records: Sequence[Record]) -> list[tuple[datetime, datetime]]:
    """From claim to exit of each attempt that has ended."""
    ends = [(record.claim.get("claimed"), (record.exit or {}).get("ended")) for record in records]
    return [
        (datetime.fromisoformat(claimed), datetime.fromisoformat(ended)) for claimed, ended in ends if claimed and ended
    ]


def hardware(circumstances: Mapping[str, Any]) -> str:
    """A result's machine in words."""
    ranks = circumstances.get("ranks", 1)
    if circumstances.get("device", "cpu") != "cpu":
        return f"{ranks} × {circumstances['device']}"
    parts = [f"{circumstances.get('processor', 'a processor')} CPU", f"{circumstances.get('cores', '?')} cores"]
    parts += [circumstances["instructions"]] if circumstances.get("instructions") else []
    threads = circumstances.get("threads", "?")
    return f"{', '.join(parts)}, {threads} thread{'' if threads == 1 else 's'} a worker"
