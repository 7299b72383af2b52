"""Names: runs called by what differs between them, `lr=0.001 seed=2`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from scaling.ledger.document import text
from scaling.ledger.result import flat

CHOSEN_WHOLE = ("size", "data")  # sections whose keys change together: one of those that split the runs alike is enough
MISSING = object()


def names(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """A name for each run: the keys of its spec whose values are not the same in all of them.

    Trunks, which have no schedule of their own and no evaluation, are compared with one another alone.
    """
    leaves = {run: flat(spec) for run, spec in specs.items()}
    trunks = {run: own for run, own in leaves.items() if own.get("schedule.kind") == "trunk"}
    runs = {run: own for run, own in leaves.items() if run not in trunks}
    return {**_named(runs), **{run: f"trunk {name}".rstrip() for run, name in _named(trunks).items()}}


def _named(leaves: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    keys = _distinguished(leaves)
    return {run: " ".join(assignments({key: own.get(key) for key in keys})) for run, own in leaves.items()}


def assignments(values: Mapping[str, Any]) -> list[str]:
    """`key=value` words, each key by its last part where no other ends so."""
    last = [key.rpartition(".")[2] for key in values]
    short = {key: end if last.count(end) == 1 else key for key, end in zip(values, last, strict=True)}
    return [f"{short[key]}={_spelled(value)}" for key, value in values.items()]


def _distinguished(leaves: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The keys that differ, those that can be read before hashes and lists."""
    splits: dict[tuple[Any, ...], str] = {}
    for key in dict.fromkeys(key for own in leaves.values() for key in own):
        spelled = [_spelled(own.get(key, MISSING)) for own in leaves.values()]
        if len(set(spelled)) > 1:
            section = key.partition(".")[0]
            seen: dict[str, int] = {}
            split = tuple(seen.setdefault(value, len(seen)) for value in spelled)
            place = (section, split) if section in CHOSEN_WHOLE else (key,)
            splits.setdefault(place, key)
    return sorted(splits.values(), key=lambda key: _length(key, leaves.values()) > 16)


def _length(key: str, leaves: Iterable[Mapping[str, Any]]) -> int:
    return max(len(_spelled(own.get(key))) for own in leaves)


def _spelled(value: Any) -> str:
    if value is MISSING:
        return "–"
    return value if isinstance(value, str) else text(value)
