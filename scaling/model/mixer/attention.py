"""Attention among the tokens of a stack and of a decoder to its encoder, and the ways in which softmax(s q kᵀ + mask +
score) v is computed, by the device, the length and what positions add.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from scaling.base.errors import ScalingError
from scaling.base.numbers import BelowOne
from scaling.config.schema import Recipe
from scaling.config.shape import Shape
from scaling.kernels.operations import attention, attention_takes, attention_weights
from scaling.model.context import Context, Mask, Places, Position
from scaling.model.contract import Mixer, declare, map_of
from scaling.model.mixer.bands import blocks_of

Scale = Literal["sqrt", "width", "none"]


class Projections(nn.Module):
    """Queries x W_Q, keys x W_K and values x W_V."""

    def __init__(self, shape: Shape, *, bias: bool = False):
        super().__init__()
        self.heads, self.key_heads = shape.heads, shape.key_heads
        self.query = declare(nn.Linear(shape.width, shape.heads * shape.head_width, bias), weight="query")
        self.key = declare(nn.Linear(shape.width, shape.key_heads * shape.head_width, bias), weight="key")
        self.value = declare(nn.Linear(shape.width, shape.key_heads * shape.value_width, bias), weight="value")

    def project(self, x: Tensor, queries: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [b t h d], keys [b s g d] and values [b s g e], by one matrix product where the maps are plain."""
        parts = (self.query, self.key, self.value)
        if queries is not None or not is_plain(*parts):
            q, k, v = self.query(x if queries is None else queries), self.key(x), self.value(x)
        else:
            bias = None if self.query.bias is None else torch.cat([part.bias for part in parts])
            joined = F.linear(x, torch.cat([part.weight for part in parts]), bias)
            q, k, v = joined.split([part.out_features for part in parts], -1)
        k, v = (part.unflatten(-1, (self.key_heads, -1)) for part in (k, v))
        return q.unflatten(-1, (self.heads, -1)), k, v


class Projected(Projections, Mixer):
    """Projections in heads, whose outputs W_O joins."""

    def __init__(self, shape: Shape, *, bias: bool | Literal["qkv"] = False):
        super().__init__(shape, bias=bool(bias))
        self.out = declare(nn.Linear(shape.heads * shape.value_width, shape.width, bias is True), weight="output")

    def refuse_scores(self, position: Position) -> None:
        """Refuse a position that adds to what this piece has not."""
        if position.adds_score or position.mixes_values:
            raise ScalingError(
                f"{type(position).__name__} adds to logits of pairs, and {type(self).__name__} has none",
                key="model.position",
                fix="take Rotary, Sinusoidal, Learned or NoPosition",
            )


class Attention(Projected):
    """softmax(s Q Kᵀ + position) V W_O over the tokens that the pattern allows. (Vaswani et al. 2017, section 3.2)

    Key heads fewer than heads are shared by groups of queries (Shazeer 2019; Ainslie et al. 2023). `scale` is s:
    `sqrt` is d_k^(−1/2), `width` is 1/d_k (muP), `none` is 1 (T5, whose query initialiser holds it). `bias: qkv` adds
    one to queries, keys and values and none to the output (Qwen2). `norm` is applied to each head's queries and keys
    (Henry et al. 2020). `dropout` acts on the attention weights.
    """

    takes_queries = takes_prefix = True

    def __init__(
        self,
        shape: Shape,
        *,
        scale: Scale = "sqrt",
        dropout: BelowOne = 0.0,
        bias: bool | Literal["qkv"] = False,
        norm: Recipe | None = None,
    ):
        super().__init__(shape, bias=bias)
        self.scale, self.dropout = scale_of(scale, shape.head_width), dropout
        self.prefix: nn.Module | None = None  # learned keys and values before the others
        self.query_norm, self.key_norm = (norm(shape.head_width) if norm else None for _ in range(2))

    def forward(
        self, x: Float[Tensor, "b t w"], context: Context, queries: Float[Tensor, "b q w"] | None = None
    ) -> Float[Tensor, "b q w"]:
        return self.out(self._mixed(x, context, queries).flatten(2))

    def _mixed(self, x: Tensor, context: Context, queries: Tensor | None) -> Float[Tensor, "b q h e"]:
        """Each head's average of the values, before the last projection."""
        q, k, v = self.project(x, queries)
        q, k = self._placed(q, k, context, context.places if queries is None else context.keys)
        k, v = context.extended(self, key=k, value=v)
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


