from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from scaling.nn.context import Context, Places
from scaling.nn.contract import Mixer
from scaling.nn.mixer.softmax import attend
from scaling.nn.role import declare
from scaling.schema import BelowOne, Recipe
from scaling.shape import Shape

Scale = Literal["sqrt", "width", "none"]


class Attention(nn.Module, Mixer):
    """softmax(s Q Kᵀ + position) V W_O over the tokens that the pattern allows. (Vaswani et al. 2017, section 3.2)

    Key heads fewer than heads are shared by groups of queries (Shazeer 2019; Ainslie et al. 2023). `scale` is s:
    `sqrt` is d_k^(−1/2), `width` is 1/d_k (muP), `none` is 1 (T5, whose query initialiser holds it). `bias: qkv` adds
    one to queries, keys and values and none to the output (Qwen2). `norm` is applied to each head's queries and keys
    (Henry et al. 2020). `dropout` acts on the attention weights.
    """

    takes_queries = True
    heads: int

    def __init__(
        self,
        shape: Shape,
        *,
        bias: bool | Literal["qkv"] = False,
        scale: Scale = "sqrt",
        norm: Recipe | None = None,
        dropout: BelowOne = 0.0,
    ):
        super().__init__()
        self.heads, self.key_heads, self.head_width = shape.heads, shape.key_heads, shape.head_width
        self.scale, self.dropout = scale_of(scale, shape.head_width), dropout
        self.query = declare(nn.Linear(shape.width, shape.heads * shape.head_width, bool(bias)), weight="query")
        self.key = nn.Linear(shape.width, shape.key_heads * shape.head_width, bool(bias))
        self.value = nn.Linear(shape.width, shape.key_heads * shape.value_width, bool(bias))
        self.out = declare(nn.Linear(shape.heads * shape.value_width, shape.width, bias is True), weight="output")
        self.query_norm = norm(shape.head_width) if norm else None
        self.key_norm = norm(shape.head_width) if norm else None
        self.prefix: nn.Module | None = None

    def forward(
        self, x: Float[Tensor, "b t w"], context: Context, queries: Float[Tensor, "b q w"] | None = None
    ) -> Float[Tensor, "b q w"]:
        return self.out(self._mixed(x, context, queries).flatten(2))

    def _mixed(self, x: Tensor, context: Context, queries: Tensor | None) -> Float[Tensor, "b q h e"]:
        """Each head's average of the values, before the last projection."""
        q, k, v = self._project(x, queries)
        q, k = self._placed(q, k, context, context.places if queries is None else context.keys)
        state = context.state(self)
        if state is not None:
            k, v = state.append("key", k), state.append("value", v)
        return self._attend(q, k, v, context)

    def _placed(self, q: Tensor, k: Tensor, context: Context, key_places: Places) -> tuple[Tensor, Tensor]:
        """Queries and keys, normed and turned by their places."""
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        position = context.position
        return position.rotate(q, k, context.places.seen_by(position), key_places.seen_by(position))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, context: Context) -> Tensor:
        if self.prefix is not None:
            k, v, context = self.prefix(k, v, context)
        return attend(q, k, v, context, scale=self.scale, dropout=self.dropout if self.training else 0.0)

    def _project(self, x: Tensor, queries: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values by one matrix product instead of three; the parameters keep their names."""
        parts = (self.query, self.key, self.value)
        if queries is not None or not is_plain(*parts):
            q, k, v = self.query(x if queries is None else queries), self.key(x), self.value(x)
        else:
            bias = None if self.query.bias is None else torch.cat([part.bias for part in parts])
            joined = F.linear(x, torch.cat([part.weight for part in parts]), bias)
            q, k, v = joined.split([part.out_features for part in parts], -1)
        return (
            q.unflatten(-1, (self.heads, -1)),
            k.unflatten(-1, (self.key_heads, -1)),
            v.unflatten(-1, (self.key_heads, -1)),
        )


def is_plain(*maps: nn.Linear) -> bool:
    """Whether each is y = x W + b alone, without a tuning or another hook: its matrix may then be used uncalled."""
    plain = (type(linear).forward is nn.Linear.forward for linear in maps)
    return all(plain) and not any(linear._forward_hooks or linear._forward_pre_hooks for linear in maps)


def scale_of(scale: Scale, head_width: int) -> float:
    return {"sqrt": head_width**-0.5, "width": 1 / head_width, "none": 1.0}[scale]
