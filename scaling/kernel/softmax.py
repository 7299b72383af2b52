"""Softmax of attention's logits, and a classifier's losses with their gradient."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from scaling.kernel.call import call


def softmax(
    logits: Float[Tensor, "bh t s"],
    added: Float[Tensor, "#b #h #t s"] | None,
    *,
    heads: int,
    scale: float,
    causal: bool,
) -> Float[Tensor, "bh t s"]:
    """softmax(scale logits + added), in the logits' own memory; `added` learns nothing.

    Where it is `causal` t is s and each query sees the keys up to its own, which is half the work. The logits may not
    be a view: autograd copies the gradient of one that was changed in place three times.
    """
    return _Softmax.apply(logits, added, heads, scale, causal)


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, added: Tensor | None, heads: int, scale: float, causal: bool) -> Tensor:
        _, queries, keys = logits.shape
        strides = (0, 0, 0)
        if added is not None:
            added = added.expand(len(logits) // heads, heads, queries, keys)
            added = added if added.stride(-1) == 1 else added.contiguous()
            strides = added.stride()[:3]
        rows = logits.numel() // keys
        call("softmax", logits.dtype, logits, added, rows, heads, queries, keys, *strides, scale, causal)
        ctx.mark_dirty(logits)
        ctx.scale, ctx.causal = scale, causal
        ctx.save_for_backward(logits)
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (chances,) = ctx.saved_tensors
        below, (queries, keys) = torch.empty_like(chances), chances.shape[-2:]
        sizes = (chances.numel() // keys, queries, keys)
        call("softmax_backward", chances.dtype, upstream.contiguous(), chances, below, *sizes, ctx.scale, ctx.causal)
        return below, None, None, None, None


def cross_entropy(
    logits: Float[Tensor, "n v"],
    targets: Int[Tensor, " n"],
    losses: Float[Tensor, " n"],
    gradient: Float[Tensor, "n v"] | None,
    smoothing: float,
) -> None:
    """Write each row's loss, and where it is asked for its gradient; an ignored row's are zeros.

    The loss of a target beyond the classes is no number.
    """
    call("cross_entropy", logits.dtype, logits, targets, losses, gradient, *logits.shape, smoothing)
