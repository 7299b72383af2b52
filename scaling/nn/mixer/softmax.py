"""softmax(s q kᵀ + mask + score) v, by the kernel that suits the device, the length and what positions add."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from scaling.kernel import attention
from scaling.kernel.call import serves
from scaling.kernel.softmax import softmax
from scaling.nn.context import Context, Mask, Places
from scaling.nn.pattern import render

# Up to so many keys two plain products stand against torch's fused kernel on a CPU (docs/performance.md): in bfloat16
# up to four times as fast, in float32 about as fast, and a FLOP counter sees them, which it does not the other.
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
    band = _band(q, k, context)
    if band is not None:
        return _in_blocks(q, k, v, context, band, scale, dropout)
    if attention.serves(q, k, v) and _as_they_are(q) and not dropout and not context.position.mixes_values:
        return _in_one_pass(q, k, v, context, scale)
    plain = q.device.type == "cpu" and k.shape[1] <= EXPLICIT_KEYS[q.dtype.itemsize]
    if plain or context.position.mixes_values:
        return _explicit(q, k, v, context, scale, dropout)
    return _fused(q, k, v, context, scale, dropout)


def attend_to(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b s h d"],
    v: Float[Tensor, "b s h e"],
    added: Float[Tensor, "#b #h t s"],
    *,
    scale: float,
) -> Float[Tensor, "b t h e"]:
    """softmax(s q kᵀ + added) v, where what is added learns and is larger than a mask or a score of positions."""
    if attention.serves(q, k, v) and _as_they_are(q):
        return attention.attention(q, k, v, added, scale=scale, causal=False)
    weights = (scale * torch.einsum("bthd,bshd->bhts", q, k) + added).softmax(-1)
    return torch.einsum("bhts,bshe->bthe", weights, v)


def _as_they_are(q: Tensor) -> bool:
    """Whether nobody casts them to another type, and nobody, a counter of FLOPs say, watches torch's operations."""
    recast = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is not q.dtype
    return not recast and not is_in_torch_dispatch_mode()


def _triangular(context: Context) -> bool:
    """Whether each query sees the keys up to its own, and nothing is added to any."""
    return context.mask.triangular and not context.position.adds_score


def _band(q: Tensor, k: Tensor, context: Context) -> tuple[int, int] | None:
    """The pattern's band, where a block of it is narrower than what stands there and tokens follow one another."""
    pattern, (t, s) = context.mask.pattern, (q.shape[1], k.shape[1])
    if pattern is None or pattern.band is None or (context.cache is None and s != t):
        return None
    return pattern.band if _block(t, pattern.band) + sum(pattern.band) < s else None


def _block(t: int, band: tuple[int, int]) -> int:
    """How many queries share a block: as many as see one another's neighbours, so that half a block's keys count."""
    return min(t, 1 + sum(band))


def _in_blocks(
    q: Tensor, k: Tensor, v: Tensor, context: Context, band: tuple[int, int], scale: float, dropout: float
) -> Tensor:
    """Blocks of neighbouring queries as rows of their own, each before the keys that some of them sees."""
    (b, t), (back, ahead) = q.shape[:2], band
    block, past = _block(t, band), k.shape[1] - t
    count = -(-t // block)

    def queries(x: Tensor) -> Tensor:
        return _rows(x, 0, count * block - t, block, block)

    def keys(x: Tensor) -> Tensor:
        return _rows(x, back - past, count * block + ahead - t, block + back + ahead, block)

    def places(part: Callable[[Tensor], Tensor], whole: Places, documents: Tensor | None) -> Places:
        told = torch.ones_like(whole.positions) if documents is None else documents
        prefix = None if whole.prefix is None else whole.prefix.repeat_interleave(count)
        return Places(part(whole.positions.expand(b, -1)), part(told.expand(b, -1)), prefix)

    def rendered() -> tuple[Places, Places, Mask]:
        here, there, pattern = context.places, context.keys, context.mask.pattern
        assert pattern is not None
        whole = here.documents is None or there.documents is None
        q_places = places(queries, here, None if whole else here.documents)
        k_places = places(keys, there, None if whole else there.documents)
        return q_places, k_places, replace(render(pattern, q_places, k_places), pattern=None)

    q_places, k_places, mask = context.once(("blocks", id(context.mask)), rendered)
    inside = replace(context, places=q_places, keys=k_places, mask=mask)
    mixed = attend(queries(q), keys(k), keys(v), inside, scale=scale, dropout=dropout)
    return mixed.unflatten(0, (b, count)).flatten(1, 2)[:, :t]


def _rows(x: Tensor, before: int, after: int, span: int, step: int) -> Tensor:
    """Spans of [b s …], `step` apart, as rows; x is first padded by zeros, or cut where their number is negative."""
    padded = F.pad(x, (0, 0) * (x.ndim - 2) + (before, after))
    return padded.unfold(1, span, step).movedim(-1, 2).flatten(0, 1)


def _in_one_pass(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float) -> Tensor:
    triangular = _triangular(context)
    added = None if triangular else bias(q, k, context, scale)
    return attention.attention(q, k, v, added, scale=scale, causal=triangular)


def _explicit(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float, dropout: float) -> Tensor:
    (b, t, h), (s, g) = q.shape[:3], k.shape[1:3]
    compiled, triangular = serves(q, k, v) and _as_they_are(q), _triangular(context)
    added = None if compiled and triangular else bias(q, k, context, scale)
    if g != h:
        k, v = k.repeat_interleave(h // g, 2), v.repeat_interleave(h // g, 2)
    q, k, v = (x.transpose(1, 2).reshape(b * h, -1, x.shape[-1]) for x in (q, k, v))
    if compiled and (added is None or not added.requires_grad):
        weights = softmax(torch.bmm(q, k.mT), added, heads=h, scale=scale, causal=triangular)
    elif added is not None and added.shape[:2] == (1, 1):  # one mask for all: the product adds it on its way
        weights = torch.baddbmm(added[0], q, k.mT, alpha=scale).softmax(-1)
    else:
        logits = torch.baddbmm(q.new_empty(()), q, k.mT, beta=0, alpha=scale)
        if added is not None:  # not in place: the gradient of a view changed in place is copied three times
            logits = (logits.view(b, h, t, s) + added).flatten(0, 1)
        weights = logits.softmax(-1)
    if dropout:
        weights = F.dropout(weights, dropout)
    mixed = (weights @ v).view(b, h, t, -1)
    if context.position.mixes_values:
        added = context.position.value(weights.view(b, h, t, s), context.places.positions, context.keys.positions)
        mixed = mixed + added
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
