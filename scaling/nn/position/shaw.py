from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.nn.context import Pattern
from scaling.nn.position.hooks import Hooks
from scaling.nn.role import declare
from scaling.schema import NonNegativeInt
from scaling.shape import Shape


class Shaw(Hooks):
    """Logits q·(k + a_{t_k − t_q}) and output Σ weight (v + b_{t_k − t_q}), distances clipped. (Shaw et al. 2018)

    The tables a and b are shared by the heads. `distance` is the paper's k. As in the paper's formula (4), q·a is
    scaled like q·k, by the mixer's `scale`.
    """

    adds_score = reads_content = mixes_values = True

    def __init__(
        self, shape: Shape, pattern: Pattern, *, distance: NonNegativeInt = 16, per: Literal["stack", "layer"] = "layer"
    ):
        super().__init__()
        self.distance, self.per = distance, per
        self.key = nn.Parameter(torch.empty(2 * distance + 1, shape.head_width))
        self.table = nn.Parameter(torch.empty(2 * distance + 1, shape.value_width))
        declare(self, key="table", table="table")
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.key, std=0.02)
        nn.init.normal_(self.table, std=0.02)

    def score(
        self,
        q: Float[Tensor, "b t h d"],
        k: Float[Tensor, "b s g d"],
        q_pos: Int[Tensor, "#b t"],
        k_pos: Int[Tensor, "#b s"],
    ) -> Float[Tensor, "b h t s"]:
        # Dot every query with every row of the table, then pick: memory t × (2k+1) instead of t × s × d.
        dots = q @ self.key.T.to(q.dtype)
        clipped = self._clipped(q_pos, k_pos).expand(q.shape[0], -1, -1)[:, None].expand(-1, q.shape[2], -1, -1)
        return dots.transpose(1, 2).gather(-1, clipped)

    def value(
        self, weights: Float[Tensor, "b h t s"], q_pos: Int[Tensor, "#b t"], k_pos: Int[Tensor, "#b s"]
    ) -> Float[Tensor, "b h t d"]:
        # Sum the weights that fall on each clipped distance, then mix the table once.
        clipped = self._clipped(q_pos, k_pos)[:, None].expand_as(weights)
        mass = weights.new_zeros(*weights.shape[:-1], 2 * self.distance + 1).scatter_add(-1, clipped, weights)
        return mass @ self.table.to(mass.dtype)

    def _clipped(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return (k_pos[:, None, :] - q_pos[:, :, None]).clamp(-self.distance, self.distance) + self.distance
