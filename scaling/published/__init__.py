"""Published points, shipped with credit, and every published fit of them reproduced.

`python -m scaling.published` prints the table of docs/published_fits.md.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from scaling.errors import ScalingError, nearest
from scaling.published.credit import Credit, Reproduction

SETS = ("gadre2024", "datablations", "porian2024", "olmo_ladder")

__all__ = ["SETS", "Credit", "Reproduction", "published_set"]


def published_set(name: str) -> ModuleType:
    """The module of a set: its `CREDIT`, `points`, and `reproduce`."""
    if name not in SETS:
        raise ScalingError("is no published set", key="set", value=name, mend=nearest(name, SETS))
    return importlib.import_module(f"scaling.published.{name}")
