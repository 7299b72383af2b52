from __future__ import annotations

from typing import Annotated

from jaxtyping import Float
from torch import Tensor

from scaling.nn.channel.routed import Routed
from scaling.schema import BelowOne, Factor, NonNegativeFloat, PositiveFloat, Range, Recipe
from scaling.shape import Shape


class Switch(Routed):
    """y = p_i E_i(x), i = argmax p, p = softmax(x W), E_i(x) = φ(x W_i) V_i. (Fedus et al. 2021, formulas 1 to 6)

    In training each expert takes `capacity` · t / e positions of a row of t, first come first served; what is dropped
    passes by the residual alone, and so a position can lose its expert to those before it. Evaluation drops nothing.
    `balance` is α, the weight of the loss that evens out choices. Departures: a row, not a device's batch, shares a
    capacity, and x is not jittered before the gate (a batch fixes its outcome).
    """

    def __init__(
        self,
        shape: Shape,
        *,
        activation: Recipe,
        experts: Annotated[int, Range(least=2, most=65_536)] = 32,
        capacity: PositiveFloat = 1.25,
        balance: NonNegativeFloat = 0.01,
        hidden_times: Factor = 1.0,
        dropout: BelowOne = 0.0,
    ):
        super().__init__(
            shape,
            activation,
            experts=experts,
            choices=1,
            capacity=capacity,
            balance=balance,
            hidden_times=hidden_times,
            dropout=dropout,
        )

    def weigh(self, chances: Float[Tensor, "b t 1"]) -> Float[Tensor, "b t 1"]:
        return chances
