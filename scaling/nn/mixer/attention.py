"""Attention: among the tokens of a stack, of a decoder to its encoder, by one head, and by weighted heads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.errors import ScalingError
from scaling.nn.context import Context, Places
from scaling.nn.contract import Mixer, declare, output_map
from scaling.nn.mixer.softmax import attend
from scaling.schema import BelowOne, Factor, Recipe
from scaling.shape import Shape

Scale = Literal["sqrt", "width", "none"]


class Projected(nn.Module, Mixer):
    """Queries x W_Q, keys x W_K and values x W_V in heads, whose outputs W_O joins."""

    heads: int

    def __init__(self, shape: Shape, *, bias: bool | Literal["qkv"] = False):
        super().__init__()
        self.heads, self.key_heads = shape.heads, shape.key_heads
        self.query = declare(nn.Linear(shape.width, shape.heads * shape.head_width, bool(bias)), weight="query")
        self.key = nn.Linear(shape.width, shape.key_heads * shape.head_width, bool(bias))
        self.value = nn.Linear(shape.width, shape.key_heads * shape.value_width, bool(bias))
        self.out = declare(nn.Linear(shape.heads * shape.value_width, shape.width, bias is True), weight="output")

    def in_heads(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [b t h d], keys [b s g d] and values [b s g e]."""
        k, v = (part.unflatten(-1, (self.key_heads, -1)) for part in (k, v))
        return q.unflatten(-1, (self.heads, -1)), k, v


class _Softmax(Projected):
    """softmax(s q kᵀ + position) v, with learned keys and values before the others where `prefix` is set."""

    def __init__(
        self, shape: Shape, *, scale: Scale = "sqrt", dropout: BelowOne = 0.0, bias: bool | Literal["qkv"] = False
    ):
        super().__init__(shape, bias=bias)
        self.scale, self.dropout = scale_of(scale, shape.head_width), dropout
        self.prefix: nn.Module | None = None

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, context: Context) -> Tensor:
        if self.prefix is not None:
            k, v, context = self.prefix(k, v, context)
        return attend(q, k, v, context, scale=self.scale, dropout=self.dropout if self.training else 0.0)


