"""softmax(s q kᵀ + mask + score) v, in the way that suits the device, the length and what positions add."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from scaling.kernel.functions import attention
from scaling.kernel.operations import attention_takes, attention_weights
from scaling.nn.context import NOWHERE, Context, Layout, Mask, Notes, Places, layout_of, recomputed
from scaling.nn.patterns import render


@dataclass(frozen=True)
class Blocks:
    """A row of `s` keys, the last `t` of which are the queries' own, as `count` blocks of `span` queries each.

    The row is first taken apart into `step` rows of every `step`-th token (dilation). A block reads the keys from
    `back` before its first query to `ahead` after its last one, and those of the layout that are far: the row's `first`
    keys, and whole blocks that are drawn. Blocks begin at query `start`.
    """

    t: int
    s: int
    start: int
    span: int
    back: int
    ahead: int
    step: int
    layout: Layout

    @property
    def count(self) -> int:
        return -(-(self.s - self.start) // (self.step * self.span))

    @property
    def near(self) -> int:
        """How many consecutive keys a block reads."""
        return self.span + self.back + self.ahead

    @property
    def first(self) -> int:
        return min(self.layout.first, self.s)

    @property
    def read(self) -> int:
        """How many keys a block reads at all."""
        drawn = self._drawn(torch.device("meta"))
        return self.near + self.first + (0 if drawn is None else drawn.shape[1] * self.span)

    def queries(self, x: Tensor) -> Tensor:
        """[b t …] as [b·step·count span …], with zeros for what is before the first query and after the last."""
        return self._spans(x, self.s - self.t - self.start, self.span)

    def keys(self, x: Tensor) -> Tensor:
        """[b s …] as [b·step·count read …]."""
        near = self._spans(x, self.back * self.step - self.start, self.near)
        far, drawn = [], self._drawn(x.device)
        if self.first:
            far.append(x[:, None, : self.first].expand(-1, self.step * self.count, *(-1 for _ in x.shape[1:])))
        if drawn is not None:
            whole = _padded(x, 0, -self.s % self.span).unflatten(1, (-1, self.span))
            chosen = whole.index_select(1, drawn.clamp(min=0).flatten())
            far.append(chosen.unflatten(1, drawn.shape).flatten(2, 3))
        return torch.cat([near, *(part.flatten(0, 1) for part in far)], 1) if far else near

    def unread(self, device: torch.device) -> Tensor | None:
        """Whether a block reads a key for the first time [1 step·count read], so that none counts twice."""
        drawn = self._drawn(device)
        if not self.first and drawn is None:
            return None
        rows, blocks = torch.arange(self.step, device=device)[:, None], torch.arange(self.count, device=device)
        low = (self.start + rows + self.step * (blocks * self.span - self.back)).flatten()[:, None]
        far = torch.arange(self.first, device=device).expand(len(low), -1)
        new = torch.ones_like(far, dtype=torch.bool)
        if drawn is not None:
            index = (drawn[..., None] * self.span + torch.arange(self.span, device=device)).flatten(1)
            far, new = torch.cat([far, index], 1), torch.cat([new, index >= self.first], 1)
        is_near = (far >= low) & (far < low + self.step * self.near) & ((far - low) % self.step == 0)
        return torch.cat([new.new_ones(len(low), self.near), new & ~is_near], 1)[None]

    def whole(self, mixed: Tensor, b: int) -> Tensor:
        """The blocks' answers [b·step·count span …] as those of the queries [b t …]."""
        rows = mixed.unflatten(0, (b, self.step, -1)).flatten(2, 3).transpose(1, 2).flatten(1, 2)
        return rows[:, self.s - self.t - self.start :][:, : self.t]

    def _spans(self, x: Tensor, before: int, width: int) -> Tensor:
        """Spans of [b n …] as rows [b·step·count width …]: padded by zeros, or cut where `before` is less."""
        total = self.step * (self.span * (self.count - 1) + width)
        x = _padded(x, before, total - before - x.shape[1])
        if self.step > 1:
            x = x.unflatten(1, (-1, self.step)).transpose(1, 2).flatten(0, 1)
        return x.unfold(1, width, self.span).movedim(-1, 2).flatten(0, 1)

    def _drawn(self, device: torch.device) -> Tensor | None:
        """The blocks that are drawn for each [count r]; −1: none, or beyond the row."""
        if self.layout.drawn is None:
            return None
        first = self.start // self.span
        drawn = self.layout.drawn(torch.arange(first, first + self.count, device=device))
        return torch.where(drawn * self.span < self.s, drawn, -1)


