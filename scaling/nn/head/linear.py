from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.nn.head.cross_entropy import cross_entropy
from scaling.shape import Shape


class Linear(nn.Module):
    """logits = s h Wᵀ + b. (Vaswani et al. 2017, section 3.4)

    Tied, W is an embedding's table (Press & Wolf 2016). `scale: inverse_sqrt_width` is T5's s = w^(−1/2) for tied
    tables.
    """

    target = "targets"

    def __init__(self, shape: Shape, *, bias: bool = False, scale: Literal["none", "inverse_sqrt_width"] = "none"):
        super().__init__()
        self.scale = shape.width**-0.5 if scale == "inverse_sqrt_width" else None
        self.weight = nn.Parameter(torch.empty(shape.vocabulary, shape.width))
        self.bias = nn.Parameter(torch.zeros(shape.vocabulary)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def tie(self, table: nn.Parameter) -> None:
        """Predict by the table of an embedding."""
        self.weight = table

    def forward(self, hidden: Float[Tensor, "b t w"]) -> Float[Tensor, "b t v"]:
        return F.linear(self._scaled(hidden), self.weight, self.bias)

    def loss(
        self, hidden: Float[Tensor, "b t w"], targets: Int[Tensor, "b t"], smoothing: float = 0.0
    ) -> Float[Tensor, "b t"]:
        """The loss of each target in nats, 0 where it is IGNORE."""
        scaled = self._scaled(hidden).flatten(0, 1)
        return cross_entropy(scaled, self.weight, self.bias, targets.flatten(), smoothing).view_as(targets)

    def _scaled(self, hidden: Tensor) -> Tensor:
        return hidden if self.scale is None else hidden * self.scale
