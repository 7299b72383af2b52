"""The parts of a tower, built from their lines: the piece of a slot, and blocks that differ."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from scaling.base.errors import ScalingError, plural, under
from scaling.config.schema import Checked, Recipe
from scaling.config.shape import Shape
from scaling.model.context import Pattern
from scaling.model.contract import Embedding, Head, Position, Stack

CONTRACTS = {"position": Position, "stack": Stack, "head": Head}


def built(slot: str, recipe: Recipe, *shared: object) -> Any:
    """The piece of a slot; an error in it is placed under the slot."""
    try:
        piece = recipe(*shared)
        contract = CONTRACTS.get(slot)
        if contract is not None and not isinstance(piece, contract):
            what = f"a piece of the slot {slot} declares more than this one does"
            fix = f"let it inherit from scaling.model.contract.{contract.__name__} (docs/pieces.md)"
            raise ScalingError(what, key="kind", value=type(piece).__name__, fix=fix)
        return piece
    except ScalingError as error:
        # A stack makes its blocks and positions; their errors are placed under their own lines, not the stack's.
        beside = slot == "stack" and str(error.key).startswith(("block.", "blocks.", "position."))
        raise error if beside else error.under(slot) from None


_KEY = re.compile(r"every [1-9]\d*|-?[1-9]\d*")


def assembled(
    shape: Shape,
    *,
    embedding: Recipe,
    position: Recipe,
    pattern: Recipe,
    block: Checked,
    stack: Recipe,
    blocks: Mapping[str, Any] = {},
) -> tuple[Pattern, Embedding, Stack]:
    """The parts of a tower. Some of the blocks, counted from 0, may differ: `every 4` names the 4th, the 8th, …, in a
    shorter stack its last; `11` the 11th; `-2` the last but one.
    """
    named = {str(key): _named(str(key), shape.layers) for key in blocks}
    different: dict[int, tuple[Checked, str]] = {}
    for key, line in blocks.items():
        with under(f"blocks.{key}"):
            for index in named[str(key)]:
                different[index] = different.get(index, (block, ""))[0].over(line), f"blocks.{key}"

    made: set[int] = set()

    def make(index: int) -> nn.Module:
        made.add(index)
        line, key = different.get(index, (block, "block"))
        with under(key):
            return line(shape)

    sees, first = built("pattern", pattern), built("embedding", embedding, shape)
    within = replace(shape, width=first.width)
    piece = built("stack", stack, shape, make, lambda: built("position", position, within, sees))
    for key, indices in named.items():
        if not indices <= made:
            what = f"the stack has no block {min(indices - made) + 1}"
            raise ScalingError(what, key=f"blocks.{key}", fix="a shared block is one block")
    # A size that no piece reads is refused. A piece without a contract may have heads and hidden layers.
    pieces = [(getattr(piece, "slot", None), piece) for part in (first, piece) for piece in part.modules()]
    heads = any(slot in ("mixer", "cross") and getattr(piece, "heads", 1) for slot, piece in pieces)
    hidden = any(slot == "channel" and getattr(piece, "has_hidden", True) for slot, piece in pieces)
    shape.check_use(heads=heads, hidden=hidden)
    return sees, first, piece


def _named(key: str, layers: int) -> set[int]:
    if not _KEY.fullmatch(key):
        what, fix = "expected the number of a block, or every N", "write {every 4: {channel: …}}"
        raise ScalingError(what, key="blocks", value=key, fix=fix)
    if key.startswith("every "):
        step = int(key.removeprefix("every "))
        named = set(range(step - 1, layers, step)) or {layers - 1}
    else:
        number = int(key)
        named = {number - 1 if number > 0 else layers + number}
    if not named or not all(0 <= index < layers for index in named):
        what, fix = f"the stack has {plural(layers, 'block')}", "set size.layers, or name another"
        raise ScalingError(what, key=f"blocks.{key}", fix=fix)
    return named
