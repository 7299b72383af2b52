"""Depthwise convolution over tokens, with the same taps at all places or every token's own."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from scaling.kernel.call import call, dense, fitting


def depthwise(
    x: Float[Tensor, "b s w"], taps: Float[Tensor, "*bt k w"], seen: Float[Tensor, "#b t k"] | None
) -> Float[Tensor, "b t w"]:
    """y_t = Σ_j taps_j ⊙ x_{t+j}, of the neighbours that are seen; s is t and the k − 1 tokens around."""
    if taps.ndim > 2:
        taps = taps.expand(len(x), x.shape[1] - taps.shape[-2] + 1, -1, -1)
    return _Depthwise.apply(x, taps, seen)


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, taps: Tensor, seen: Tensor | None) -> Tensor:
        x, taps, seen = dense(x.dtype, x, taps, seen)
        (b, s, w), k = x.shape, taps.shape[-2]
        t = s - k + 1
        fitting("every tap", taps, (*taps.shape[:-1], w))
        if seen is not None:
            fitting("who is seen", seen, (1 if len(seen) == 1 else b, t, k))
        batch, token = (0, 0) if taps.ndim == 2 else (t * k * w, k * w)
        ctx.shape = (b, t, k, w, batch, token, 0 if seen is None or len(seen) == 1 else t * k)
        ctx.save_for_backward(x, taps, seen)
        y = x.new_empty(b, t, w)
        call("depthwise", x.dtype, x, taps, seen, y, ctx.shape)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, taps, seen = ctx.saved_tensors
        dx, dtaps = torch.empty_like(x), torch.empty_like(taps)
        call("depthwise_backward", x.dtype, upstream.contiguous(), x, taps, seen, dx, dtaps, ctx.shape)
        return dx, dtaps, None