def blocks_of(context: Context, t: int, s: int) -> Blocks | None:
    """The blocks of a pattern that has a layout, where they read fewer keys than there are and tokens follow one
    another; None: attention computes the square.
    """
    layout = layout_of(context.mask.pattern)
    if layout is None or (context.cache is None and s != t):
        return None
    if context.position.reads_content and (layout.first or layout.drawn or layout.step > 1):
        return None  # such positions count on the keys being neighbours
    back, ahead, step, block = layout.back // layout.step, layout.ahead // layout.step, layout.step, layout.block
    if (block or layout.first) and not in_order(context):
        if layout.first or layout.drawn or not block:
            return None
        back, ahead, block = back + block - 1, ahead + block - 1, None
    unit = block or step
    start = (s - t) // unit * unit
    span = block or min(-(-(s - start) // step), 1 + back + ahead)
    blocks = Blocks(t, s, start, span, back, ahead, step, layout)
    return blocks if blocks.read < s else None


def in_order(context: Context) -> bool:
    """Whether each row is one document from its first token on, padded behind or not at all."""

    def compare(keys: Places) -> bool:
        if keys.plain or keys.positions.is_meta:
            return keys.plain
        order = keys.positions == torch.arange(keys.positions.shape[1], device=keys.positions.device)
        return bool((order if keys.documents is None else order | (keys.documents == 0)).all())

    return context.once(("in order", context.keys), lambda: compare(context.keys))


def _blocks(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, dropout: float) -> Tensor:
    """Blocks of neighbouring queries as rows of their own, each before the keys that some of them sees."""
    blocks = blocks_of(context, q.shape[1], k.shape[1])
    assert blocks is not None
    b, rows = len(q), blocks.step * blocks.count

    def places(part: Callable[[Tensor], Tensor], whole: Places, documents: Tensor | None) -> Places:
        of_tokens = torch.ones_like(whole.positions) if documents is None else documents
        prefix = None if whole.prefix is None else whole.prefix.repeat_interleave(rows)
        tree = None if whole.tree is None else part(whole.tree)
        return Places(part(whole.positions.expand(b, -1)), part(of_tokens.expand(b, -1)), prefix, tree=tree)

    def rendered() -> tuple[Places, Places, Mask]:
        q_all, k_all, pattern = context.places, context.keys, context.mask.pattern
        assert pattern is not None
        whole = q_all.documents is None or k_all.documents is None
        q_places = places(blocks.queries, q_all, None if whole else q_all.documents)
        k_places = places(blocks.keys, k_all, None if whole else k_all.documents)
        unread = blocks.unread(q.device)
        if unread is not None and k_places.documents is not None:
            once = k_places.documents.view(b, rows, -1) * unread
            k_places = replace(k_places, documents=once.flatten(0, 1))
        return q_places, k_places, replace(render(pattern, q_places, k_places), pattern=None)

    q_places, k_places, mask = context.once(("blocks", context.mask), rendered)
    inside = replace(context, places=q_places, keys=k_places, mask=mask, attends=None)
    mixed = attend(blocks.queries(q), blocks.keys(k), blocks.keys(v), inside, scale=scale, dropout=dropout)
    mixed = blocks.whole(mixed, b)
    pattern, first = context.mask.pattern, blocks.first - (blocks.s - blocks.t)
    if pattern is None or not pattern.ahead or first <= 0:
        return mixed
    above = attend(q[:, :first], k, v, of_first(context, first), scale=scale, dropout=dropout)
    return torch.cat([above, mixed[:, first:]], 1)


def of_first(context: Context, count: int) -> Context:
    """The pass of its first queries alone, which read the square."""
    return context.once(("first", count, context.mask), lambda: of_queries(context, 0, count))


def of_queries(context: Context, start: int, stop: int, keys: int | None = None) -> Context:
    """The pass of the queries `start` to `stop` alone, before all keys or the first of them."""
    rows = context.mask.rows(start, stop)
    places, seen = context.places.part(start, stop), context.keys
    if keys is not None:
        rows, seen = None if rows is None else rows[..., :keys], seen.part(0, keys)
    return replace(context, places=places, keys=seen, mask=Mask(rows), kept=Notes())


def _padded(x: Tensor, before: int, after: int) -> Tensor:
    return F.pad(x, (0, 0) * (x.ndim - 2) + (before, after))


def _flex(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, dropout: float) -> Tensor:
    """FlexAttention: torch compiles a kernel that skips the blocks of keys that nobody sees."""
    mask = context.once(("flex", context.mask), lambda: block_mask(context))
    return attention_of(_flex_attention(True), q, k, v, mask, scale)


def attention_of(function: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, scale: float) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return function(q, k, v, block_mask=mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1]).transpose(1, 2)


def block_mask(context: Context) -> Any:
    """The pattern within documents as FlexAttention reads it: which blocks of keys a block of queries sees, in whole or
    in part.
    """
    from torch.nn.attention.flex_attention import create_block_mask

    q, k, pattern = context.places, context.keys, context.mask.pattern
    assert pattern is not None
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

    def pick(part: Tensor | None) -> Tensor | None:
        return None if part is None else part[row if len(part) > 1 else row * 0, index][None, None]

    positions = pick(places.positions)
    assert positions is not None
    prefix = None if places.prefix is None else places.prefix[row][None]
    return Places(positions, pick(places.documents), prefix)


@cache
def _flex_attention(compiled: bool) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False) if compiled else flex_attention


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
    """What the choice of a way needs to know of queries [b t h d], keys [b s g d] and values [b s g e]."""

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
        context.attends(setting, context, dropout)
    return WAYS[choose(setting, context, dropout)](q, k, v, context, scale, dropout)