class Attention(_Softmax):
    """softmax(s Q Kᵀ + position) V W_O over the tokens that the pattern allows. (Vaswani et al. 2017, section 3.2)

    Key heads fewer than heads are shared by groups of queries (Shazeer 2019; Ainslie et al. 2023). `scale` is s:
    `sqrt` is d_k^(−1/2), `width` is 1/d_k (muP), `none` is 1 (T5, whose query initialiser holds it). `bias: qkv` adds
    one to queries, keys and values and none to the output (Qwen2). `norm` is applied to each head's queries and keys
    (Henry et al. 2020). `dropout` acts on the attention weights.
    """

    takes_queries = True

    def __init__(self, shape: Shape, *, norm: Recipe | None = None, **common: Any):
        super().__init__(shape, **common)
        self.query_norm = norm(shape.head_width) if norm else None
        self.key_norm = norm(shape.head_width) if norm else None

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

    def _project(self, x: Tensor, queries: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values by one matrix product instead of three; the parameters keep their names."""
        parts = (self.query, self.key, self.value)
        if queries is not None or not is_plain(*parts):
            q, k, v = self.query(x if queries is None else queries), self.key(x), self.value(x)
        else:
            bias = None if self.query.bias is None else torch.cat([part.bias for part in parts])
            joined = F.linear(x, torch.cat([part.weight for part in parts]), bias)
            q, k, v = joined.split([part.out_features for part in parts], -1)
        return self.in_heads(q, k, v)


def is_plain(*maps: nn.Linear) -> bool:
    """Whether each is y = x W + b alone, without a tuning or another hook: its matrix may then be used uncalled."""
    plain = (type(linear).forward is nn.Linear.forward for linear in maps)
    return all(plain) and not any(linear._forward_hooks or linear._forward_pre_hooks for linear in maps)


def scale_of(scale: Scale, head_width: int) -> float:
    return {"sqrt": head_width**-0.5, "width": 1 / head_width, "none": 1.0}[scale]


class CrossAttention(_Softmax):
    """Attention whose keys and values come from the encoder's output. (Vaswani et al. 2017, section 3.2.3)

    It knows no positions but those that the encoder wrote into its output. `heads_times` and `head_width_times`
    multiply the shape's heads and their width, where those of self-attention are not this one's.
    """

    slot, reads_memory = "cross", True

    def __init__(self, shape: Shape, *, heads_times: Factor = 1.0, head_width_times: Factor = 1.0, **common: Any):
        of_heads = {name: _times(getattr(shape, name), heads_times) for name in ("heads", "key_heads")}
        widths = {name: _times(getattr(shape, name), head_width_times) for name in ("head_width", "value_width")}
        super().__init__(replace(shape, **of_heads, **widths), **common)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        q = self.query(x).unflatten(-1, (self.heads, -1))
        return self.out(self._attend(q, *self._memory(context), context.at_memory()).flatten(2))

    def _memory(self, context: Context) -> tuple[Tensor, Tensor]:
        """Keys and values of the memory; while decoding they are made once."""
        state, memory = context.memory_state(self), context.memory
        if state:
            return state["key"], state["value"]
        k = self.key(memory).unflatten(-1, (self.key_heads, -1))
        v = self.value(memory).unflatten(-1, (self.key_heads, -1))
        if state is not None:
            state["key"], state["value"] = k, v
        return k, v


def _times(size: int, factor: float) -> int:
    return max(1, round(size * factor))


class _SingleHead(nn.Module, Mixer):
    """c_t = Σ_s softmax_s(e_ts) m_s over the source tokens that may be seen."""

    slot, reads_memory = "cross", True

    def read(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        """c of every token."""
        scores, added = self.scores(x, self._keys(context)), context.memory_mask.added(x.dtype)
        weights = (scores if added is None else scores + added[:, 0]).softmax(-1)
        if context.weights is not None:
            context.weights(weights[:, None])
        return weights @ context.memory

    def _keys(self, context: Context) -> Float[Tensor, "b s w"]:
        """What is compared of the memory; while decoding it is made once."""
        state = context.memory_state(self)
        if state is None:
            return self.keys(context.memory)
        if not state:
            state["key"] = self.keys(context.memory)
        return state["key"]

    @abstractmethod
    def keys(self, memory: Float[Tensor, "b s w"]) -> Float[Tensor, "b s w"]:
        """What of the memory is the same for every query."""

    @abstractmethod
    def scores(self, x: Float[Tensor, "b t w"], keys: Float[Tensor, "b s w"]) -> Float[Tensor, "b t s"]:
        """e of every query and key."""


class AdditiveAttention(_SingleHead):
    """c_t W_O + b, e_ts = vᵀ tanh(x_t W + m_s U + a). (Bahdanau et al. 2014, section 3.1 and appendix A.1.2)

    x_t is the decoder's state at its token, where the paper's is the state before it, so that attention is no part of
    the recurrence and all tokens are read at once.
    """

    def __init__(self, shape: Shape):
        super().__init__()
        self.query = declare(nn.Linear(shape.width, shape.width), weight="query")
        self.key = nn.Linear(shape.width, shape.width, bias=False)
        self.score = nn.Linear(shape.width, 1, bias=False)
        self.out = declare(nn.Linear(shape.width, shape.width), weight="output")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return self.out(self.read(x, context))

    def keys(self, memory: Float[Tensor, "b s w"]) -> Float[Tensor, "b s w"]:
        return self.key(memory)

    def scores(self, x: Float[Tensor, "b t w"], keys: Float[Tensor, "b s w"]) -> Float[Tensor, "b t s"]:
        return self.score((self.query(x)[:, :, None] + keys[:, None]).tanh())[..., 0]


class MultiplicativeAttention(_SingleHead):
    """tanh([c_t, x_t] W_C + b), e_ts = x_t W m_sᵀ. (Luong et al. 2015, formulas 5 and 8)

    `score: dot` leaves W out: e_ts = x_t m_sᵀ. `output: context` is c_t W_O + b, as of the convolutional decoder of
    Gehring et al. (2017), whose values add the source's embedding to m_s.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        score: Literal["general", "dot"] = "general",
        output: Literal["joined", "context"] = "joined",
    ):
        super().__init__()
        self.joins = output == "joined"
        self.query = (
            declare(nn.Linear(shape.width, shape.width, bias=False), weight="query") if score != "dot" else None
        )
        self.out = declare(nn.Linear((2 if self.joins else 1) * shape.width, shape.width), weight="output")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        c = self.read(x, context)
        return self.out(torch.cat([c, x], -1)).tanh() if self.joins else self.out(c)

    def keys(self, memory: Float[Tensor, "b s w"]) -> Float[Tensor, "b s w"]:
        return memory

    def scores(self, x: Float[Tensor, "b t w"], keys: Float[Tensor, "b s w"]) -> Float[Tensor, "b t s"]:
        return (x if self.query is None else self.query(x)) @ keys.transpose(1, 2)


