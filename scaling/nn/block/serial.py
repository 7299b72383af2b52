from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from torch import Tensor, nn

from scaling.errors import ScalingError, nearest, under
from scaling.nn.context import Context
from scaling.nn.contract import Block
from scaling.schema import Recipe
from scaling.shape import Shape


class Branches(nn.Module, Block):
    """x ← branch(x), one after another, each branch residual(norm, piece)."""

    def __init__(self, shape: Shape, pieces: Mapping[str, nn.Module], norm: Recipe, residual: Recipe):
        super().__init__()
        self.branches = nn.ModuleDict(
            {name: residual(shape, lambda: norm(shape.width), piece) for name, piece in pieces.items()}
        )

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        for branch in self.branches.values():
            x = branch(x, context)
        return x


class Serial(Branches):
    """One branch after another: x ← branch(x). (Vaswani et al. 2017)

    `branches` is the order; [channel, mixer, channel] is a Macaron, and a decoder with an encoder adds `cross`.
    """

    in_turn = True

    def __init__(
        self,
        shape: Shape,
        *,
        branches: list[str],
        norm: Recipe,
        residual: Recipe,
        mixer: Recipe,
        channel: Recipe,
        cross: Recipe | None = None,
    ):
        recipes = {"mixer": mixer, "cross": cross, "channel": channel}
        super().__init__(shape, _pieces(shape, branches, recipes), norm, residual)
        self._check()

    def _check(self) -> None:
        """Refuse branches that this order cannot run; a serial order runs all."""


def piece_of(slot: str, recipe: Recipe, shape: Shape) -> nn.Module:
    """A slot's piece; an error in it is placed under its key in the block's line."""
    with under(slot):
        return recipe(shape)


def _pieces(shape: Shape, names: Sequence[str], recipes: Mapping[str, Recipe | None]) -> dict[str, nn.Module]:
    """The pieces in order; a name that comes again is numbered."""
    if not names:
        raise ScalingError("a block needs a branch", key="branches", value=names, fix="write [mixer, channel]")
    pieces: dict[str, nn.Module] = {}
    for name in names:
        if name not in recipes:
            raise ScalingError("a block has no such branch", key="branches", value=name, fix=nearest(name, recipes))
        recipe = recipes[name]
        if recipe is None:
            raise ScalingError("the branch has no piece", key=name, value=None, fix=f"write {name}: {{kind: …}}")
        again = sum(key.split("_")[0] == name for key in pieces)
        pieces[f"{name}_{again + 1}" if again else name] = piece_of(name, recipe, shape)
    return pieces
