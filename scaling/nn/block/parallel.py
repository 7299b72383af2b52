from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor

from scaling.errors import ScalingError
from scaling.nn.block.serial import Serial
from scaling.nn.context import Context
from scaling.nn.contract import Additive


class Parallel(Serial):
    """All branches read the same stream: x + Σ f(norm(x)). (Wang & Komatsuzaki 2021, GPT-J; Chowdhery et al. 2022,
    PaLM)
    """

    in_turn = False

    def _check(self) -> None:
        for branch in self.branches.values():
            if not isinstance(branch, Additive):
                raise ScalingError(
                    "parallel branches must add to the stream",
                    key="residual.kind",
                    value=type(branch).__name__,
                    fix="take Pre or Sandwich, or a Serial block",
                )

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        total = x
        branch: Any
        for branch in self.branches.values():
            total = total + branch.update(x, context)
        return total
