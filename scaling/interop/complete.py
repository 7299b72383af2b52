"""A model with nothing left unsaid, so that two ways of writing the same model compare equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from scaling import schema
from scaling.schema import overlay
from scaling.shape import Shape

TOWERS = ("encoder", "decoder")
_TOWER_SLOTS = ("embedding", "position", "pattern", "block", "stack")
_ABSENT = "nothing"


def spread(tree: Mapping[str, Any]) -> dict[str, Any]:
    """`model` and `size` with what an encoder-decoder's towers share written out for each of them."""
    model, size = dict(tree["model"]), dict(tree["size"])
    if not all(tower in model for tower in TOWERS):
        return {"model": model, "size": size}
    common = {slot: model.pop(slot) for slot in _TOWER_SLOTS if slot in model}
    sizes = {key: value for key, value in size.items() if key not in TOWERS}
    return {
        "model": {**model, **{tower: overlay(common, dict(model[tower] or {})) for tower in TOWERS}},
        "size": {tower: {**sizes, **(size.get(tower) or {})} for tower in TOWERS},
    }


def complete(tree: Mapping[str, Any]) -> dict[str, Any]:
    """`model` and `size` with every default written out, every kind in the long form, and one hidden width."""
    both = spread(tree)
    model, size = both["model"], both["size"]
    parts = [(model[tower], size[tower]) for tower in TOWERS] if TOWERS[0] in size else [(model, size)]
    for part, sizes in parts:
        shape = Shape.of(sizes)
        for slot in _TOWER_SLOTS:
            part[slot] = _spelled(slot, part[slot])
        channel = part["block"].get("channel") or {}
        sizes.clear()
        sizes.update(asdict(shape), hidden=shape.hidden_times(channel.pop("hidden_times", 1.0)))
    for slot in ("head", "sentence", "language"):
        model[slot] = _spelled(slot, model.get(slot))
    if len(parts) > 1:
        model["memory"] = _spelled("memory", model.get("memory", "Last"))
        model["share"] = model.get("share", "nothing")
    model["tie"] = sorted(model["tie"])
    return both


def differences(ours: Any, theirs: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two completed trees differ: the dotted key and both values."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        if ours.get("kind") != theirs.get("kind"):
            yield f"{key}.kind", ours.get("kind", _ABSENT), theirs.get("kind", _ABSENT)
            return
        for name in {**ours, **theirs}:
            path = f"{key}.{name}" if key else name
            yield from differences(ours.get(name, _ABSENT), theirs.get(name, _ABSENT), path)
    elif ours != theirs:
        yield key, short(ours), short(theirs)


def short(value: Any) -> Any:
    """A line by its kind."""
    return value.get("kind", value) if isinstance(value, Mapping) else value


def _spelled(slot: str, line: Any) -> Any:
    """A line in the long form: its kind and every key of it, those of the pieces within it too."""
    if line is None:
        return None
    given = {"kind": line} if isinstance(line, str) else dict(line)
    spelled = {"kind": given["kind"]}
    for key, parameter in schema.keys(schema.kinds(slot)[given["kind"]]).items():
        value = given.get(key, parameter.default)
        spelled[key] = _spelled(key, value) if schema.is_recipe(parameter.annotation) else value
    return spelled