def choose(setting: Setting, context: Context, dropout: float) -> str:
    """The name of the way: by who looks at the weights, the pattern, what positions add, the device, the type and the
    length. No other function asks for these.
    """
    device, dtype, t, s, width, value_width, kernel, flex = setting
    position, mixes = context.position, context.position.mixes_values
    if context.weights is not None:
        return "explicit"
    if layout_of(context.mask.pattern) is not None:
        added = position.adds_score or mixes or dropout or context.cache is not None  # it is compiled for a length
        wide = min(width, value_width) >= LEAST_WIDTH
        if device == "cuda" and flex and wide and not added and dtype != torch.float64:
            return "flex"
        if blocks_of(context, t, s) is not None:
            return "blocks"
    adds = s * width <= NEAR_KEYS or _adds(context)
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


def _adds(context: Context) -> bool:
    """Whether a mask or a score is added to the logits, but for the triangle that kernels know. It is asked of long
    rows alone.
    """
    return not _triangular(context) and (context.position.adds_score or context.mask.rows(0, 1) is not None)


def _triangular(context: Context) -> bool:
    """Whether each query sees the keys up to its own, and nothing is added to any."""
    return context.mask.triangular and not context.position.adds_score


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
    added = None if triangular else bias(q, k, context, scale)
    mixed = F.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=added,
        is_causal=triangular,
        dropout_p=dropout,
        scale=scale,
        enable_gqa=q.shape[2] != k.shape[2],
    )
    return mixed.transpose(1, 2)


def _counted(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, dropout: float) -> Tensor:
    """Long rows on the meta device: what a CPU does not keep, a count does not."""
    return _sdpa(q, k, v, replace(context, mask=Mask(), position=NOWHERE), scale, dropout)


def _kernel(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, dropout: float) -> Tensor:
    """Our kernel for a CPU, which keeps no weights and drops none."""
    triangular = _triangular(context)
    added = None if triangular else bias(q, k, context, scale)
    return attention(q, k, v, added, scale=scale, causal=triangular)


def _parts(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, dropout: float) -> Tensor:
    """Some queries after others, so that of the square there is never more than a part: memory grows with the length.
    The backward pass computes each part again. (Rabe & Staats 2021; Dao et al. 2022)
    """
    (t, s), pattern = (q.shape[1], k.shape[1]), context.mask.pattern
    size = max(1, PART // s)
    looks_back = pattern is not None and not pattern.ahead  # keys are then the queries' own, and those before them

    def part(q: Tensor, k: Tensor, v: Tensor, start: int, stop: int) -> Tensor:
        inside = of_queries(context, start, stop, k.shape[1])
        return attend(q, k, v, inside, scale=scale, dropout=dropout)

    parts = []
    for start in range(0, t, size):
        stop = min(start + size, t)
        seen = s - t + stop if looks_back else s
        parts.append(recomputed(part, q[:, start:stop], k[:, :seen], v[:, :seen], start, stop))
    return torch.cat(parts, 1)


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

    if position.reads_content:
        return make()
    return context.once(("bias", position, context.mask, q.dtype), make)
