"""Blocks: an order over branches, each of them residual(norm, piece)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from scaling.build import Recipe
from scaling.errors import ScalingError, nearest
from scaling.nn.context import Context
from scaling.shape import Shape


class Serial(nn.Module):
    """One branch after another: x ← branch(x). (Vaswani et al. 2017)

    `branches` is the order; [channel, mixer, channel] is a Macaron, and a decoder with an encoder adds `cross`.
    """

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
        super().__init__()
        recipes = {"mixer": mixer, "cross": cross, "channel": channel}
        self.branches = _branches(shape, branches, recipes, norm, residual)
        self._check()

    def _check(self) -> None:
        """Refuse branches that this order cannot run; a serial order runs all."""

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        for branch in self.branches.values():
            x = branch(x, context)
        return x


class Parallel(Serial):
    """All branches read the same stream: x + Σ f(norm(x)). (Wang & Komatsuzaki 2021, GPT-J; Chowdhery et al. 2022,
    PaLM)
    """

    def _check(self) -> None:
        for branch in self.branches.values():
            if not hasattr(branch, "update"):
                raise ScalingError(
                    "parallel branches must add to the stream",
                    key="residual.kind",
                    value=type(branch).__name__,
                    mend="take Pre or Sandwich, or a Serial block",
                )

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        total = x
        branch: Any
        for branch in self.branches.values():
            total = total + branch.update(x, context)
        return total


def _branches(
    shape: Shape, order: Sequence[str], recipes: Mapping[str, Recipe | None], norm: Recipe, residual: Recipe
) -> nn.ModuleDict:
    if not order:
        raise ScalingError("a block needs a branch", key="branches", value=order, mend="write [mixer, channel]")
    branches = nn.ModuleDict()
    for name in order:
        if name not in recipes:
            raise ScalingError("a block has no such branch", key="branches", value=name, mend=nearest(name, recipes))
        made = recipes[name]
        if made is None:
            raise ScalingError("the branch has no piece", key=name, value=None, mend=f"write {name}: {{kind: …}}")
        try:
            piece = made(shape)
        except ScalingError as error:
            raise error.under(name) from None
        again = sum(key.split("_")[0] == name for key in branches)
        branches[f"{name}_{again + 1}" if again else name] = residual(lambda: norm(shape.width), piece)
    return branches
