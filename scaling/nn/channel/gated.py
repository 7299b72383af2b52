from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from scaling.build import Recipe
from scaling.nn.context import Context
from scaling.nn.dropout import drop
from scaling.number import BelowOne, Factor
from scaling.shape import Shape


class Gated(nn.Module):
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
        self.gate = nn.Linear(shape.width, hidden, bias)
        self.hidden = nn.Linear(shape.width, hidden, bias)
        self.out = nn.Linear(hidden, shape.width, bias)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return self.out(drop(self._gated(self.gate(x), self.hidden(x)), self.dropout, self.training))

    def _gated(self, gate: Tensor, hidden: Tensor) -> Tensor:
        """φ(gate) ⊙ hidden: in one pass by an activation that can."""
        times = getattr(self.activation, "times", None)
        return self.activation(gate) * hidden if times is None else times(gate, hidden)
