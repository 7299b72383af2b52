"""Question: a study's YAML as it stands. What is asked, which runs answer it, which are kept back to test it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scaling.config import Config, document, find
from scaling.errors import ScalingError, nearest

KEYS = ("question", "base", "set", "grid", "held_out", "law", "target", "define")
MOST_RUNS = 100_000


@dataclass(frozen=True)
class Question:
    """`set` holds for every run; `grid` and `held_out` are axes whose products are the runs."""

    name: str
    question: str
    base: str
    set: Mapping[str, Any]
    grid: Mapping[str, Sequence[Any]]
    law: str
    held_out: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    target: Mapping[str, float] = field(default_factory=dict)
    define: Mapping[str, str] = field(default_factory=dict)

    def cells(self) -> Iterator[tuple[dict[str, Any], bool]]:
        """Each run's own keys, and whether it is held out."""
        for axes, held_out in ((self.grid, False), (self.held_out, True)):
            if axes:
                for values in itertools.product(*axes.values()):
                    yield dict(zip(axes, values, strict=True)), held_out

    def overrides(self, cell: Mapping[str, Any]) -> list[str]:
        """A run's keys as words of the command line."""
        return [f"{key}={_word(value)}" for key, value in {**_flat(self.set), **_flat(cell)}.items()]


def read(name: str) -> Question:
    """The study of a name among the shipped ones, or of a path."""
    path = find("study", name)
    found = document(path)
    return Question(name=_name(path), **_checked(found))


def _name(path: Path) -> str:
    return path.stem


def _checked(found: Config) -> dict[str, Any]:
    tree = found.tree
    for key in tree:
        if key not in KEYS:
            raise found.error(key, "a study has no such key", nearest(key, KEYS))
    for key in ("question", "base", "grid", "law"):
        if key not in tree:
            raise ScalingError("a study needs it", key=key, file=next(iter(found.origin.values())).rpartition(":")[0])
    runs = 0
    for part in ("grid", "held_out"):
        axes = tree.get(part, {})
        if not isinstance(axes, dict):
            raise found.error(part, "expected axes", f"write {part}: {{train.tokens: [1M, 2M]}}")
        count = 1 if axes else 0
        for key, values in axes.items():
            if not isinstance(values, list) or not values:
                raise found.error(f"{part}.{key}", "expected a list of values", "write [1M, 2M]")
            if len({json.dumps(value) for value in values}) < len(values):
                raise found.error(f"{part}.{key}", "a value stands twice")
            count *= len(values)
        runs += count
    if runs == 0:
        raise found.error("grid", "the grid is empty", "write axes: size: [ladder/10k, ladder/30k]")
    if runs > MOST_RUNS:
        raise found.error("grid", f"the grid has {runs:,} runs", f"{MOST_RUNS:,} are the most; thin an axis")
    return {"set": {}, **tree}


def _flat(node: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Dotted keys: a node that names a kind stays whole, for it replaces; of any other, each key overlays."""
    flat: dict[str, Any] = {}
    for key, value in node.items():
        whole = not isinstance(value, Mapping) or not value or "kind" in value
        flat |= {above + key: value} if whole else _flat(value, f"{above}{key}.")
    return flat


def _word(value: Any) -> str:
    """A value as our reader reads it back; plain words stay plain, so that 4M is a number and tiny a name."""
    return value if isinstance(value, str) else json.dumps(value)
