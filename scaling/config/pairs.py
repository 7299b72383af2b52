"""Pairs: what a model has in several places and a person changes as one.

    model.norm: RMSNorm     the norm of the blocks, of the stack, and of every other piece that has one
    model.tie: []           the head's scale as well, where the model has one for its tied head alone (T5)

`model.norm` is spelled out where a layer sets it, so that it is the same config as its long form; a layer's own keys
count before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from scaling.config.node import Node
from scaling.config.overlay import overlay
from scaling.config.resolved import Config

SLOTS = ("block", "stack")  # which always have a norm
TOWERS = ("encoder", "decoder")
SCALED = "inverse_sqrt_width"  # the scale that only a tied head has


def spelled_out(below: Node | None, layer: Node) -> Node:
    """A layer of the section `model` with its `norm` in every place that has one.

    A place without a norm (NoNorm) stays without, as the stack of a post-norm model has to, unless the whole model has
    none.
    """
    own = dict(layer.mapping or {})
    norm = own.pop("norm", None)
    if norm is None:
        return layer
    lines = (below.mapping if below is not None else None) or {}
    places = _places(lines, norm, bare=False) or _places(lines, norm, bare=True)
    for slot in SLOTS:
        if slot not in lines:
            places[slot] = Node({"norm": norm}, norm.origin)
    return Node(_under(places, own), layer.origin)


def _places(tree: Mapping[str, Node], norm: Node, bare: bool) -> dict[str, Node]:
    """What lays `norm` over every norm of a tree; `bare`: over every NoNorm."""
    places = {}
    for key, child in tree.items():
        if key == "norm" and child.value is not None and (_kind(child) == "NoNorm") == bare:
            places[key] = norm
        elif key != "norm" and child.mapping is not None and (inner := _places(child.mapping, norm, bare)):
            places[key] = Node(inner, norm.origin)
    return places


def _under(places: Mapping[str, Node], own: Mapping[str, Node]) -> dict[str, Node]:
    """The places of a norm and a layer's own keys, which count first. A piece that the layer replaces has the norm that
    the layer gives it, if it gives it any; blocks and stacks have one in any case.
    """
    merged = dict(own)
    for key, place in places.items():
        line = own.get(key)
        if line is None:
            merged[key] = place
        elif key == "norm":
            merged[key] = overlay(place, line)
        elif place.mapping is not None:
            inner = line.mapping if line.mapping is not None else {"kind": line}
            if "kind" not in inner:
                merged[key] = Node(_under(place.mapping, inner), line.origin)
            elif key in SLOTS and "norm" in place.mapping:
                own_norm = {"norm": inner["norm"]} if "norm" in inner else {}
                merged[key] = Node({**inner, **_under({"norm": place.mapping["norm"]}, own_norm)}, line.origin)
    return merged


class Tie:
    """The head's scale, which follows `model.tie` through the layers of a config."""

    def __init__(self) -> None:
        self._scale: Node | None = None  # of the head when it was last tied

    def follow(self, before: Node | None, layer: Node, after: Node) -> Node:
        """The section `model` once a layer is laid over it: a layer that ties or unties the head, and does not mention
        the head itself, takes the scale of a tied head along.
        """
        changed = before is not None and "tie" in (layer.mapping or {}) and "head" not in (layer.mapping or {})
        if changed and _is_tied(before) != _is_tied(after):
            after = _scaled(after, self._scale if _is_tied(after) else None)
        if _is_tied(after):
            self._scale = _scale(after)
        return after


def _scaled(model: Node, scale: Node | None) -> Node:
    """The model with another scale of its head, or without one; a scale that is no tied head's stays."""
    tree = dict(model.mapping or {})
    head = tree.get("head")
    if head is None or (scale is None and _scale(model) is None):
        return model
    keys = dict(head.mapping) if head.mapping is not None else {"kind": head}
    if scale is None:
        del keys["scale"]
    else:
        keys["scale"] = scale
    return Node({**tree, "head": Node(keys, head.origin)}, model.origin)


