"""Rotary positions: the pairs of each head turned by their angles."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from scaling.kernel.call import call, dense, fitting, in_rows


def rotated(
    x: Float[Tensor, "b t h d"], cosine: Float[Tensor, "#b t half"], sine: Float[Tensor, "#b t half"]
) -> Float[Tensor, "b t h d"]:
    """(x_i c_i − x_{i+half} s_i, x_{i+half} c_i + x_i s_i), and what is beyond 2 half as it was; heads lie first."""
    return _Rotated.apply(x, cosine, sine)


class _Rotated(torch.autograd.Function):
    """The product of each head's rows comes next and needs heads first; the gradient goes back as tokens lie."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        b, t, h, d = x.shape
        cosine, sine = dense(torch.float32, cosine, sine)
        rows, _, half = shape = cosine.shape
        fitting("cosines", cosine, (1 if rows == 1 else b, t, min(half, d // 2)))
        fitting("sines", sine, shape)
        ctx.save_for_backward(cosine, sine)
        return _turn(x, x.new_empty(b, h, t, d).transpose(1, 2), cosine, sine, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        cosine, sine = ctx.saved_tensors
        return _turn(upstream, upstream.new_empty(upstream.shape), cosine, sine, -1.0), None, None


def _turn(x: Tensor, y: Tensor, cosine: Tensor, sine: Tensor, way: float) -> Tensor:
    (x,), (rows, t, half) = in_rows(x.dtype, x), cosine.shape
    strides = (*x.stride()[:3], *y.stride()[:3])
    call("rotate", x.dtype, x, y, cosine, sine, *x.shape, half, *strides, 0 if rows == 1 else t * half, way)
    return y
