from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.kernel.operations import drop
from scaling.nn import contract
from scaling.nn.context import Context
from scaling.nn.role import declare
from scaling.schema import BelowOne, NonNegativeInt, Recipe
from scaling.shape import Shape

Scale = Literal["none", "sqrt_width"]


class Embedding(nn.Module, contract.Embedding):
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
        declare(self, table="table", segments="table")
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
        x = context.position.embed(x, context.places.seen_by(context.position))
        if self.segments is not None:
            # A text without segments is all sentence A.
            kinds = torch.zeros_like(tokens) if segments is None else segments
            x = x + nn.functional.embedding(kinds, self.segments)
        if self.norm is not None:
            x = self.norm(x)
        return drop(x, self.dropout, self.training)


class Token(Embedding):
    """x_t = norm(s E[token_t] + position + S[segment_t]). (Vaswani et al. 2017, section 3.4; Devlin et al. 2018)

    `scale: sqrt_width` multiplies by √w, as Vaswani and T5's ancestors do; `segments` counts BERT's sentence kinds.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        scale: Scale = "none",
        segments: NonNegativeInt = 0,
        norm: Recipe | None = None,
        dropout: BelowOne = 0.0,
    ):
        table = nn.Parameter(torch.empty(shape.vocabulary, shape.width))
        super().__init__(shape, table=table, scale=scale, segments=segments, norm=norm, dropout=dropout)
