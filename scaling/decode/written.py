"""What a strategy wrote."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Written:
    """One continuation: its tokens without the one that stopped it, whether one did, and its score in nats."""

    tokens: list[int]
    score: float
    stopped: bool
