from __future__ import annotations

from typing import Annotated

from jaxtyping import Float
from torch import Tensor

from scaling.errors import ScalingError
from scaling.nn.channel.routed import Routed
from scaling.schema import BelowOne, Factor, NonNegativeFloat, PositiveFloat, Range, Recipe
from scaling.shape import Shape


class MixtureOfExperts(Routed):
    """y = Σ_{i ∈ top-k} g_i E_i(x), g = p / Σ_{j ∈ top-k} p_j, p = softmax(x W), E_i(x) = φ(x W_i) V_i. (Shazeer et al.
    2017, formula 1; Lepikhin et al. 2020, GShard, section 2.2)

    In training each expert takes `capacity` · t / e positions of a row of t, first come first served; what is dropped
    passes by the residual alone, and so a position can lose an expert to those before it. Evaluation drops nothing.
    `balance` weighs GShard's loss that evens out first choices. Departures: the gate has no noise and the second expert
    is always asked (a batch fixes its outcome), and seats go by position, not to first choices first (nothing depends
    on what comes after it).
    """

    def __init__(
        self,
        shape: Shape,
        *,
        activation: Recipe,
        experts: Annotated[int, Range(least=2, most=65_536)] = 32,
        choices: Annotated[int, Range(least=2, most=65_536)] = 2,
        capacity: PositiveFloat = 2.0,
        balance: NonNegativeFloat = 0.01,
        hidden_times: Factor = 1.0,
        dropout: BelowOne = 0.0,
    ):
        if not 2 <= choices <= experts:
            raise ScalingError(
                f"expected 2 to {experts} choices", key="choices", value=choices, fix="Switch chooses one expert"
            )
        super().__init__(
            shape,
            activation,
            experts=experts,
            choices=choices,
            capacity=capacity,
            balance=balance,
            hidden_times=hidden_times,
            dropout=dropout,
        )

    def weigh(self, chances: Float[Tensor, "b t k"]) -> Float[Tensor, "b t k"]:
        return chances / chances.sum(-1, keepdim=True)
