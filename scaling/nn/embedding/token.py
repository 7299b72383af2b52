from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.build import Recipe
from scaling.nn.context import Context
from scaling.nn.dropout import drop
from scaling.shape import Shape


class Token(nn.Module):
    """x_t = norm(s E[token_t] + position + S[segment_t]). (Vaswani et al. 2017, section 3.4; Devlin et al. 2018)

    `scale: sqrt_width` multiplies by √w, as Vaswani and T5's ancestors do; `segments` counts BERT's sentence kinds.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        scale: Literal["none", "sqrt_width"] = "none",
        segments: int = 0,
        norm: Recipe | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.scale = shape.width**0.5 if scale == "sqrt_width" else None
        self.dropout = dropout
        self.table = nn.Parameter(torch.empty(shape.vocabulary, shape.width))
        self.segments = nn.Parameter(torch.empty(segments, shape.width)) if segments else None
        self.norm = norm(shape.width) if norm else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table, std=0.02)
        if self.segments is not None:
            nn.init.normal_(self.segments, std=0.02)

    def tie(self, other: Token) -> None:
        """Read from the table of another embedding."""
        self.table = other.table

    def forward(
        self, tokens: Int[Tensor, "b t"], context: Context, segments: Int[Tensor, "b t"] | None = None
    ) -> Float[Tensor, "b t w"]:
        x = nn.functional.embedding(tokens, self.table)
        if self.scale is not None:
            x = x * self.scale
        x = context.position.embed(x, context.places.positions)
        if self.segments is not None:
            # A text without segments is all sentence A.
            kinds = torch.zeros_like(tokens) if segments is None else segments
            x = x + nn.functional.embedding(kinds, self.segments)
        if self.norm is not None:
            x = self.norm(x)
        return drop(x, self.dropout, self.training)
