from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from scaling.nn.context import Pattern
from scaling.nn.position.hooks import Hooks
from scaling.shape import Shape


class ALiBi(Hooks):
    """Adds −m_h |t_q − t_k| to the logits, with slopes m_h = 2^(−8h/H). (Press et al. 2021)

    For H not a power of two: the slopes of the next smaller power, then every other slope of the next larger one.
    """

    adds_score = True

    def __init__(self, shape: Shape, pattern: Pattern):
        super().__init__()
        self.slopes = _slopes(shape.heads)

    def score(
        self, q: Tensor, k: Tensor, q_pos: Int[Tensor, "#b t"], k_pos: Int[Tensor, "#b s"]
    ) -> Float[Tensor, "#b h t s"]:
        slopes = torch.tensor(self.slopes, device=q_pos.device, dtype=q.dtype)
        distance = (q_pos[:, :, None] - k_pos[:, None, :]).abs().to(q.dtype)
        return -slopes[:, None, None] * distance[:, None]


def _slopes(heads: int) -> list[float]:
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (h + 1) / power) for h in range(power)]
    return slopes + [2 ** (-4 * (2 * h + 1) / power) for h in range(heads - power)]
