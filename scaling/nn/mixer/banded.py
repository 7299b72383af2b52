"""Attention within a band: blocks of neighbouring queries, each before the keys that some of them sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from scaling.nn.context import Context, Mask, Places
from scaling.nn.pattern import render


def block_length(t: int, band: tuple[int, int]) -> int:
    """How many queries share a block: those that see one another's neighbours, so that half a block's keys count."""
    return min(t, 1 + sum(band))


def in_blocks(
    attend: Callable[..., Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    context: Context,
    band: tuple[int, int],
    scale: float,
    dropout: float,
) -> Tensor:
    """Blocks of neighbouring queries as rows of their own, each before the keys that some of them sees."""
    (b, t), (back, ahead) = q.shape[:2], band
    block, past = block_length(t, band), k.shape[1] - t
    count = -(-t // block)

    def queries(x: Tensor) -> Tensor:
        return _rows(x, 0, count * block - t, block, block)

    def keys(x: Tensor) -> Tensor:
        return _rows(x, back - past, count * block + ahead - t, block + back + ahead, block)

    def places(part: Callable[[Tensor], Tensor], whole: Places, documents: Tensor | None) -> Places:
        of_tokens = torch.ones_like(whole.positions) if documents is None else documents
        prefix = None if whole.prefix is None else whole.prefix.repeat_interleave(count)
        return Places(part(whole.positions.expand(b, -1)), part(of_tokens.expand(b, -1)), prefix)

    def rendered() -> tuple[Places, Places, Mask]:
        q_all, k_all, pattern = context.places, context.keys, context.mask.pattern
        assert pattern is not None
        whole = q_all.documents is None or k_all.documents is None
        q_places = places(queries, q_all, None if whole else q_all.documents)
        k_places = places(keys, k_all, None if whole else k_all.documents)
        return q_places, k_places, replace(render(pattern, q_places, k_places), pattern=None)

    q_places, k_places, mask = context.once(("blocks", id(context.mask)), rendered)
    inside = replace(context, places=q_places, keys=k_places, mask=mask)
    mixed = attend(queries(q), keys(k), keys(v), inside, scale=scale, dropout=dropout)
    return mixed.unflatten(0, (b, count)).flatten(1, 2)[:, :t]


def _rows(x: Tensor, before: int, after: int, span: int, step: int) -> Tensor:
    """Spans of [b s …], `step` apart, as rows; x is first padded by zeros, or cut where their number is negative."""
    padded = F.pad(x, (0, 0) * (x.ndim - 2) + (before, after))
    return padded.unfold(1, span, step).movedim(-1, 2).flatten(0, 1)
