from __future__ import annotations

from dataclasses import replace

from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.nn.head.linear import Linear
from scaling.schema import Recipe, Width
from scaling.shape import Shape


class Transform(Linear):
    """logits = norm(φ(h U + c)) Wᵀ + b: BERT's masked-language-model head. (Devlin et al. 2018)

    `width` is that of W's vectors where it is not the stream's; below 1 it is a fraction of it (ALBERT, ELECTRA).
    """

    def __init__(
        self, shape: Shape, *, activation: Recipe, norm: Recipe, bias: bool = True, width: Width | None = None
    ):
        own = shape.width if width is None else shape.fraction("width", width)
        super().__init__(replace(shape, width=own), bias=bias)
        self.dense = nn.Linear(shape.width, own)
        self.activation, self.norm = activation(), norm(own)

    def forward(self, hidden: Float[Tensor, "b t w"]) -> Float[Tensor, "b t v"]:
        return super().forward(self._transformed(hidden))

    def loss(
        self, hidden: Float[Tensor, "b t w"], targets: Int[Tensor, "b t"], smoothing: float = 0.0
    ) -> Float[Tensor, "b t"]:
        return super().loss(self._transformed(hidden), targets, smoothing)

    def _transformed(self, hidden: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(hidden)))
