"""Norms of a tensor's last dimension: LayerNorm, and RMSNorm, which is the same about zero."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from scaling.kernel.call import call, dense, fitting


def layer_norm(x: Float[Tensor, "*b w"], gain: Tensor | None, bias: Tensor | None, eps: float) -> Float[Tensor, "*b w"]:
    return _Norm.apply("layer_norm", x, gain, bias, eps)


def rms_norm(x: Float[Tensor, "*b w"], gain: Tensor | None, eps: float) -> Float[Tensor, "*b w"]:
    return _Norm.apply("rms_norm", x, gain, None, eps)


class _Norm(torch.autograd.Function):
    """Where the sums of a row overflow torch's own operation takes over: what is NaN then depends on its order."""

    @staticmethod
    def forward(ctx: Any, name: str, x: Tensor, gain: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        x, gain, bias = dense(x.dtype, x, gain, bias)
        shape, y = x.shape, torch.empty_like(x)
        rows, width = shape[:-1].numel(), shape[-1]
        for learned in (gain, bias):
            if learned is not None and learned.numel() != width:
                fitting("a norm's gain or bias", learned, (width,))
        mean, inverse = x.new_empty(2, rows, dtype=torch.float32)
        given = (x, gain, bias, y, mean, inverse, rows, width, eps)
        ctx.overflows = call(name, x.dtype, *given, returns=ctypes.c_int64)
        ctx.name, ctx.eps = name, eps
        ctx.save_for_backward(x, gain, bias, mean, inverse)
        return _plain(name, x, gain, bias, eps) if ctx.overflows else y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, gain, bias, mean, inverse = ctx.saved_tensors
        below = [None if tensor is None else torch.empty_like(tensor) for tensor in (x, gain, bias)]
        given = (upstream.contiguous(), x, gain, mean, inverse, *below, len(inverse), x.shape[-1])
        if ctx.overflows or call(f"{ctx.name}_backward", x.dtype, *given, returns=ctypes.c_int64):
            below = _plain_backward(ctx.name, x, gain, bias, ctx.eps, upstream)
        return None, *below, None


def _plain(name: str, x: Tensor, gain: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    if name == "rms_norm":
        return F.rms_norm(x, x.shape[-1:], gain, eps)
    return F.layer_norm(x, x.shape[-1:], gain, bias, eps)


def _plain_backward(
    name: str, x: Tensor, gain: Tensor | None, bias: Tensor | None, eps: float, upstream: Tensor
) -> list[Tensor | None]:
    leaves: list[Any] = [None if tensor is None else tensor.detach().requires_grad_() for tensor in (x, gain, bias)]
    with torch.enable_grad():
        y = _plain(name, leaves[0], leaves[1], leaves[2], eps)
    gradients = iter(torch.autograd.grad(y, [leaf for leaf in leaves if leaf is not None], upstream))
    return [None if leaf is None else next(gradients) for leaf in leaves]
