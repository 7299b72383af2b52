"""φ(x) of a feed-forward layer, and φ(gate) ⊙ x of a gated one: GeLU in its tanh form, and SiLU."""

from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from scaling.kernel.call import call, dense

Phi = Literal["gelu", "silu"]


def activate(phi: Phi, x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    if torch.is_grad_enabled() and x.requires_grad:
        return _Activation.apply(phi, x)
    return _values(phi, x.contiguous(), None)


def gated(phi: Phi, gate: Float[Tensor, "*s"], x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    if gate.shape != x.shape:
        gate, x = torch.broadcast_tensors(gate, x)
    return _Gated.apply(phi, gate, x)


class _Activation(torch.autograd.Function):
    """Keeps the slope, made while φ is at hand, in place of x: backward is one multiplication."""

    @staticmethod
    def forward(ctx: Any, phi: Phi, x: Tensor) -> Tensor:
        x = x.contiguous()
        slope = torch.empty_like(x)
        ctx.save_for_backward(slope)
        return _values(phi, x, slope)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return None, upstream * slope


def _values(phi: Phi, x: Tensor, slope: Tensor | None) -> Tensor:
    values = torch.empty_like(x)
    call(phi, x.dtype, x, values, slope, x.numel())
    return values


class _Gated(torch.autograd.Function):
    """Makes φ again in backward: to keep it would take more time than to make it."""

    @staticmethod
    def forward(ctx: Any, phi: Phi, gate: Tensor, x: Tensor) -> Tensor:
        gate, x = dense(x.dtype, gate, x)
        ctx.phi = phi
        ctx.save_for_backward(gate, x)
        y = torch.empty_like(x)
        call(f"{phi}_gated", x.dtype, gate, x, y, x.numel())
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        gate, x = ctx.saved_tensors
        at_gate, at_x = torch.empty_like(gate), torch.empty_like(x)
        call(f"{ctx.phi}_gated_backward", x.dtype, upstream.contiguous(), gate, x, at_gate, at_x, x.numel())
        return None, at_gate, at_x
