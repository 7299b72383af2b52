from __future__ import annotations

from scaling.errors import ScalingError
from scaling.nn.embedding.embedding import Embedding, Scale
from scaling.nn.rows import Rows, counted
from scaling.schema import BelowOne, NonNegativeInt, PositiveFloat, Recipe
from scaling.shape import Shape


class Factorized(Embedding):
    """Token's with e(i) = E[i] Pᵀ, E [V r], P [w r]. (Lan et al. 2019, ALBERT, section 3.1)

    Tied, a head's logits are (h P) Eᵀ. A `rank` below 1 is a fraction of the width.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        rank: PositiveFloat = 128,
        scale: Scale = "none",
        segments: NonNegativeInt = 0,
        norm: Recipe | None = None,
        dropout: BelowOne = 0.0,
    ):
        own = counted("rank", rank, shape.width)
        if own == shape.width:
            raise ScalingError(
                f"expected less than the width {own}", key="rank", value=rank, fix="take Token for a full table"
            )
        rows = Rows([0, shape.vocabulary], [own], shape.width, "input")
        super().__init__(shape, rows=rows, scale=scale, segments=segments, norm=norm, dropout=dropout)
