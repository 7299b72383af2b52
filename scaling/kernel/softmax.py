"""Softmax of attention's logits, and a classifier's losses with their gradient."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from scaling.kernel.call import call, dense, fitting, in_rows


def softmax(
    logits: Float[Tensor, "bh t s"],
    added: Float[Tensor, "#b #h #t s"] | None,
    *,
    heads: int,
    scale: float,
    causal: bool,
) -> Float[Tensor, "bh t s"]:
    """softmax(scale logits + added), in the logits' own memory if they have no gaps; `added` learns nothing.

    Where it is `causal` t is s and each query sees the keys up to its own, which is half the work. The logits may not
    be a view: autograd copies the gradient of one that was changed in place three times.
    """
    return _Softmax.apply(logits, added, heads, scale, causal)


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, added: Tensor | None, heads: int, scale: float, causal: bool) -> Tensor:
        n, queries, keys = logits.shape
        if causal:
            fitting("a causal row of queries and keys", logits, (n, keys, keys))
        (weights,), strides = dense(logits.dtype, logits), (0, 0, 0)
        if added is not None and logits.numel():
            (bias,) = in_rows(logits.dtype, added.expand(n // heads, heads, queries, keys))
            added, strides = bias, bias.stride()[:3]
        sizes = (n * queries, heads, queries, keys)
        call("softmax", logits.dtype, weights, added, *sizes, *strides, scale, causal)
        if weights is logits:
            ctx.mark_dirty(logits)
        ctx.scale, ctx.causal = scale, causal
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (chances,) = ctx.saved_tensors
        below, (n, queries, keys) = torch.empty_like(chances), chances.shape
        sizes = (n * queries, queries, keys)
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
    (logits,), (targets,) = dense(logits.dtype, logits), dense(torch.int64, targets)
    (own_losses,), (own_gradient,) = dense(torch.float32, losses), dense(logits.dtype, gradient)
    fitting("a row's target", targets, logits.shape[:1])
    fitting("a row's loss", losses, logits.shape[:1])
    if gradient is not None:
        fitting("the gradient", gradient, logits.shape)
    call("cross_entropy", logits.dtype, logits, targets, own_losses, own_gradient, *logits.shape, smoothing)
    if own_losses is not losses:
        losses.copy_(own_losses)
    if gradient is not None and own_gradient is not gradient:
        gradient.copy_(own_gradient)
