"""Heads before tokens, and back."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from scaling.kernel.call import call


def turned(x: Float[Tensor, "a b c d"]) -> Float[Tensor, "a c b d"]:
    """x.transpose(1, 2) without gaps; where it lies so already nothing moves."""
    there = x.transpose(1, 2)
    return there if there.is_contiguous() else _Turned.apply(x)


class _Turned(torch.autograd.Function):
    """Its gradient is turned back by the same kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _turned(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        return _turned(upstream)


def _turned(x: Tensor) -> Tensor:
    x = x if x.stride(-1) == 1 else x.contiguous()
    (a, b, c, d), size = x.shape, x.itemsize
    made = x.new_empty(a, c, b, d)
    call("turn", None, x, made, a, b, c, d * size, *(stride * size for stride in x.stride()[:3]))
    return made
