"""Norms of a tensor's last dimension: LayerNorm, and RMSNorm, which is the same about zero."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from scaling.kernel.call import call


def layer_norm(x: Float[Tensor, "*b w"], gain: Tensor | None, bias: Tensor | None, eps: float) -> Float[Tensor, "*b w"]:
    return _Norm.apply("layer_norm", x, gain, bias, eps)


def rms_norm(x: Float[Tensor, "*b w"], gain: Tensor | None, eps: float) -> Float[Tensor, "*b w"]:
    return _Norm.apply("rms_norm", x, gain, None, eps)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str, x: Tensor, gain: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        x = x.contiguous()
        width, y = x.shape[-1], torch.empty_like(x)
        rows = x.numel() // width
        mean, inverse = x.new_empty(2, rows, dtype=torch.float32)
        call(name, x.dtype, x, gain, bias, y, mean, inverse, rows, width, eps)
        ctx.name, ctx.biased = name, bias is not None
        ctx.save_for_backward(x, gain, mean, inverse)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, gain, mean, inverse = ctx.saved_tensors
        below = torch.empty_like(x)
        at_gain = None if gain is None else torch.empty_like(gain)
        at_bias = x.new_empty(x.shape[-1]) if ctx.biased else None
        given = (upstream.contiguous(), x, gain, mean, inverse)
        call(f"{ctx.name}_backward", x.dtype, *given, below, at_gain, at_bias, len(inverse), x.shape[-1])
        return None, below, at_gain, at_bias, None
