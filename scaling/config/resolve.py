"""The last steps of a config: `${size.width}` and `4k` become values, and sections with fixed keys are checked.

defaults.yaml is the schema of those sections: a key it does not have is refused, a value has the type of its default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from scaling.config.node import Node
from scaling.config.scalar import quantity
from scaling.errors import ScalingError, nearest
from scaling.schema import (
    BelowOne,
    Long,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Range,
    Rows,
    Seed,
    SmallInt,
    check,
)

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")

MicroBatch = Rows | None
Budget = Long | None
Threads = Annotated[int, Range(least=1, most=1024)]
Clip = PositiveFloat | None
Passes = Annotated[float, Range(above=0, most=10**6)]
Epochs = Passes | None
Patience = PositiveInt | None
Parts = Literal["all", "head", "bias"] | list[str] | dict[str, Any]

# What a key may hold where its default does not show it.
TYPES: dict[str, Any] = {
    "train.batch": int | dict[str, Any],
    "train.steps": Budget,
    "train.tokens": Budget,
    "train.epochs": Epochs,
    "train.patience": Patience,
    "train.parts": Parts,
    "train.layer_decay": PositiveFraction,
    "train.micro_batch": MicroBatch,
    "train.documents": Literal["join", "mask"],
    "train.checkpointing": Literal["none", "blocks"],
    "train.precision": Literal["float32", "bf16_autocast", "bf16"],
    "train.devices": int | str,
    "train.threads": Threads | Literal["auto"],
    "train.strategy": Literal["auto", "ddp", "fsdp"],
    "train.round_vocabulary": PositiveInt,
    "train.smoothing": BelowOne,
    "train.clip": Clip,
    "train.checkpoint_every": Long,
    "train.keep": PositiveInt,
    "evaluate.points": SmallInt,
    "evaluate.precision": Literal["float32", "bf16_autocast", "bf16"],
    "evaluate.spacing": Literal["log", "even"],
    "evaluate.windows": Budget | Literal["auto", "whole_at_end"],
    "log.every": Long,
    "log.wandb": Literal["auto", "online", "offline", "disabled"],
    "log.project": str | None,
    "log.group": str | None,
    "log.name": str | None,
}
WORDS = {"seed": Seed}  # the same of sections that are one value
# The keys of sections that are null by default.
KEYS: dict[str, dict[str, Any]] = {
    "start": {
        "run": str | None,
        "step": Budget,
        "folder": str | None,
        "vectors": str | None,
        "study": str | None,
        "row": str | None,
        "new": list[str],
        "unused": list[str],
    }
}


def interpolate(root: Node) -> Node:
    """The tree with every `${dotted.key}` replaced by the scalar of that key, as OmegaConf reads it."""
    asking = {key: node for key, node in root.walk() if isinstance(node.value, str) and "${" in node.value}
    if not asking:
        return root
    every = dict(root.walk())
    for key, node in asking.items():
        for name in _REFERENCE.findall(str(node.value)):
            _check(node, key, name, every)
        if "${" in _REFERENCE.sub("", str(node.value)):
            raise node.error("a reference does not end", key=key, fix="write ${section.key}")

    from omegaconf import OmegaConf  # a tenth of a second, for the configs that refer
    from omegaconf.errors import OmegaConfBaseException

    whole = OmegaConf.create(root.plain())

    def substitute(key: str, node: Node) -> Node:
        if key not in asking:
            return node
        try:
            return Node(OmegaConf.select(whole, key), node.origin)
        except OmegaConfBaseException as error:
            reason = str(error).splitlines()[0]
            raise node.error(f"it cannot be resolved: {reason}", key=key, fix="write ${section.key}") from None

    return _leaves(root, substitute)


def _check(node: Node, key: str, name: str, every: Mapping[str, Node]) -> None:
    """Refuse resolvers, which read the environment and run functions, and what is not there or not one value."""
    if ":" in name:
        raise node.error("resolvers are not read", key=key, fix="only ${section.key} is")
    if name not in every:
        raise node.error(f"there is no key {name!r} to refer to", key=key, fix=nearest(name, filter(None, every)))
    if isinstance(every[name].value, Mapping | tuple):
        raise node.error(f"{name} is not a single value", key=key, fix="refer to a key that holds one")


def quantities(root: Node) -> Node:
    """The tree with unquoted `4k` and `20M` as numbers."""

    def convert(_: str, node: Node) -> Node:
        number = quantity(node.text) if node.text is not None and isinstance(node.value, str) else None
        return node if number is None else Node(number, node.origin, node.text)

    return _leaves(root, convert)


def typed(section: str, node: Node, default: Node) -> Node:
    """A section of fixed keys with its keys and types checked against the defaults."""
    if isinstance(default.value, str):
        node = _unkinded(node)
    if section in KEYS:
        return node if node.value is None else _keyed(section, node, KEYS[section])
    if default.mapping is None:
        shape = list[Any] if isinstance(default.value, tuple) else type(default.value)
        return _typed(section, node, {**TYPES, **WORDS}.get(section, shape))
    if node.mapping is None:
        choices = ", ".join(default.mapping)
        raise node.error("expected keys under it", key=section, fix=f"write {section}.KEY, with KEY of {choices}")
    checked = {}
    for key, child in node.mapping.items():
        dotted = f"{section}.{key}"
        if key not in default.mapping:
            raise child.error(f"{section} has no such key", key=dotted, fix=nearest(key, default.mapping))
        checked[key] = typed(dotted, child, default.mapping[key])
    return Node(checked, node.origin)


def _unkinded(node: Node) -> Node:
    """Keys laid over a word were laid over that word as a kind; here it is none, and the keys take its place."""
    if node.mapping is None or "kind" not in node.mapping:
        return node
    rest = {key: child for key, child in node.mapping.items() if key != "kind"}
    return Node(rest, node.origin) if rest else node.mapping["kind"]


def _keyed(section: str, node: Node, keys: Mapping[str, Any]) -> Node:
    """A section that is null by default, with its keys and types checked."""
    if node.mapping is None:
        raise node.error("expected keys under it, or null", key=section, fix=f"write {section}.{next(iter(keys))}=…")
    for key, child in node.mapping.items():
        if key not in keys:
            raise child.error(f"{section} has no such key", key=f"{section}.{key}", fix=nearest(key, keys))
    return Node({key: _typed(f"{section}.{key}", child, keys[key]) for key, child in node.mapping.items()}, node.origin)


def _typed(key: str, node: Node, annotation: Any) -> Node:
    value = node.plain()
    if node.name is not None and annotation in (str, str | None):
        value = node.name
    try:
        value = check(key, value, annotation)
    except ScalingError as error:
        if isinstance(value, float) and value.is_integer():  # 1e6 of a key that takes whole numbers
            return _typed(key, Node(int(value), node.origin, node.text), annotation)
        raise error.at(file=node.origin.file, line=node.origin.line) from None
    return node if isinstance(value, list | dict) else Node(value, node.origin, node.text)


def _leaves(node: Node, change: Callable[[str, Node], Node], key: str = "") -> Node:
    below = f"{key}." if key else ""
    if isinstance(node.value, Mapping):
        return Node({part: _leaves(child, change, below + part) for part, child in node.value.items()}, node.origin)
    if isinstance(node.value, tuple):
        items = (_leaves(child, change, f"{below}{index}") for index, child in enumerate(node.value))
        return Node(tuple(items), node.origin)
    return change(key, node)