def check_reach(context: Context, reach: int, what: str) -> None:
    """Refuse keys at places beyond those that a mixer has; `what` says what these are."""
    keys, count = context.keys, context.keys.positions.shape[1]
    # Only a row longer than the tables can hold a position beyond them; padded or packed, it need not.
    if count > reach and (keys.plain or int(keys.positions.max()) >= reach):
        raise ScalingError(
            f"a text of {count} tokens is longer than the {reach} {what}",
            key="model.block.mixer.length",
            value=reach,
            fix="shorten the text, or train with a larger size.length",
        )


def is_plain(*maps: nn.Linear) -> bool:
    """Whether each is y = x W + b alone, without a tuning or another hook: its matrix may then be used uncalled."""
    plain = (type(linear).forward is nn.Linear.forward for linear in maps)
    return all(plain) and not any(linear._forward_hooks or linear._forward_pre_hooks for linear in maps)


def scale_of(scale: Scale, head_width: int) -> float:
    return {"sqrt": head_width**-0.5, "width": 1 / head_width, "none": 1.0}[scale]


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
        name, out = map_of(self.mixer, "output")
        if not isinstance(self.mixer, Mixer) or self.mixer.heads is None or out is None or out.bias is not None:
            what, fix = "branches are heads, each with its rows of a projection without bias", "take Attention or"
            kind = type(self.mixer).__name__
            raise ScalingError(what, key="mixer.kind", value=kind, fix=f"{fix} CrossAttention with bias: false")
        self.slot, self.takes_queries = self.mixer.slot, self.mixer.takes_queries
        self.out = out
        setattr(self.mixer, name, nn.Identity())  # it now ends with its heads, side by side
        self.kappa, self.alpha = (nn.Parameter(torch.zeros(self.mixer.heads)) for _ in range(2))
        self.constants = {"kappa": 0.0, "alpha": 0.0}

    def forward(
        self, x: Float[Tensor, "b t w"], context: Context, queries: Float[Tensor, "b q w"] | None = None
    ) -> Float[Tensor, "b q w"]:
        kappa, alpha = self.kappa.softmax(-1).to(x.dtype), self.alpha.softmax(-1).to(x.dtype)
        mixed = self.mixer(x, context) if queries is None else self.mixer(x, context, queries)
        heads, rows = (part.chunk(len(kappa), -1) for part in (mixed, self.out.weight))
        width, outputs = heads[0].shape[-1], []
        # One after the other: at once they would need the heads' number times the memory.
        for number, head in enumerate(heads):
            if is_plain(self.out):
                y = F.linear(head, rows[number])
            else:
                y = self.out(F.pad(head, (number * width, (len(heads) - 1 - number) * width)))
            outputs.append(alpha[number] * self.channel(kappa[number] * y, context))
        return torch.stack(outputs).sum(0)


# A mask, a score or weights for more pairs than these (2,048 tokens squared) are made for so many pairs at a time.
SQUARE, PART = 1 << 22, 1 << 21

# Up to this number of keys two plain products replace torch's fused kernel on a CPU (docs/performance.md): in bfloat16
# up to four times as fast, in float32 about as fast, and a FLOP counter sees them, which it does not the other.
EXPLICIT_KEYS = {2: 1024, 4: 256, 8: 256}  # by the bytes of a number

# Numbers of a head's keys beyond which torch's fused kernel, which reads them in blocks, is faster than ours.
NEAR_KEYS = 1 << 16

LEAST_WIDTH = 16  # of a head that FlexAttention takes
COMPILES = find_spec("triton") is not None  # what FlexAttention is compiled by


class Setting(NamedTuple):
    """The properties of queries [b t h d], keys [b s g d] and values [b s g e] by which an implementation is chosen."""

    device: str
    dtype: torch.dtype
    queries: int
    keys: int
    width: int
    value_width: int
    kernel: bool  # whether our kernel takes them: plain tensors of float32 on a CPU that nothing casts or watches
    flex: bool = COMPILES  # whether there is what compiles FlexAttention

    @staticmethod
    def of(q: Tensor, k: Tensor, v: Tensor) -> Setting:
        sizes = q.shape[1], k.shape[1], k.shape[-1], v.shape[-1]
        return Setting(q.device.type, q.dtype, *sizes, attention_takes(q, k, v))


def attend(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b s g d"],
    v: Float[Tensor, "b s g e"],
    context: Context,
    *,
    scale: float,
    dropout: float,
) -> Float[Tensor, "b t h e"]:
    """Each query's average of the values it may see."""
    setting = Setting.of(q, k, v)
    if context.attends is not None:
        context.attends(lambda **other: choose(setting._replace(**other), context, dropout))
    return WAYS[choose(setting, context, dropout)](q, k, v, context, scale, dropout)


