"""Attention over a pattern by FlexAttention: torch compiles a kernel that skips the blocks of keys that nobody sees."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from scaling.nn.context import Context, Places

LEAST_WIDTH = 16  # of a head; the compiled kernel takes no narrower ones


def takes(q: Tensor, v: Tensor, context: Context, dropout: float) -> bool:
    """Whether the compiled kernel computes a pattern that has a layout: on CUDA, where positions add nothing and there
    is what compiles it.
    """
    position = context.position
    return (
        q.is_cuda
        and _compiles()
        and context.cache is None  # a kernel is compiled for a length
        and not (position.adds_score or position.mixes_values or dropout)
        and q.dtype != torch.float64
        and min(q.shape[-1], v.shape[-1]) >= LEAST_WIDTH
    )


def flexible(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float) -> Tensor:
    """softmax(s q kᵀ + mask) v, [b t h e]."""
    mask = context.once(("flexible", id(context.mask)), lambda: block_mask(context))
    return attention_of(_function(True), q, k, v, mask, scale)


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
def _compiles() -> bool:
    return find_spec("triton") is not None


@cache
def _function(compiled: bool) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False) if compiled else flex_attention
