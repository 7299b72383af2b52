"""Synthesizers: attention whose logits are not, or not only, products of queries and keys. (Tay et al. 2020)"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.base.errors import ScalingError
from scaling.base.numbers import BelowOne, PositiveInt
from scaling.config.shape import Shape
from scaling.kernels.operations import attention, attention_takes, drop
from scaling.model.context import Context
from scaling.model.contract import Mixer, declare, drawn
from scaling.model.mixer.attention import Scale, bias, check_reach, scale_of


class _Synthesizer(nn.Module, Mixer, ABC):
    """softmax(L + position) V W_O. `mix` selects the logits L, R being the synthetic ones:

    `none` R; `plus` R + s Q Kᵀ; `alpha` σ(a) R + (1 − σ(a)) s Q Kᵀ, with one learned number a that starts at 0. As in
    Narang et al. (2021). R knows tokens by their position within the document, of which there are `length`.
    """

    takes_prefix = True
    prefix: Any
    queries = False  # R is made of them

    def __init__(
        self,
        shape: Shape,
        *,
        mix: Literal["none", "plus", "alpha"] = "none",
        scale: Scale = "sqrt",
        length: PositiveInt | None = None,
        dropout: BelowOne = 0.0,
    ):
        super().__init__()
        self.reach = shape.places(length, "mixer", "synthetic positions")
        if shape.key_heads != shape.heads:
            kind, fix = type(self).__name__, "leave out size.key_heads, or take Attention"
            what = f"{kind} gives each of its {shape.heads} heads own keys and values, and size.key_heads is"
            raise ScalingError(f"{what} {shape.key_heads}", key="kind", value=kind, fix=fix)
        self.heads, self.scale, self.dropout = shape.heads, scale_of(scale, shape.head_width), dropout
        width, dots = shape.heads * shape.head_width, mix != "none"
        score_map = dots or self.queries
        self.query = declare(nn.Linear(shape.width, width, bias=False), weight="query") if score_map else None
        self.key = declare(nn.Linear(shape.width, width, bias=False), weight="key") if dots else None
        self.value = declare(nn.Linear(shape.width, shape.heads * shape.value_width, bias=False), weight="value")
        self.out = declare(nn.Linear(shape.heads * shape.value_width, shape.width, bias=False), weight="output")
        self.share = nn.Parameter(torch.zeros(1)) if mix == "alpha" else None
        self.constants, self.prefix = {"share": 0.0}, None

    @abstractmethod
    def synthesize(
        self, q: Float[Tensor, "b t h d"] | None, q_pos: Int[Tensor, "#b t"], k_pos: Int[Tensor, "#b s"]
    ) -> Float[Tensor, "#b h t s"]:
        """R, of one row where it is the same for all."""

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        check_reach(context, self.reach, "synthetic positions")
        if context.position.reads_content and self.key is None:
            what = f"{type(context.position).__name__} reads queries and keys, and {type(self).__name__} has none"
            fix = "take mix=plus, or a position that does not read content"
            raise ScalingError(what, key="model.position", fix=fix)
        maps: Any = (self.query, self.key, self.value)
        q, k, v = (part and part(x).unflatten(-1, (self.heads, -1)) for part in maps)
        added = self.synthesize(q, context.places.positions, context.keys.positions)
        if k is None:
            (v,) = context.extended(self, value=v)
        else:
            places = context.places.seen_by(context.position)
            q, k = context.position.rotate(q, k, places, places)
            k, v = context.extended(self, key=k, value=v)
        if self.prefix is not None:
            k, v, context = self.prefix(k, v, context)
            added = F.pad(added, (self.prefix.length, 0))
        position, dropout = context.position, self.dropout if self.training else 0.0
        of_places = bias(v if self.query is None else q, v if k is None else k, context, self.scale)
        if self.share is not None:
            share = self.share.sigmoid().to(q.dtype)
            added, q = share * added, (1 - share) * q
        added = added if of_places is None else added + of_places
        if k is not None and not dropout and not position.mixes_values and attention_takes(q, k, v):
            return self.out(attention(q, k, v, added, scale=self.scale).flatten(2))
        if k is not None:
            added = added + self.scale * torch.einsum("bthd,bshd->bhts", q, k)
        weights = drop(added.softmax(-1).expand(x.shape[0], -1, -1, -1), dropout, True)
        mixed = weights @ v.transpose(1, 2)
        if position.mixes_values:
            mixed = mixed + position.value(weights.expand(*mixed.shape[:3], -1), *context.seen)
        return self.out(mixed.transpose(1, 2).flatten(2))


class DenseSynthesizer(_Synthesizer):
    """softmax(φ(x W) Π) V W_O, φ = ReLU: each token computes where it looks, position by position. (Tay et al. 2020,
    section 3.2)

    Π, a column a position, is shared by the heads. Without biases, as in Narang et al. (2021). `mix` adds or mixes in
    the dot products s Q Kᵀ, with W for queries; `length` is how many positions there are.
    """

    queries = True

    def __init__(self, shape: Shape, **common: Any):
        super().__init__(shape, **common)
        self.columns = _Columns(self.reach, shape.head_width)

    def synthesize(self, q: Any, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return self.columns(F.relu(q), k_pos)


class _Columns(nn.Module):
    """x Π over the positions that keys have."""

    def __init__(self, count: int, width: int):
        super().__init__()
        self.weight = drawn(count, width, std=width**-0.5)

    def forward(self, x: Float[Tensor, "b t h d"], k_pos: Int[Tensor, "#b s"]) -> Float[Tensor, "b h t s"]:
        columns = F.embedding(k_pos, self.weight).to(x.dtype).expand(x.shape[0], -1, -1)
        return torch.einsum("bthd,bsd->bhts", x, columns)

    def mesh_operations(self, vectors: int) -> int:
        """Multiply-accumulates of that many x in Mesh TF: it makes all columns, then cuts those without a key."""
        return vectors * self.weight.numel()


class RandomSynthesizer(_Synthesizer):
    """softmax(R) V W_O, R learned, a number for each head and pair of positions. (Tay et al. 2020, section 3.3)

    `mix` adds or mixes in the dot products s Q Kᵀ; `length` is how many positions there are.
    """

    def __init__(self, shape: Shape, **common: Any):
        super().__init__(shape, **common)
        self.table = drawn(self.reach, shape.heads, self.reach, std=self.reach**-0.5)
        declare(self, table="input")

    def synthesize(self, q: Tensor | None, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        rows = F.embedding(q_pos, self.table.flatten(1)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        count = max(q_pos.shape[0], k_pos.shape[0])
        columns = k_pos[:, None, None].expand(count, self.heads, q_pos.shape[1], -1)
        return rows.expand(count, -1, -1, -1).gather(-1, columns)


class FactorizedSynthesizer(_Synthesizer):
    """softmax(R₁ R₂ᵀ) V W_O, each learned, `rank` numbers for each head and position. (Tay et al. 2020, section 3.3.2)

    `mix` adds or mixes in the dot products s Q Kᵀ; `length` is how many positions there are.
    """

    def __init__(self, shape: Shape, *, rank: PositiveInt = 16, **common: Any):
        super().__init__(shape, **common)
        self.rows, self.columns = (drawn(self.reach, shape.heads, rank, std=rank**-0.5) for _ in range(2))
        declare(self, rows="input", columns="input")

    def synthesize(self, q: Tensor | None, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        rows, columns = (
            F.embedding(places, table.flatten(1)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for places, table in ((q_pos, self.rows), (k_pos, self.columns))
        )
        return rows @ columns.mT
