"""Identity: two specs that describe the same experiment get the same run, and two that differ never do.

    run_id = first 16 hexadecimal digits of SHA-256(canonical JSON of what counts)

Everything in a spec counts unless it is listed here: a key that someone forgets to list costs a run done twice, while
one wrongly left out would mix two experiments. Where the data have a fingerprint, it alone represents them: equal
fingerprints are equal rows, wherever the files lie. Numbers are compared by value, so 20M, 2e7 and 20000000 are one
budget. A trunk's spec simply has no horizon; its length is passed to the worker that trains it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from scaling.errors import ScalingError
from scaling.ledger.document import SPELLED

RUN_ID = re.compile(r"[0-9a-f]{16}")

# Where and how a run is executed, watched and named, but not what it computes.
UNCOUNTED = frozenset(
    {
        "name",
        "runs",
        "log",
        "evaluate.points",
        "evaluate.spacing",
        "start.folder",  # where the weights are: their hash counts
        "start.run",
        "start.vectors",
        "start.step",
        "train.checkpoint_every",
        "train.checkpointing",
        "train.compile",
        "trainer.devices",
        "train.keep",
        "train.micro_batch",
        "trainer.strategy",
        "train.threads",
    }
)

# Keys that came after runs had been made, with the value that means what was done before the key existed. A key is a
# path from the top ("train.z_loss") or an argument of a kind, wherever it is ("Gated:bias"). At this value the key
# is left out, so that old runs keep their names.
LATER: Mapping[str, Any] = {
    "model.memory": "Last",
    "model.share": "nothing",
    "Transform:width": None,
    "Distil:hidden": 0,
    "train.documents": "join",
}

_DEEPEST = 40
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def run_id(spec: Mapping[str, Any], later: Mapping[str, Any] = LATER) -> str:
    """The name of the run that `spec` describes."""
    return run_ids([spec], later)[0]


def run_ids(specs: Sequence[Mapping[str, Any]], later: Mapping[str, Any] = LATER) -> list[str]:
    """The names of many runs: a section that is one object in several of them is read once."""
    canonical, read = _canonical_later(later), dict[tuple[str, Any], str]()
    return [hashlib.sha256(_joined(spec, canonical, read).encode()).hexdigest()[:16] for spec in specs]


def identity(spec: Mapping[str, Any], later: Mapping[str, Any] = LATER) -> str:
    """What counts of a spec, as canonical JSON: sorted keys, no spaces, one spelling for each number."""
    return _joined(spec, _canonical_later(later), {})


def _canonical_later(later: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _canonical(value, key, {}) for key, value in later.items()}


def _joined(spec: Mapping[str, Any], later: Mapping[str, Any], read: dict[tuple[str, Any], str]) -> str:
    """The sections' JSON; `read` holds those of objects that live as long as it does, and by their text."""
    if not isinstance(spec, Mapping):
        raise ScalingError("a spec is a mapping of sections", value=spec, key="spec")
    for key in spec:
        if not isinstance(key, str):
            raise ScalingError("keys of a spec are text", key="spec", value=key)
    places = [(key, id(spec[key])) for key in sorted(spec)]
    for place in places:
        if place not in read:
            key, section = place[0], spec[place[0]]
            try:
                text = (key, repr(section))
            except (RecursionError, ValueError):  # nested too deep, or too long a number: the section is refused
                text = place
            if text not in read:
                read[text] = _section(key, section, later)
            read[place] = read[text]
    return "{" + ",".join(read[place] for place in places if read[place]) + "}"


def _section(key: str, value: Any, later: Mapping[str, Any]) -> str:
    """`"key":value` as canonical JSON, or nothing where it does not count."""
    if key == "data" and isinstance(value, Mapping) and "fingerprint" in value:
        value = {"fingerprint": value["fingerprint"]}
    return _CANONICAL.encode(_counted({key: value}, "", later))[1:-1]


def _counted(node: Mapping[str, Any], path: str, later: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    above = f"{path}." if path else ""
    kind = f"{node.get('kind')}:"
    defaults = {name: value for name, value in later.items() if name.startswith((above, kind))}
    for key, value in node.items():
        if not isinstance(key, str):
            raise ScalingError("keys of a spec are text", key=path or "spec", value=key)
        place = above + key
        if place in UNCOUNTED:
            continue
        plain = _canonical(value, place, later)
        if defaults and any(name in defaults and _same(defaults[name], plain) for name in (place, kind + key)):
            continue
        kept[key] = plain
    return kept


def _canonical(value: Any, path: str, later: Mapping[str, Any]) -> Any:
    """One spelling of a value. The commonest types come first: a plan names ten thousand runs per second."""
    if isinstance(value, str):
        if value in SPELLED:
            raise ScalingError("a spec holds finite numbers", key=path, value=value)
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        if abs(value) >= 2**64:
            raise ScalingError("a spec holds whole numbers below 2**64", key=path)
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ScalingError("a spec holds finite numbers", key=path, value=value)
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if path.count(".") >= _DEEPEST:
        raise ScalingError(f"a spec is at most {_DEEPEST} levels deep", key=".".join(path.split(".")[:3]) + "…")
    if isinstance(value, (list, tuple)):
        return [_canonical(item, f"{path}.{index}", later) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return _counted(value, path, later)
    raise ScalingError("a spec holds plain values", key=path, value=value)


def _same(one: Any, other: Any) -> bool:
    """Equal, and of one type: True is not 1 here, as it is not in JSON."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
