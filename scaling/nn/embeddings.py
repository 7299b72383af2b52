"""Embeddings: token ids -> the stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.errors import ScalingError
from scaling.kernel.operations import drop
from scaling.nn import contract
from scaling.nn.context import Context
from scaling.nn.contract import declare
from scaling.nn.rows import Rows, bounds_of, counted, widths_of
from scaling.schema import BelowOne, NonNegativeInt, PositiveFloat, Recipe, Width
from scaling.shape import Shape

Scale = Literal["none", "sqrt_width"]


class _Embedding(nn.Module, contract.Embedding):
    """x_t = norm(s e(token_t) + position + S[segment_t]), e by a table or by rows in clusters: what the kinds share.

    Either a `table` [v w] or `rows` (nn/rows.py): what ties share. (Press & Wolf 2016)
    """

    def __init__(
        self,
        shape: Shape,
        table: nn.Parameter | None = None,
        rows: Any = None,
        *,
        scale: Scale = "none",
        segments: NonNegativeInt = 0,
        norm: Recipe | None = None,
        dropout: BelowOne = 0.0,
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

    def tie(self, other: _Embedding) -> None:
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


class Token(_Embedding):
    """x_t = norm(s E[token_t] + position + S[segment_t]). (Vaswani et al. 2017, section 3.4; Devlin et al. 2018)

    `scale: sqrt_width` multiplies by √w, as Vaswani and T5's ancestors do; `segments` counts BERT's sentence kinds.
    """

    def __init__(self, shape: Shape, **common: Any):
        super().__init__(shape, nn.Parameter(torch.empty(shape.vocabulary, shape.width)), **common)


class Factorized(_Embedding):
    """Token's with e(i) = E[i] Pᵀ, E [V r], P [w r]. (Lan et al. 2019, ALBERT, section 3.1)

    Tied, a head's logits are (h P) Eᵀ. A `rank` below 1 is a fraction of the width.
    """

    def __init__(self, shape: Shape, *, rank: PositiveFloat = 128, **common: Any):
        own = counted("rank", rank, shape.width)
        if own == shape.width:
            raise ScalingError(
                f"expected less than the width {own}", key="rank", value=rank, fix="take Token for a full table"
            )
        super().__init__(shape, None, Rows([0, shape.vocabulary], [own], shape.width, "input"), **common)


class Projected(_Embedding):
    """x_t = norm(s E[token_t] + position + S[segment_t]) Pᵀ + b, all within the norm `width` wide, P [w width]. (Lan et
    al. 2019, ALBERT's code; Clark et al. 2020, ELECTRA)

    Factorized adds positions, segments and norm behind P. A `width` below 1 is a fraction of the stream's; ELECTRA's
    generators have more than the stream's. Tied, a head reads vectors of that width: `Transform` with the same `width`.
    """

    def __init__(self, shape: Shape, *, width: Width = 128, **common: Any):
        own = shape.fraction("width", width)
        if own == shape.width:
            raise ScalingError(
                "expected another width than the stream's", key="width", value=width, fix="take Token for a full table"
            )
        table = nn.Parameter(torch.empty(shape.vocabulary, own))
        super().__init__(replace(shape, width=own), table, **common)
        self.projection = declare(nn.Linear(own, shape.width), weight="input")

    def forward(
        self, tokens: Int[Tensor, "b t"], context: Context, segments: Int[Tensor, "b t"] | None = None
    ) -> Float[Tensor, "b t w"]:
        return self.projection(super().forward(tokens, context, segments))


class Adaptive(_Embedding):
    """Token's with e(i) = E_c[i − b_c] P_cᵀ: the rarer a cluster, the narrower its E_c. (Baevski & Auli 2018)

    Clusters begin at token 0 and at each of `cutoffs`, and are `widths` wide; ids must fall in frequency, as those of
    tokenizers that merge or rank do. Numbers below 1 are fractions of the vocabulary and of the width. As in Narang et
    al. 2021, a cluster as wide as the stream has no P_c; the paper projects it too. Tied, a linear head's logits are (h
    P_c) E_cᵀ over all clusters.
    """

    def __init__(self, shape: Shape, *, cutoffs: list[PositiveFloat], widths: list[PositiveFloat], **common: Any):
        bounds = bounds_of(cutoffs, shape.vocabulary)
        rows = Rows(bounds, widths_of(widths, bounds, shape.width), shape.width, "input")
        super().__init__(shape, None, rows, **common)