def _scale(model: Node | None) -> Node | None:
    """The head's scale where it is a tied head's."""
    head = (model.mapping or {}).get("head") if model is not None else None
    scale = (head.mapping or {}).get("scale") if head is not None else None
    return scale if scale is not None and scale.value == SCALED else None


def _is_tied(model: Node | None) -> bool:
    tie = (model.mapping or {}).get("tie") if model is not None else None
    return tie is not None and isinstance(tie.value, tuple) and any(part.value == "head" for part in tie.value)


def remarks(before: Node | None, config: Config) -> Iterator[str]:
    """What a row or a command line changes of one of a pair, and leaves in the other; `before` is the section `model`
    without them.
    """
    then: Any = None if before is None else before.plain()
    now = config.tree["model"]
    if then is None or then.get("kind") != now.get("kind"):
        return
    broken = list(_broken_norms(config, "", then, now))
    for tower in TOWERS:
        if not broken and isinstance(now.get(tower), Mapping):
            broken += _broken_norms(config, tower, then, now)
    yield from broken
    if _tied(then) == _tied(now) and _tie_scale(then) != _tie_scale(now):
        tied = "tied" if _tied(now) else "not tied"
        what = f"model.head.scale is now {_tie_scale(now) or 'none'}, and the head stays {tied}"
        yield str(config.error("model.head", what, f"{SCALED} is the scale of a tied head; model.tie brings it along"))


def _broken_norms(config: Config, tower: str, then: Any, now: Any) -> Iterator[str]:
    """Where the norm of the blocks and that of the stack were one before, and are not any more."""
    slots = [f"{tower}.{slot}.norm".lstrip(".") for slot in SLOTS]
    was, is_now = ([_norm(tree, tower, slot) for slot in SLOTS] for tree in (then, now))
    changed = [one != other for one, other in zip(was, is_now)]
    moved = _inner(then, "block").get("residual") != _inner(now, "block").get("residual")
    if was[0] is None or was[0] != was[1] or sum(changed) != 1 or (moved and {"kind": "NoNorm"} in is_now):
        return
    key, other = (slots[place] for place in (changed.index(True), changed.index(False)))
    norm, left = (_written(is_now[changed.index(moves)]) for moves in (True, False))
    fix = f"model.norm={norm} changes every norm" if not tower else f"set model.{other}={norm} too"
    yield str(config.error(f"model.{key}", f"model.{other} stays {left}", fix))


def _norm(tree: Any, tower: str, slot: str) -> Any:
    """The norm of a slot, as a tower has it, written out as a line."""
    norm: Any = None
    for part in [tree, _inner(tree, tower)] if tower else [tree]:
        line = _inner(part, slot).get("norm")
        if line is not None:
            line = line if isinstance(line, Mapping) else {"kind": line}
            norm = line if "kind" in line or not isinstance(norm, Mapping) else {**norm, **line}
    return norm


def _written(line: Any) -> str:
    """A norm's line as one writes it on a command line."""
    if not isinstance(line, Mapping) or list(line) == ["kind"]:
        return str(line["kind"] if isinstance(line, Mapping) else line)
    return "{" + ", ".join(f"{key}: {value}" for key, value in line.items()) + "}"


def _kind(line: Node) -> Any:
    inner = line.mapping
    return line.value if inner is None else (inner["kind"].value if "kind" in inner else None)


def _inner(tree: Any, key: str) -> Any:
    """The keys under a key; none where it holds a bare word or nothing."""
    return inner if isinstance(inner := tree.get(key), Mapping) else {}


def _tied(tree: Any) -> bool:
    return isinstance(tie := tree.get("tie"), list) and "head" in tie


def _tie_scale(tree: Any) -> str | None:
    return SCALED if _inner(tree, "head").get("scale") == SCALED else None
