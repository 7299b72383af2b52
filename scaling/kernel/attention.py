"""Attention of every head in one pass: the matrix of queries by keys is made a block at a time and never kept."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from scaling.kernel.call import call, fitting, in_rows
from scaling.kernel.call import serves as supported
from scaling.kernel.compiled import library


def serves(*tensors: Tensor) -> bool:
    """Whether it takes these tensors, float32 alone, and is faster on this processor than torch's operations."""
    return tensors[0].dtype is torch.float32 and supported(*tensors) and _pays()


@cache
def _pays() -> bool:
    kernels = library()
    return kernels is not None and bool(kernels.attention_pays())


def attention(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b s g d"],
    v: Float[Tensor, "b s g e"],
    added: Float[Tensor, "#b #h #t s"] | None,
    *,
    scale: float,
    causal: bool,
) -> Float[Tensor, "b t h e"]:
    """softmax(scale q kᵀ + added) v in float32; heads fewer than queries' are shared by groups, and `added` may learn.

    Where it is `causal` t is s and each query sees the keys up to its own, which is half the work.
    """
    if added is not None:
        added = added.expand(-1, -1, q.shape[1], k.shape[1])
    return _Attention.apply(q, k, v, added, scale, causal)


class _Attention(torch.autograd.Function):
    """Keeps of each row its largest logit and one over its sum, from which backward makes the weights again."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, scale: float, causal: bool) -> Tensor:
        q, k, v, added = in_rows(q.dtype, q, k, v, added)
        (b, t, h, d), (s, g), e = q.shape, k.shape[1:3], v.shape[-1]
        fitting("keys of its queries", k, (b, t if causal else s, g, d))
        fitting("values of its keys", v, (b, s, g, e))
        if h % g if g else h:
            raise ValueError(f"{g} heads of keys do not serve {h} of queries")
        if added is not None:
            added.expand(b, h, t, s)  # refuses what does not fit
        out = q.new_empty(b, t, h, e)
        tops, shares = q.new_empty(2, b, h, t)
        ctx.sizes, ctx.scale, ctx.causal = (b, t, s, h, g, d, e), scale, causal
        ctx.strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *_spread(added))
        arguments = (q, k, v, added, out, tops, shares)
        call("attention", q.dtype, *arguments, ctx.sizes, ctx.strides, scale, causal)
        ctx.save_for_backward(*arguments)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, added, *_ = saved = ctx.saved_tensors
        (upstream,) = in_rows(q.dtype, upstream)
        dq, dk, dv = (x.new_empty(x.shape) for x in (q, k, v))
        dadded = added.new_zeros(added.shape) if ctx.needs_input_grad[3] else None
        strides = (*ctx.strides, *upstream.stride()[:3], *_spread(dadded))
        gradients = (dq, dk, dv, dadded)
        call("attention_backward", q.dtype, upstream, *saved, *gradients, ctx.sizes, strides, ctx.scale, ctx.causal)
        return *gradients, None, None


def _spread(added: Tensor | None) -> tuple[int, int, int]:
    """Strides by batch, query and head; 0 where one serves all."""
    if added is None:
        return 0, 0, 0
    batch, head, query = (0 if size == 1 else stride for size, stride in zip(added.shape[:3], added.stride()[:3]))
    return batch, query, head
