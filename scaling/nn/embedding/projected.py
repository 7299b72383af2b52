from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.errors import ScalingError
from scaling.nn.context import Context
from scaling.nn.embedding.embedding import Embedding, Scale
from scaling.nn.role import declare
from scaling.schema import BelowOne, NonNegativeInt, Recipe, Width
from scaling.shape import Shape


class Projected(Embedding):
    """x_t = norm(s E[token_t] + position + S[segment_t]) Pᵀ + b, all within the norm `width` wide, P [w width]. (Lan et
    al. 2019, ALBERT's code; Clark et al. 2020, ELECTRA)

    Factorized adds positions, segments and norm behind P. A `width` below 1 is a fraction of the stream's; ELECTRA's
    generators have more than the stream's. Tied, a head reads vectors of that width: `Transform` with the same `width`.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        width: Width = 128,
        scale: Scale = "none",
        segments: NonNegativeInt = 0,
        norm: Recipe | None = None,
        dropout: BelowOne = 0.0,
    ):
        own = shape.fraction("width", width)
        if own == shape.width:
            raise ScalingError(
                "expected another width than the stream's", key="width", value=width, fix="take Token for a full table"
            )
        table = nn.Parameter(torch.empty(shape.vocabulary, own))
        within = replace(shape, width=own)
        super().__init__(within, table=table, scale=scale, segments=segments, norm=norm, dropout=dropout)
        self.projection = declare(nn.Linear(own, shape.width), weight="input")

    def forward(
        self, tokens: Int[Tensor, "b t"], context: Context, segments: Int[Tensor, "b t"] | None = None
    ) -> Float[Tensor, "b t w"]:
        return self.projection(super().forward(tokens, context, segments))
