"""What positions share: the contract as a module, and the version of those that read content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from scaling.build import nodes
from scaling.nn.context import Position


class Hooks(nn.Module, Position):
    """Identity in all four hooks; a position overrides the ones it needs."""


def scaled(config: Any) -> int:
    """The version of a position that reads content: 2 where a mixer's `scale` is not `sqrt`.

    Version 1 scaled its products by d^(−1/2) whatever the value of that key, so elsewhere both compute the same.
    """
    mixers = [node["mixer"] for node in nodes(config) if isinstance(node.get("mixer"), Mapping)]
    return 2 if any(mixer.get("scale", "sqrt") != "sqrt" for mixer in mixers) else 1
