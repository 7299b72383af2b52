from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.errors import ScalingError
from scaling.nn.context import Pattern
from scaling.nn.position.hooks import Hooks
from scaling.nn.role import declare
from scaling.schema import NonNegativeInt, PositiveInt
from scaling.shape import Shape


class Learned(Hooks):
    """x_t + P_t with P a learned table of `length` rows. (Gehring et al. 2017; BERT, GPT)

    `offset` rows come before the first (RoBERTa and BART count from 2).
    """

    def __init__(
        self, shape: Shape, pattern: Pattern, *, length: PositiveInt | None = None, offset: NonNegativeInt = 0
    ):
        super().__init__()
        self.length, self.offset = length or shape.length, offset
        self.reach = self.length
        if self.length < shape.length:
            raise ScalingError(
                f"windows of {shape.length} tokens are longer than the {self.length} learned positions",
                key="length",
                value=self.length,
                fix=f"set position.length to {shape.length} or size.length to {self.length}",
            )
        self.table = nn.Parameter(torch.empty(self.length + offset, shape.width))
        declare(self, table="table")
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table, std=0.02)

    def embed(self, x: Float[Tensor, "b t w"], positions: Int[Tensor, "#b t"]) -> Float[Tensor, "b t w"]:
        if x.shape[1] > self.length:
            raise ScalingError(
                f"a sequence of {x.shape[1]} tokens is longer than the {self.length} learned positions",
                key="size.length",
                value=self.length,
                fix="shorten the sequence or learn more positions",
            )
        return x + nn.functional.embedding(positions + self.offset, self.table)
