from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from scaling.nn.head.class_loss import choice_loss
from scaling.nn.head.pooled import Pooled
from scaling.schema import BelowOne, Recipe
from scaling.shape import Shape


class Options(Pooled):
    """p = softmax over a row's options of φ(h U + c) a + b, h the vector read of each. (Radford et al. 2018, section
    3.3; Devlin et al. 2018, section 4.4)

    Rows may have fewer options than others: where none is read the vector is 0, and it has no chance.
    """

    answer = "options"

    def __init__(self, shape: Shape, *, activation: Recipe | None = None, dropout: BelowOne = 0.0):
        super().__init__(shape, 1, activation, dropout)

    def forward(self, hidden: Float[Tensor, "b k w"]) -> Float[Tensor, "b k"]:
        absent = (hidden == 0).all(-1)
        absent = absent & ~absent.all(-1, keepdim=True)  # a row without options has a loss of no consequence
        return self.scores(hidden)[..., 0].masked_fill(absent, -float("inf"))

    def loss(
        self, hidden: Float[Tensor, "b k w"], labels: Int[Tensor, " b"], smoothing: float = 0.0
    ) -> Float[Tensor, " b"]:
        return choice_loss(self(hidden), labels, smoothing)
