from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.errors import ScalingError
from scaling.nn.context import Context
from scaling.nn.contract import Channel
from scaling.nn.role import declare
from scaling.schema import Recipe, SmallInt
from scaling.shape import Shape


class ProductKeys(nn.Module, Channel):
    """y = Σ_heads Σ_{i ∈ I} softmax(q(x)·k)_i v_i, I the `nearest` keys k = (c_a, c'_b), pairs of `keys` half keys.
    (Lample et al. 2019, formulas 1 to 6)

    The best pairs are among the pairs of each half's best, so that keys² values cost a search among 2 · keys. `norm`
    acts on each half of the query; the paper's batch norm would let a position see the others, so it is layer norm
    here as in Mesh TensorFlow. Each head has its own keys, and all share the values.
    """

    has_hidden = False

    def __init__(
        self,
        shape: Shape,
        *,
        norm: Recipe,
        heads: SmallInt = 4,
        keys: SmallInt = 512,
        key_width: SmallInt = 128,
        nearest: SmallInt = 32,
    ):
        super().__init__()
        if key_width % 2:
            raise ScalingError("expected two halves", key="key_width", value=key_width, fix="take an even number")
        if nearest > keys:
            raise ScalingError(f"there are {keys} half keys", key="nearest", value=nearest, fix=f"take {keys} or fewer")
        half = key_width // 2
        self.nearest = nearest
        self.query = declare(nn.Linear(shape.width, heads * key_width), weight="query")
        self.norm = norm(half)
        self.keys = nn.Parameter(torch.empty(heads, 2, keys, half))
        self.out = declare(_Values(keys, shape.width), weight="output")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        heads, _, keys, half = self.keys.shape
        query = self.norm(self.query(x).unflatten(-1, (heads, 2, half)))
        score, half_key = torch.einsum("bthpd,hpnd->bthpn", query, self.keys).topk(self.nearest)
        pairs = (score[..., 0, :, None] + score[..., 1, None, :]).flatten(-2)
        score, pair = pairs.topk(self.nearest)
        value = half_key[..., 0, :].gather(-1, pair // self.nearest) * keys
        value = value + half_key[..., 1, :].gather(-1, pair % self.nearest)
        return self.out(value.flatten(-2), score.softmax(-1).flatten(-2))

    def mesh_operations(self, tokens: int) -> int:
        """Multiply-accumulates of a forward pass over `tokens` positions in Mesh TensorFlow, which published figures
        count: it looks up values, and the places of the best pairs, by products with one-hot tensors.
        """
        heads, _, keys, half = self.keys.shape
        width, read = self.out.weight.shape[-1], heads * self.nearest
        query, scores = width * heads * 2 * half, heads * 2 * keys * half
        places, values, total = read * self.nearest**2, read * keys**2 * width, read * width
        return tokens * (query + scores + places + values + total)


class _Values(nn.Module):
    """Σ_i s_i v_i, over a table of keys × keys values that is read by row."""

    def __init__(self, keys: int, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(keys, keys, width))

    def forward(self, index: Int[Tensor, "b t n"], score: Float[Tensor, "b t n"]) -> Float[Tensor, "b t w"]:
        table = self.weight.flatten(0, 1)
        sums = F.embedding_bag(
            index.flatten(0, 1), table, mode="sum", per_sample_weights=score.flatten(0, 1).to(table.dtype)
        )
        return sums.unflatten(0, index.shape[:2])
