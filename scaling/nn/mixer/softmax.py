"""softmax(s q kᵀ + mask + score) v, in the way that suits the device, the length and what positions add."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from scaling.kernel.attention import attention
from scaling.kernel.operations import attention_way, attention_weights
from scaling.nn.context import Context, layout_of
from scaling.nn.mixer.blocked import blocks_of, in_blocks
from scaling.nn.mixer.flexible import flexible, takes


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
    way = attention_way(q, k, v, dropout=dropout, reads_weights=context.position.mixes_values)
    if way == "one pass":
        return _in_one_pass(q, k, v, context, scale)
    if way == "products":
        return _explicit(q, k, v, context, scale, dropout)
    return _fused(q, k, v, context, scale, dropout)


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
        added = context.position.value(weights.view(b, h, t, s), context.places.positions, context.keys.positions)
        mixed = mixed + added
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
        mixed = mixed + context.position.value(weights, context.places.positions, context.keys.positions)
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
        score = position.score(q, k, context.places.positions, context.keys.positions).to(q.dtype)
        if position.reads_content:
            return score * scale if mask is None else torch.add(mask, score, alpha=scale)
        return score if mask is None else score + mask

    if position.reads_content:
        return make()
    return context.once(("bias", id(position), id(context.mask), q.dtype), make)
