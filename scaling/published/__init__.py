"""Published points, shipped with credit, and every published fit of them reproduced.

A set is a module: `scaling.published.gadre2024.points()` gives its runs, its `CREDIT` the source and the licence.

`python -m scaling.published` prints the table of docs/published_fits.md.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from scaling.errors import ScalingError, nearest
from scaling.published.credit import Credit, Reproduction

if TYPE_CHECKING:
    from scaling.published import datablations, gadre2024, olmo_ladder, porian2024

SETS = ("gadre2024", "datablations", "porian2024", "olmo_ladder")

__all__ = [
    "SETS",
    "Credit",
    "Reproduction",
    "datablations",
    "gadre2024",
    "olmo_ladder",
    "porian2024",
    "published_set",
]


def __getattr__(name: str) -> ModuleType:
    if name not in SETS:
        raise AttributeError(f"module 'scaling.published' has no attribute {name!r}")
    return published_set(name)


def published_set(name: str) -> ModuleType:
    """The module of a set: its `CREDIT`, `points`, and `reproduce`."""
    if name not in SETS:
        raise ScalingError("is no published set", key="set", value=name, fix=nearest(name, SETS))
    return importlib.import_module(f"scaling.published.{name}")
