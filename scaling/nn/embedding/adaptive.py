from __future__ import annotations

from scaling.nn.embedding.embedding import Embedding, Scale
from scaling.nn.rows import Rows, bounds_of, widths_of
from scaling.schema import BelowOne, NonNegativeInt, PositiveFloat, Recipe
from scaling.shape import Shape


class Adaptive(Embedding):
    """Token's with e(i) = E_c[i − b_c] P_cᵀ: the rarer a cluster, the narrower its E_c. (Baevski & Auli 2018)

    Clusters begin at token 0 and at each of `cutoffs`, and are `widths` wide; ids must fall in frequency, as those of
    tokenizers that merge or rank do. Numbers below 1 are fractions of the vocabulary and of the width. As in Narang et
    al. 2021, a cluster as wide as the stream has no P_c; the paper projects it too. Tied, a linear head's logits are (h
    P_c) E_cᵀ over all clusters.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        cutoffs: list[PositiveFloat],
        widths: list[PositiveFloat],
        scale: Scale = "none",
        segments: NonNegativeInt = 0,
        norm: Recipe | None = None,
        dropout: BelowOne = 0.0,
    ):
        bounds = bounds_of(cutoffs, shape.vocabulary)
        rows = Rows(bounds, widths_of(widths, bounds, shape.width), shape.width, "input")
        super().__init__(shape, rows=rows, scale=scale, segments=segments, norm=norm, dropout=dropout)
