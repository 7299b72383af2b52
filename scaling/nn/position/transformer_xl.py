from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.nn.context import Pattern
from scaling.nn.position.hooks import Hooks
from scaling.nn.role import declare
from scaling.schema import PositiveFloat
from scaling.shape import Shape


class TransformerXL(Hooks):
    """Adds u·k + (q + v)·W R_{t_q − t_k} to q·k, scaled alike by the mixer's `scale`; R is
    sinusoidal, W, u and v are each layer's. (Dai et al. 2019)

    The fifth width × width map of Gopher's and Chinchilla's layers.
    """

    per = "layer"
    adds_score = reads_content = True

    def __init__(self, shape: Shape, pattern: Pattern, *, base: PositiveFloat = 10000.0):
        super().__init__()
        self.width, self.base, self.ahead = shape.width, base, pattern.ahead
        self.relative = nn.Linear(shape.width, shape.heads * shape.head_width, bias=False)
        self.content = nn.Parameter(torch.zeros(shape.heads, shape.head_width))
        self.distance = nn.Parameter(torch.zeros(shape.heads, shape.head_width))
        declare(self, content="table", distance="table")

    def score(
        self,
        q: Float[Tensor, "b t h d"],
        k: Float[Tensor, "b s g d"],
        q_pos: Int[Tensor, "#b t"],
        k_pos: Int[Tensor, "#b s"],
    ) -> Float[Tensor, "b h t s"]:
        # Positions of s keys lie within 0 … s − 1; what the mask of a causal stack hides needs no row of its own.
        high = k.shape[1] - 1
        low = -high if self.ahead else 0
        offset = (q_pos[:, :, None] - k_pos[:, None, :]).clamp(low, high)
        distances = torch.arange(low, high + 1, device=q.device)
        rows = self.relative(self._sinusoids(distances).to(self.relative.weight.dtype)).unflatten(-1, q.shape[2:])
        by_distance = torch.einsum("bthd,rhd->bhtr", q + self.distance.to(q.dtype), rows.to(q.dtype))
        picked = (offset - low)[:, None].expand(q.shape[0], q.shape[2], -1, -1)
        k = k.repeat_interleave(q.shape[2] // k.shape[2], 2)
        by_content = torch.einsum("hd,bshd->bhs", self.content.to(k.dtype), k)
        return by_distance.gather(-1, picked) + by_content[:, :, None]

    def _sinusoids(self, distances: Tensor) -> Tensor:
        power = torch.arange(0, self.width, 2, device=distances.device, dtype=torch.float64) / self.width
        angle = distances[:, None].double() * self.base**-power
        return torch.cat([angle.sin(), angle.cos()], -1)[:, : self.width]
