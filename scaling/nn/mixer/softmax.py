"""softmax(s q kᵀ + mask + score) v, by the kernel that suits the device, the length and what positions add."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from scaling.nn.context import Context

# Up to so many keys two plain products stand against the fused kernel on a CPU (docs/performance.md). In bfloat16 they
# are up to four times as fast; in float32 about as fast, and a FLOP counter sees them, which it does not the other.
EXPLICIT_KEYS = {2: 1024, 4: 256, 8: 256}  # by the bytes of a number


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
    plain = q.device.type == "cpu" and k.shape[1] <= EXPLICIT_KEYS[q.dtype.itemsize]
    if plain or context.position.mixes_values:
        return _explicit(q, k, v, context, scale, dropout)
    return _fused(q, k, v, context, scale, dropout)


def _explicit(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, dropout: float) -> Tensor:
    (b, t, h), (s, g) = q.shape[:3], k.shape[1:3]
    bias = _bias(q, k, context)
    if g != h:
        k, v = k.repeat_interleave(h // g, 2), v.repeat_interleave(h // g, 2)
    q, k, v = (x.transpose(1, 2).reshape(b * h, -1, x.shape[-1]) for x in (q, k, v))
    if bias is not None and bias.shape[:2] == (1, 1):  # one mask for all: the product adds it on its way
        logits = torch.baddbmm(bias[0], q, k.mT, alpha=scale)
    else:
        logits = torch.baddbmm(q.new_empty(()), q, k.mT, beta=0, alpha=scale)
        if bias is not None:
            logits.view(b, h, t, s).add_(bias)
    weights = logits.softmax(-1)
    if dropout:
        weights = F.dropout(weights, dropout)
    mixed = (weights @ v).view(b, h, t, -1)
    if context.position.mixes_values:
        added = context.position.value(weights.view(b, h, t, s), context.places.positions, context.keys.positions)
        mixed = mixed + added
    return mixed.transpose(1, 2)


def _fused(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, dropout: float) -> Tensor:
    mask, bias = context.mask, None
    triangular = mask.triangular and not context.position.adds_score
    if not triangular:
        bias = _bias(q, k, context)
    mixed = F.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=bias,
        is_causal=triangular,
        dropout_p=dropout,
        scale=scale,
        enable_gqa=q.shape[2] != k.shape[2],
    )
    return mixed.transpose(1, 2)


def _bias(q: Tensor, k: Tensor, context: Context) -> Float[Tensor, "#b #h t s"] | None:
    """Mask and position score in one tensor, made once a pass where it does not depend on content."""
    position = context.position

    def make() -> Tensor | None:
        mask = context.mask.added(q.dtype)
        if not position.adds_score:
            return mask
        score = position.score(q, k, context.places.positions, context.keys.positions).to(q.dtype)
        return score if mask is None else score + mask

    if position.reads_content:
        return make()
    return context.once(("bias", id(position), id(context.mask), q.dtype), make)
