from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.errors import ScalingError
from scaling.nn.context import Pattern
from scaling.nn.position.hooks import Hooks
from scaling.nn.role import declare
from scaling.schema import PositiveInt, Range
from scaling.shape import Shape


class RelativeBias(Hooks):
    """Adds B[bucket(t_k − t_q), h] to the logits, B learned. (Raffel et al. 2019, section 2.1)

    Half the buckets hold one distance each, the others grow with its logarithm up to `distance`. Stacks that look
    ahead spend half of all buckets on keys that come later. T5 shares one table among a stack's layers (`per:
    stack`).
    """

    adds_score = True

    def __init__(
        self,
        shape: Shape,
        pattern: Pattern,
        *,
        buckets: Annotated[int, Range(least=4, most=65_536)] = 32,
        distance: PositiveInt = 128,
        per: Literal["stack", "layer"] = "stack",
    ):
        super().__init__()
        self.ahead, self.buckets, self.distance, self.per = pattern.ahead, buckets, distance, per
        if buckets % 4 or distance <= buckets // 2:
            raise ScalingError("expected a multiple of 4, less than twice the distance", key="buckets", value=buckets)
        self.table = nn.Parameter(torch.empty(buckets, shape.heads))
        declare(self, table="table")
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table, std=0.02)

    def score(
        self, q: Tensor, k: Tensor, q_pos: Int[Tensor, "#b t"], k_pos: Int[Tensor, "#b s"]
    ) -> Float[Tensor, "#b h t s"]:
        bucket = self._bucket(k_pos[:, None, :] - q_pos[:, :, None])
        # Contiguous, because every layer and row reads it again.
        return nn.functional.embedding(bucket, self.table).permute(0, 3, 1, 2).contiguous()

    def _bucket(self, offset: Tensor) -> Tensor:
        buckets, start = self.buckets, torch.zeros_like(offset)
        if self.ahead:
            buckets //= 2
            start = (offset > 0).long() * buckets
            back = offset.abs()
        else:
            back = (-offset).clamp(min=0)
        exact = buckets // 2
        growth = torch.log(back.clamp(min=1).float() / exact) / math.log(self.distance / exact)
        far = (exact + (growth * (buckets - exact)).long()).clamp(max=buckets - 1)
        return start + torch.where(back < exact, back, far)
