from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from scaling.kernel.operations import drop
from scaling.nn.context import Context
from scaling.nn.contract import Channel
from scaling.nn.role import declare
from scaling.schema import BelowOne, Factor, Recipe
from scaling.shape import Shape


class Dense(nn.Module, Channel):
    """FFN(x) = φ(x W₁ + b₁) W₂ + b₂. (Vaswani et al. 2017, formula 2)

    `hidden_times` multiplies the shape's hidden width. `dropout` acts on φ.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        activation: Recipe,
        bias: bool = True,
        hidden_times: Factor = 1.0,
        dropout: BelowOne = 0.0,
    ):
        super().__init__()
        hidden = shape.hidden_times(hidden_times)
        self.activation, self.dropout = activation(), dropout
        self.hidden = nn.Linear(shape.width, hidden, bias)
        self.out = declare(nn.Linear(hidden, shape.width, bias), weight="output")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return self.out(drop(self.activation(self.hidden(x)), self.dropout, self.training))
