"""Branches: what a block runs, by name. The first word of a name is the slot that its costs are counted under."""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor, nn

from scaling.build import Recipe
from scaling.errors import ScalingError
from scaling.nn.context import Context
from scaling.shape import Shape


class Branches(nn.Module):
    """x ← branch(x), one after another, each branch residual(norm, piece)."""

    def __init__(self, shape: Shape, pieces: Mapping[str, nn.Module], norm: Recipe, residual: Recipe):
        super().__init__()
        self.branches = nn.ModuleDict(
            {name: residual(shape, lambda: norm(shape.width), piece) for name, piece in pieces.items()}
        )

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b q w"]:
        for branch in self.branches.values():
            x = branch(x, context)
        return x


def made(slot: str, recipe: Recipe, shape: Shape) -> nn.Module:
    """A slot's piece; what is wrong with it is told under its key in the block's line."""
    try:
        return recipe(shape)
    except ScalingError as error:
        raise error.under(slot) from None