def choose(setting: Setting, context: Context, dropout: float) -> str:
    """The name of the way: by who looks, the pattern, what positions add, the device, the type and the length."""
    device, dtype, t, s, width, value_width, kernel, flex = setting
    position, mixes = context.position, context.position.mixes_values
    if context.weights is not None:
        return "explicit"
    if not context.mask.square and getattr(context.mask.pattern, "layout", None) is not None:
        added = position.adds_score or mixes or dropout or context.cache is not None
        wide = min(width, value_width) >= LEAST_WIDTH and dtype != torch.float64
        if device == "cuda" and flex and wide and not added:  # it is compiled for a length
            return "flex"
        if blocks_of(context, t, s) is not None:
            return "blocks"
    near = s * width <= NEAR_KEYS
    adds = near or (not _triangular(context) and (position.adds_score or context.mask.allowed(0, 1) is not None))
    if t > 1 and t * s > SQUARE and (adds or dropout or mixes):
        if device == "cpu":
            return "parts"
        if device == "meta" and not position.reads_content:
            return "counted"
    if t == 1 and not dropout and not mixes:
        return "sdpa"  # keys that one query reads are not worth being laid out for many
    if adds and kernel and not dropout and not mixes:
        return "kernel"
    few = device == "cpu" and s <= EXPLICIT_KEYS[dtype.itemsize]
    return "explicit" if few or mixes else "sdpa"


def _triangular(context: Context) -> bool:
    """Whether each query sees the keys up to its own, and nothing is added to any: kernels know this mask."""
    mask = context.mask
    plain = mask.queries.plain and mask.keys.plain and getattr(mask.pattern, "causal", False)
    return plain and not context.position.adds_score


