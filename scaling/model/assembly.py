"""The parts of a tower, built from their lines: the piece of a slot, and blocks that differ."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import nn

from scaling.base.errors import ScalingError, under
from scaling.config.schema import Checked, Recipe
from scaling.config.shape import Shape
from scaling.model.contract import Head, Position, Stack

CONTRACTS = {"position": Position, "stack": Stack, "head": Head}


def built(slot: str, recipe: Recipe, *shared: object) -> Any:
    """The piece of a slot; an error in it is placed under the slot."""
    try:
        piece = recipe(*shared)
        contract = CONTRACTS.get(slot)
        if contract is not None and not isinstance(piece, contract):
            raise ScalingError(
                f"a piece of the slot {slot} declares more than this one does",
                key="kind",
                value=type(piece).__name__,
                fix=f"let it inherit from scaling.model.contract.{contract.__name__} (docs/pieces.md)",
            )
        return piece
    except ScalingError as error:
        # A stack makes its blocks and positions; their errors are placed under their own lines, not the stack's.
        beside = slot == "stack" and str(error.key).startswith(("block.", "blocks.", "position."))
        raise error if beside else error.under(slot) from None


_KEY = re.compile(r"every [1-9]\d*|-?[1-9]\d*")


class Blocks:
    """Makes block `index` of a stack, counted from 0. `every 4` names the 4th, the 8th, …, in a shorter stack its last;
    `11` the 11th; `-2` the last but one.
    """

    def __init__(self, shape: Shape, block: Checked, blocks: Mapping[str, Any]):
        self._shape, self._plain = shape, (block, "block")
        self._different: dict[int, tuple[Checked, str]] = {}
        self._unmade = {str(key): _named(str(key), shape.layers) for key in blocks}
        for key, line in blocks.items():
            for index in self._unmade[str(key)]:
                below, _ = self._different.get(index, self._plain)
                with under(f"blocks.{key}"):
                    self._different[index] = (below.over(line), f"blocks.{key}")

    def __call__(self, index: int) -> nn.Module:
        line, key = self._different.get(index, self._plain)
        for indices in self._unmade.values():
            indices.discard(index)
        with under(key):
            return line(self._shape)

    def check(self) -> None:
        """Refuse blocks that were named and that the stack did not ask for."""
        for key, left in self._unmade.items():
            if left:
                raise ScalingError(
                    f"the stack has no block {min(left) + 1}", key=f"blocks.{key}", fix="a shared block is one block"
                )


def _named(key: str, layers: int) -> set[int]:
    if not _KEY.fullmatch(key):
        raise ScalingError(
            "expected the number of a block, or every N", key="blocks", value=key, fix="write {every 4: {channel: …}}"
        )
    if key.startswith("every "):
        step = int(key.removeprefix("every "))
        named = set(range(step - 1, layers, step)) or {layers - 1}
    else:
        number = int(key)
        named = {number - 1 if number > 0 else layers + number}
    if not named or not all(0 <= index < layers for index in named):
        raise ScalingError(f"there are {layers} blocks", key=f"blocks.{key}", fix="set size.layers, or name another")
    return named
