from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.build import Recipe
from scaling.nn.head.linear import Linear
from scaling.shape import Shape


class Transform(Linear):
    """logits = norm(φ(h U + c)) Wᵀ + b: BERT's masked-language-model head. (Devlin et al. 2018)"""

    def __init__(self, shape: Shape, *, activation: Recipe, norm: Recipe, bias: bool = True):
        super().__init__(shape, bias=bias)
        self.dense = nn.Linear(shape.width, shape.width)
        self.activation, self.norm = activation(), norm(shape.width)

    def forward(self, hidden: Float[Tensor, "b t w"]) -> Float[Tensor, "b t v"]:
        return super().forward(self._transformed(hidden))

    def loss(
        self, hidden: Float[Tensor, "b t w"], targets: Int[Tensor, "b t"], smoothing: float = 0.0
    ) -> Float[Tensor, "b t"]:
        return super().loss(self._transformed(hidden), targets, smoothing)

    def _transformed(self, hidden: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(hidden)))
