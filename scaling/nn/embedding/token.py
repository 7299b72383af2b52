from __future__ import annotations

import torch
from torch import nn

from scaling.build import Recipe
from scaling.nn.embedding.embedding import Embedding, Scale
from scaling.number import BelowOne, NonNegativeInt
from scaling.shape import Shape


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
