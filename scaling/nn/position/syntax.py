from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.nn.context import Pattern
from scaling.nn.position.hooks import Hooks
from scaling.nn.position.sinusoidal import Sinusoidal
from scaling.nn.role import declare
from scaling.schema import PositiveInt
from scaling.shape import Shape


class Syntax(Hooks):
    """Places in a parse tree next to those in the sequence. (Wang et al. 2019)

    `absolute`: x_t + P_t + D_{d_t}, where P is sinusoidal and d_t the depth of token t. `relative`: logits
    q·(k + a_{t_k − t_q} + b_{r}), where r = d_k − d_q if one of the two is above the other in the tree, else
    ±(d_k + d_q), positive where the key comes later. Depths beyond `depth` and distances beyond `distance` are clipped.

    The paper combines sinusoids of both places by a layer, and each layer has tables of its own; here D is a learned
    table, both are added, and all layers share the tables. Without a tree each token depends on the one before it, so
    that both distances are those of the sequence.
    """

    reads_tree = True

    def __init__(
        self,
        shape: Shape,
        pattern: Pattern,
        *,
        places: Literal["absolute", "relative", "both"] = "both",
        depth: PositiveInt = 32,
        distance: PositiveInt = 16,
    ):
        super().__init__()
        self.deepest, self.distance = depth, distance
        self.adds_score = self.reads_content = places != "absolute"
        self.sequence = None if places == "relative" else Sinusoidal(shape, pattern)
        self.depth = None if places == "relative" else nn.Parameter(torch.empty(depth + 1, shape.width))
        offsets = None if places == "absolute" else (2 * distance + 1, shape.head_width)
        self.before = None if offsets is None else nn.Parameter(torch.empty(offsets))
        self.below = None if offsets is None else nn.Parameter(torch.empty(offsets))
        if self.depth is not None:
            declare(self, depth="table")
        if offsets is not None:
            declare(self, before="table", below="table")
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for table in (self.depth, self.before, self.below):
            if table is not None:
                nn.init.normal_(table, std=0.02)

    def embed(self, x: Float[Tensor, "b t w"], positions: Int[Tensor, "#b t 4"]) -> Float[Tensor, "b t w"]:
        if self.sequence is None or self.depth is None:
            return x
        depth = nn.functional.embedding(positions[..., 1].clamp(max=self.deepest), self.depth)
        return self.sequence.embed(x, positions[..., 0]) + depth

    def score(
        self,
        q: Float[Tensor, "b t h d"],
        k: Float[Tensor, "b s g d"],
        q_pos: Int[Tensor, "#b t 4"],
        k_pos: Int[Tensor, "#b s 4"],
    ) -> Float[Tensor, "b h t s"]:
        assert self.before is not None
        assert self.below is not None
        offset = k_pos[:, None, :, 0] - q_pos[:, :, None, 0]
        return self._picked(q, self.before, offset) + self._picked(q, self.below, distances(q_pos, k_pos))

    def _picked(self, q: Tensor, table: Tensor, offset: Tensor) -> Tensor:
        # Dot every query with every row of the table, then pick.
        index = offset.clamp(-self.distance, self.distance) + self.distance
        index = index.expand(q.shape[0], -1, -1)[:, None].expand(-1, q.shape[2], -1, -1)
        return (q @ table.T.to(q.dtype)).transpose(1, 2).gather(-1, index)


def distances(q_pos: Int[Tensor, "#b t 4"], k_pos: Int[Tensor, "#b s 4"]) -> Int[Tensor, "#b t s"]:
    """The signed distance of each query and key in their tree."""
    q_place, q_depth, q_first, q_last = q_pos[:, :, None].unbind(-1)
    k_place, k_depth, k_first, k_last = k_pos[:, None].unbind(-1)
    above = ((q_first <= k_first) & (k_first < q_last)) | ((k_first <= q_first) & (q_first < k_last))
    return torch.where(above, k_depth - q_depth, (k_place - q_place).sign() * (k_depth + q_depth))
