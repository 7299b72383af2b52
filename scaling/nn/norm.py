"""Norms: what keeps the scale of a vector. Each is built for a width."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from scaling.kernel.call import serves
from scaling.kernel.norm import layer_norm, rms_norm
from scaling.number import NonNegativeFloat


class LayerNorm(nn.Module):
    """y = g ⊙ (x − mean x) / √(var x + ε) + b. (Ba et al. 2016)

    `bias: false` leaves b out (PaLM, Llama's predecessors); `gain: false` leaves g out as well as it may.
    """

    def __init__(self, width: int, *, eps: NonNegativeFloat = 1e-5, gain: bool = True, bias: bool = True):
        super().__init__()
        self.width, self.eps = (width,), eps
        self.gain = nn.Parameter(torch.ones(width)) if gain else None
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def reset_parameters(self) -> None:
        _ones(self.gain)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Float[Tensor, "*b w"]) -> Float[Tensor, "*b w"]:
        if serves(x, self.gain, self.bias):
            return layer_norm(x, self.gain, self.bias, self.eps)
        return F.layer_norm(x, self.width, self.gain, self.bias, self.eps)


class RMSNorm(nn.Module):
    """y = g ⊙ x / √(mean x² + ε). (Zhang & Sennrich 2019)"""

    def __init__(self, width: int, *, eps: NonNegativeFloat = 1e-6, gain: bool = True):
        super().__init__()
        self.width, self.eps = (width,), eps
        self.gain = nn.Parameter(torch.ones(width)) if gain else None

    def reset_parameters(self) -> None:
        _ones(self.gain)

    def forward(self, x: Float[Tensor, "*b w"]) -> Float[Tensor, "*b w"]:
        if serves(x, self.gain):
            return rms_norm(x, self.gain, self.eps)
        return F.rms_norm(x, self.width, self.gain, self.eps)


class NoNorm(nn.Module):
    """y = x: the control."""

    def __init__(self, width: int):
        super().__init__()

    def forward(self, x: Float[Tensor, "*b w"]) -> Float[Tensor, "*b w"]:
        return x


def _ones(gain: nn.Parameter | None) -> None:
    if gain is not None:
        nn.init.ones_(gain)