def _explicit(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, dropout: float) -> Tensor:
    """The formula: two products with the weights between them, which positions and who looks at them may read."""
    (b, t, h), s = q.shape[:3], k.shape[1]
    if k.shape[2] != h:
        k, v = (x.repeat_interleave(h // x.shape[2], 2) for x in (k, v))
    v = v.transpose(1, 2).reshape(b * h, s, -1)
    weights = attention_weights(q, k, lambda: bias(q, k, context, scale), causal=_triangular(context), scale=scale)
    if context.weights is not None:
        context.weights(weights.view(b, h, t, s))
    if dropout:
        weights = F.dropout(weights, dropout)
    mixed = (weights @ v).view(b, h, t, -1)
    if context.position.mixes_values:
        mixed = mixed + context.position.value(weights.view(b, h, t, s), *context.seen)
    return mixed.transpose(1, 2)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, dropout: float) -> Tensor:
    """torch's fused attention."""
    triangular = _triangular(context)
    return _fused(q, k, v, None if triangular else bias(q, k, context, scale), scale, dropout, triangular)


def _counted(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, dropout: float) -> Tensor:
    """Long rows on the meta device: what a CPU does not keep, a count does not."""
    return _fused(q, k, v, None, scale, dropout, False)


def _fused(q: Tensor, k: Tensor, v: Tensor, added: Any, scale: float, dropout: float, causal: bool) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    rest: dict[str, Any] = {"scale": scale, "enable_gqa": q.shape[1] != k.shape[1]}
    return F.scaled_dot_product_attention(q, k, v, added, dropout, causal, **rest).transpose(1, 2)


def _kernel(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, dropout: float) -> Tensor:
    """Our kernel for a CPU, which keeps no weights and drops none."""
    triangular = _triangular(context)
    return attention(q, k, v, None if triangular else bias(q, k, context, scale), scale=scale, causal=triangular)


def _parts(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, dropout: float) -> Tensor:
    """Some queries after others, so that of the square there is never more than a part: memory grows with the length.
    The backward pass computes each part again. (Rabe & Staats 2021; Dao et al. 2022)
    """
    t, s, mask = q.shape[1], k.shape[1], context.mask
    size = max(1, PART // s)
    looks_back = not (mask.pattern.ahead or mask.virtual)  # keys are the queries' own, and those before them

    def part(q: Tensor, k: Tensor, v: Tensor, start: int, stop: int) -> Tensor:
        inside = replace(context, mask=of_queries(mask, start, stop, k.shape[1]))
        return attend(q, k, v, inside, scale=scale, dropout=dropout)

    parts = []
    for start in range(0, t, size):
        stop = min(start + size, t)
        seen = s - t + stop if looks_back else s
        rows = q[:, start:stop], k[:, :seen], v[:, :seen]
        parts.append(checkpoint(part, *rows, start, stop, use_reentrant=False))
    return torch.cat(parts, 1)


def _flex(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, dropout: float) -> Tensor:
    """FlexAttention: torch compiles a kernel that skips the blocks of keys that nobody sees."""
    return attention_of(_flex_attention(True), q, k, v, context.once("flex", lambda: block_mask(context)), scale)


def attention_of(function: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, scale: float) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return function(q, k, v, block_mask=mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1]).transpose(1, 2)


def block_mask(context: Context) -> Any:
    """The pattern within documents as FlexAttention reads it: which blocks of keys a block of queries sees, in whole or
    in part.
    """
    from torch.nn.attention.flex_attention import create_block_mask

    q, k, pattern = context.places, context.keys, context.mask.pattern
    rows = max(len(part) for part in (q.positions, k.positions, q.documents, k.documents, q.prefix) if part is not None)

    def sees(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        one, other = _at(q, b, i), _at(k, b, j)
        allowed = pattern(one, other)
        allowed = torch.ones_like(i >= 0) if allowed is None else allowed[0, 0, 0]
        if one.documents is None or other.documents is None:
            return allowed
        return allowed & (one.documents == other.documents)[0, 0] & (other.documents > 0)[0, 0]

    t, s = q.positions.shape[1], k.positions.shape[1]
    return create_block_mask(sees, rows if rows > 1 else None, None, t, s, device=str(q.positions.device))


def _at(places: Places, row: Tensor, index: Tensor) -> Places:
    """The place of one token, as a row of one."""
    return places.map(
        lambda part: part[row if len(part) > 1 else row * 0, index][None, None], lambda prefix: prefix[row][None]
    )


@cache
def _flex_attention(compiled: bool) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False) if compiled else flex_attention


def _blocks(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, dropout: float) -> Tensor:
    """Blocks of neighbouring queries as rows of their own, each before the keys that some of them sees."""
    blocks: Any = blocks_of(context, q.shape[1], k.shape[1])
    inside = replace(context, mask=context.once("blocks", lambda: blocks.mask(context.mask, len(q))), attends=None)
    mixed = attend(blocks.queries(q), blocks.keys(k), blocks.keys(v), inside, scale=scale, dropout=dropout)
    mixed = blocks.whole(mixed, len(q))
    first = blocks.first - (blocks.s - blocks.t) if context.mask.pattern.ahead else 0
    return with_first(mixed, first, q, k, v, context, scale=scale, dropout=dropout)


def with_first(
    mixed: Tensor, count: int, q: Tensor, k: Tensor, v: Tensor, context: Context, **how: float
) -> Float[Tensor, "b t h e"]:
    """The heads' outputs, those of the first queries over the square."""
    if count <= 0:
        return mixed
    inside = replace(context, mask=context.once(("first", count), lambda: of_queries(context.mask, 0, count)))
    return torch.cat([attend(q[:, :count], k, v, inside, **how), mixed[:, count:]], 1)


def of_queries(mask: Mask, start: int, stop: int, keys: int | None = None) -> Mask:
    """The mask of the queries `start` to `stop` alone, before all keys or the first of them."""
    seen = mask.keys if keys is None else mask.keys.part(0, keys)
    return replace(mask, queries=mask.queries.part(start, stop), keys=seen, square=True)


WAYS: dict[str, Callable[[Tensor, Tensor, Tensor, Context, float, float], Tensor]] = {
    "explicit": _explicit,
    "sdpa": _sdpa,
    "kernel": _kernel,
    "flex": _flex,
    "blocks": _blocks,
    "parts": _parts,
    "counted": _counted,
}
"""The ways to compute softmax(s q kᵀ + mask + score) v. All give the same to rounding."""


def bias(q: Tensor, k: Tensor, context: Context, scale: float) -> Float[Tensor, "#b #h t s"] | None:
    """Mask and position score in one tensor, made once a pass where it does not depend on content."""
    position = context.position

    def make() -> Tensor | None:
        mask = context.mask.added(q.dtype)
        if not position.adds_score:
            return mask
        score = position.score(q, k, *context.seen).to(q.dtype)
        if position.reads_content:
            return score * scale if mask is None else torch.add(mask, score, alpha=scale)
        return score if mask is None else score + mask

    return make() if position.reads_content else context.once(("bias", position, q.dtype), make)
