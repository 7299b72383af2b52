from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.build import Recipe
from scaling.nn.context import Context
from scaling.nn.dropout import drop
from scaling.shape import Shape

Scale = Literal["none", "sqrt_width"]


class Embedding(nn.Module):
    """x_t = norm(s e(token_t) + position + S[segment_t]), e by a table or by rows in clusters: what the kinds share.

    Either a `table` [v w] or `rows` (nn/rows.py): what ties share. (Press & Wolf 2016)
    """

    def __init__(
        self,
        shape: Shape,
        *,
        table: nn.Parameter | None = None,
        rows: Any = None,
        scale: Scale,
        segments: int,
        norm: Recipe | None,
        dropout: float,
    ):
        super().__init__()
        self.width = shape.width  # of the vectors that positions are added to
        self.scale = shape.width**0.5 if scale == "sqrt_width" else None
        self.dropout = dropout
        self.table, self.rows = table, rows
        self.segments = nn.Parameter(torch.empty(segments, shape.width)) if segments else None
        self.norm = norm(shape.width) if norm else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for table in (self.table, self.segments):
            if table is not None:
                nn.init.normal_(table, std=0.02)

    @property
    def form(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of what ties share."""
        return self.rows.form if self.table is None else (tuple(self.table.shape),)

    def tie(self, other: Embedding) -> None:
        """Read the vectors of another embedding."""
        self.table, self.rows = other.table, other.rows

    def forward(
        self, tokens: Int[Tensor, "b t"], context: Context, segments: Int[Tensor, "b t"] | None = None
    ) -> Float[Tensor, "b t w"]:
        x = self.rows(tokens) if self.table is None else nn.functional.embedding(tokens, self.table)
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
