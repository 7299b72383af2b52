from __future__ import annotations

from jaxtyping import Float, Shaped
from torch import Tensor

from scaling.batch import IGNORE
from scaling.nn.head.log_chances import at_least_float32
from scaling.nn.head.pooled import Pooled, alone
from scaling.schema import BelowOne, Recipe
from scaling.shape import Shape


class Number(Pooled):
    """y = φ(h U + c) a + b, whose loss is (y − label)²: a number for the whole text. (Devlin et al. 2018, STS-B)

    `added` adds up the vectors read of a row, as of a pair in both orders. (Radford et al. 2018, section 3.3)
    """

    answer = "number"

    def __init__(self, shape: Shape, *, activation: Recipe | None = None, dropout: BelowOne = 0.0, added: bool = False):
        super().__init__(shape, 1, activation, dropout, added)

    def forward(self, hidden: Float[Tensor, "b k w"]) -> Float[Tensor, "b ..."]:
        return alone(self.scores(hidden)[..., 0])

    def loss(
        self, hidden: Float[Tensor, "b k w"], labels: Shaped[Tensor, "b ..."], smoothing: float = 0.0
    ) -> Float[Tensor, "b ..."]:
        numbers = at_least_float32(self.scores(hidden)[..., 0]).view_as(labels)
        return (numbers - labels.to(numbers.dtype)).square().masked_fill(labels == IGNORE, 0)

    def labels_like(self, tokens: Tensor) -> Tensor:
        return tokens.new_zeros(len(tokens)).float()
