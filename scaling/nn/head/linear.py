from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.errors import ScalingError
from scaling.kernel.linear_cross_entropy import Parts, cross_entropy_over, scores
from scaling.nn.contract import Head
from scaling.nn.role import declare
from scaling.shape import Shape


class Linear(nn.Module, Head):
    """logits = s h Wᵀ + b. (Vaswani et al. 2017, section 3.4)

    Tied, W is an embedding's (Press & Wolf 2016), in two factors where the embedding has two. `scale:
    inverse_sqrt_width` is T5's s = w^(−1/2) for tied tables.
    """

    target = "targets"

    def __init__(self, shape: Shape, *, bias: bool = False, scale: Literal["none", "inverse_sqrt_width"] = "none"):
        super().__init__()
        self.width = shape.width
        self.scale = shape.width**-0.5 if scale == "inverse_sqrt_width" else None
        self.weight: Any = nn.Parameter(torch.empty(shape.vocabulary, shape.width))
        declare(self, weight="table")
        self.rows: Any = None
        self.bias = nn.Parameter(torch.zeros(shape.vocabulary)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            nn.init.normal_(self.weight, std=0.02)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def tie(self, embedding: Any) -> None:
        """Predict by the vectors of an embedding, its table or its rows in clusters."""
        if embedding.width != self.width:
            raise ScalingError(
                f"the head predicts by vectors of {self.width}, and the embedding's have {embedding.width}",
                key="tie",
                fix=f"take {{kind: Transform, width: {embedding.width}, …}} as head, or leave head out of tie",
            )
        self.weight, self.rows = embedding.table, embedding.rows

    def forward(self, hidden: Float[Tensor, "b t w"]) -> Float[Tensor, "b t v"]:
        return scores(self.parts(self.scaled(hidden)), self.bias)

    def loss(
        self, hidden: Float[Tensor, "b t w"], targets: Int[Tensor, "b t"], smoothing: float = 0.0
    ) -> Float[Tensor, "b t"]:
        """The loss of each target in nats, 0 where it is IGNORE."""
        parts = self.parts(self.scaled(hidden).flatten(0, 1))
        return cross_entropy_over(parts, self.bias, targets.flatten(), smoothing).view_as(targets)

    def parts(self, hidden: Float[Tensor, "*n w"]) -> Parts:
        """What is multiplied for the logits."""
        return [(hidden, self.weight)] if self.rows is None else self.rows.parts(hidden)

    def scaled(self, hidden: Float[Tensor, "*n w"]) -> Float[Tensor, "*n w"]:
        return hidden if self.scale is None else hidden * self.scale
