from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from scaling.kernel.operations import drop
from scaling.nn.context import Context
from scaling.nn.contract import Channel, Gate
from scaling.nn.role import declare
from scaling.schema import BelowOne, Factor, Recipe
from scaling.shape import Shape


class Gated(nn.Module, Channel):
    """FFN(x) = (φ(x W + b) ⊙ (x V + c)) W₂ + b₂. (Shazeer 2020)

    φ is Sigmoid for GLU, GeLU for GeGLU, ReLU for ReGLU, Swish for SwiGLU, Linear for LiGLU. `hidden_times:
    0.6666667` keeps the parameters of the ungated layer.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        activation: Recipe,
        bias: bool = False,
        hidden_times: Factor = 1.0,
        dropout: BelowOne = 0.0,
    ):
        super().__init__()
        hidden = shape.hidden_times(hidden_times)
        self.activation, self.dropout = activation(), dropout
        self.is_gate = isinstance(self.activation, Gate)
        self.gate = nn.Linear(shape.width, hidden, bias)
        self.hidden = nn.Linear(shape.width, hidden, bias)
        self.out = declare(nn.Linear(hidden, shape.width, bias), weight="output")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        gate, hidden = self.gate(x), self.hidden(x)
        gated = self.activation.times(gate, hidden) if self.is_gate else self.activation(gate) * hidden
        return self.out(drop(gated, self.dropout, self.training))
