"""softmax(s q kᵀ + mask + score) v, in the way that suits the device, the length and what positions add."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from scaling.kernel.attention import attention
from scaling.kernel.operations import NEAR_KEYS, attention_way, attention_weights
from scaling.nn.context import NOWHERE, Context, Mask, layout_of
from scaling.nn.mixer.blocked import blocks_of, in_blocks, of_queries
from scaling.nn.mixer.flexible import flexible, takes
from scaling.nn.recompute import recomputed

# A mask, a score or weights for more pairs than these (2,048 tokens squared) are made for so many pairs at a time.
SQUARE, PART = 1 << 22, 1 << 21


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
    if context.weights is not None:
        return _shown(q, k, v, context, scale, context.weights)
    if layout_of(context.mask.pattern) is not None:
        if takes(q, v, context, dropout):
            return flexible(q, k, v, context, scale)
        blocks = blocks_of(context, q.shape[1], k.shape[1])
        if blocks is not None:
            return in_blocks(attend, q, k, v, context, blocks, scale, dropout)
    t, s = q.shape[1], k.shape[1]
    adds = s * k.shape[-1] <= NEAR_KEYS or _adds(context)
    if t * s > SQUARE and (adds or dropout or context.position.mixes_values):
        if q.device.type == "cpu":
            return _streamed(q, k, v, context, scale, dropout)
        if q.is_meta and not context.position.reads_content:
            context = replace(context, mask=Mask(), position=NOWHERE)  # what a CPU does not keep, a count does not
            adds = False
    return _at_once(q, k, v, context, scale, dropout, adds)


def _at_once(
    q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, dropout: float, adds: bool
) -> Float[Tensor, "b t h e"]:
    reads_weights = context.position.mixes_values
    way = attention_way(q, k, v, dropout=dropout, reads_weights=reads_weights, adds=adds)
    if way == "one pass":
        return _in_one_pass(q, k, v, context, scale)
    if way == "products":
        return _explicit(q, k, v, context, scale, dropout)
    return _fused(q, k, v, context, scale, dropout)


def _streamed(
    q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, dropout: float
) -> Float[Tensor, "b t h e"]:
    """Some queries after others, so that of the square there is never more than a part: memory grows with the length.
    The backward pass computes each part again. (Rabe & Staats 2021; Dao et al. 2022)
    """
    (t, s), pattern = (q.shape[1], k.shape[1]), context.mask.pattern
    size = max(1, PART // s)
    looks_back = pattern is not None and not pattern.ahead  # keys are then the queries' own, and those before them

    def part(q: Tensor, k: Tensor, v: Tensor, start: int, stop: int) -> Tensor:
        inside = of_queries(context, start, stop, k.shape[1])
        return _at_once(q, k, v, inside, scale, dropout, _adds(inside))

    parts = []
    for start in range(0, t, size):
        stop = min(start + size, t)
        seen = s - t + stop if looks_back else s
        parts.append(recomputed(part, q[:, start:stop], k[:, :seen], v[:, :seen], start, stop))
    return torch.cat(parts, 1)


def _adds(context: Context) -> bool:
    """Whether a mask or a score is added to the logits, but for the triangle that kernels know. It is asked of long
    rows alone.
    """
    return not _triangular(context) and (context.position.adds_score or context.mask.rows(0, 1) is not None)


def _triangular(context: Context) -> bool:
    """Whether each query sees the keys up to its own, and nothing is added to any."""
    return context.mask.triangular and not context.position.adds_score


def _in_one_pass(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float) -> Tensor:
    triangular = _triangular(context)
    added = None if triangular else bias(q, k, context, scale)
    return attention(q, k, v, added, scale=scale, causal=triangular)


def _explicit(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, dropout: float) -> Tensor:
    (b, t, h), s = q.shape[:3], k.shape[1]
    if k.shape[2] != h:
        k, v = (x.repeat_interleave(h // x.shape[2], 2) for x in (k, v))
    v = v.transpose(1, 2).reshape(b * h, s, -1)
    weights = attention_weights(q, k, lambda: bias(q, k, context, scale), causal=_triangular(context), scale=scale)
    if dropout:
        weights = F.dropout(weights, dropout)
    mixed = (weights @ v).view(b, h, t, -1)
    if context.position.mixes_values:
        mixed = mixed + context.position.value(weights.view(b, h, t, s), *context.seen)
    return mixed.transpose(1, 2)


def _shown(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, show: Callable[[Tensor], None]) -> Tensor:
    """All weights at once, by the formula, for who looks at them."""
    if k.shape[2] != q.shape[2]:
        k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], 2) for x in (k, v))
    scores, added = torch.einsum("bthd,bshd->bhts", q, k) * scale, bias(q, k, context, scale)
    weights = (scores if added is None else scores + added).softmax(-1)
    show(weights)
    mixed = torch.einsum("bhts,bshe->bhte", weights, v)
    if context.position.mixes_values:
        mixed = mixed + context.position.value(weights, *context.seen)
    return mixed.transpose(1, 2)


def _fused(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, dropout: float) -> Tensor:
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
    return context.once(("bias", id(position), id(context.mask), q.dtype), make)
