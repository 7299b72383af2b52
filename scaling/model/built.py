"""The piece of a slot, built and held to its contract."""

from __future__ import annotations

from typing import Any

from scaling.errors import ScalingError
from scaling.nn.contract import Head, Position, Stack
from scaling.schema import Recipe

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
                fix=f"let it inherit from scaling.nn.contract.{contract.__name__} (docs/pieces.md)",
            )
        return piece
    except ScalingError as error:
        # A stack makes its blocks and positions; their errors are placed under their own lines, not the stack's.
        beside = slot == "stack" and str(error.key).startswith(("block.", "blocks.", "position."))
        raise error if beside else error.under(slot) from None