class Aligned(nn.Module, Mixer):
    """[m_t, x_t] W_O + b: token t of the target reads token t of the encoder's output, 0 beyond its end: the decoder
    is laid on the encoder, without attention. (Kalchbrenner et al. 2016, section 3.1, ByteNet)

    The paper stretches the source by 1.2 and adds a constant, so that most targets end before it does; here a target
    longer than its source goes on by what the decoder remembers.
    """

    slot, reads_memory = "cross", True

    def __init__(self, shape: Shape):
        super().__init__()
        self.out = declare(nn.Linear(2 * shape.width, shape.width), weight="output")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        places, there = context.once(("aligned", context.memory.shape[1]), lambda: _places(context))
        memory = context.memory
        index = places[..., None].expand(memory.shape[0], -1, memory.shape[-1])
        return self.out(torch.cat([memory.gather(1, index) * there[..., None], x], -1))


def _places(context: Context) -> tuple[Int[Tensor, "#b t"], Float[Tensor, "#b t"]]:
    """Where in the memory each token's source token is, and whether there is one: the p-th that token p may read."""
    memory, positions, allowed = context.memory, context.places.positions, context.memory_mask.allowed
    if allowed is None:
        return positions.clamp(max=memory.shape[1] - 1), (positions < memory.shape[1]).to(memory.dtype)
    same = allowed & (allowed.cumsum(-1) == positions[..., None] + 1)
    return same.int().argmax(-1), same.any(-1).to(memory.dtype)


class Weighted(nn.Module, Mixer):
    """Σ_i α_i FFN(κ_i head_i W_i), Σ κ = Σ α = 1: each head of `mixer` goes through `channel` by itself. (Ahmed et al.
    2017, formulas 2 and 3)

    W_i are the rows of the mixer's own last projection. As in Narang et al. 2021 the heads share one FFN of full width,
    where Ahmed's have each their own, narrower by the number of heads; κ and α are softmaxes of what is learned, from
    an equal start.
    """

    def __init__(self, shape: Shape, *, mixer: Recipe, channel: Recipe):
        super().__init__()
        self.mixer, self.channel = mixer(shape), channel(shape)
        name, out = output_map(self.mixer)
        if not isinstance(self.mixer, Mixer) or self.mixer.heads is None or out is None or out.bias is not None:
            raise ScalingError(
                "branches are heads, each with its rows of a projection without bias",
                key="mixer.kind",
                value=type(self.mixer).__name__,
                fix="take Attention or CrossAttention with bias: false",
            )
        self.slot, self.takes_queries = self.mixer.slot, self.mixer.takes_queries
        self.out = out
        setattr(self.mixer, name, nn.Identity())  # it now ends with its heads, side by side
        self.kappa, self.alpha = (nn.Parameter(torch.empty(self.mixer.heads)) for _ in range(2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.kappa)
        nn.init.zeros_(self.alpha)

    def forward(
        self, x: Float[Tensor, "b t w"], context: Context, queries: Float[Tensor, "b q w"] | None = None
    ) -> Float[Tensor, "b q w"]:
        kappa, alpha = self.kappa.softmax(-1).to(x.dtype), self.alpha.softmax(-1).to(x.dtype)
        mixed = self.mixer(x, context) if queries is None else self.mixer(x, context, queries)
        # One after the other: at once they would need the heads' number times the memory.
        outputs = (self.channel(k * head, context) for k, head in zip(kappa, self._projected(mixed), strict=True))
        return torch.stack([a * y for a, y in zip(alpha, outputs, strict=True)]).sum(0)

    def _projected(self, mixed: Float[Tensor, "b t h"]) -> Iterator[Float[Tensor, "b t w"]]:
        """Each head through its rows of the projection."""
        heads = mixed.chunk(len(self.kappa), -1)
        if is_plain(self.out):
            rows = self.out.weight.chunk(len(heads), -1)
            yield from (F.linear(head, row) for head, row in zip(heads, rows, strict=True))
            return
        width = heads[0].shape[-1]
        for number, head in enumerate(heads):
            yield self.out(F.pad(head, (number * width, (len(heads) - 1 - number) * width)))
