"""Norms: what keeps the scale of a vector. Each is built for a width."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from scaling.kernel.operations import layer_norm, rms_norm
from scaling.nn.contract import Norm
from scaling.schema import NonNegativeFloat


class _Gained(nn.Module, Norm):
    """The gain g of a norm: a parameter from 1, w of g = 1 + w from 0, or none."""

    def __init__(self, width: int, gain: bool | Literal["zero_centered"]):
        super().__init__()
        self.around = 1.0 if gain == "zero_centered" else 0.0
        self.gain = nn.Parameter(torch.full((width,), 1 - self.around)) if gain else None

    def reset_parameters(self) -> None:
        if self.gain is not None:
            nn.init.constant_(self.gain, 1 - self.around)

    def _whole(self) -> Tensor | None:
        return self.gain if self.gain is None or not self.around else self.gain + self.around


class LayerNorm(_Gained):
    """y = g ⊙ (x − mean x) / √(var x + ε) + b. (Ba et al. 2016)

    `bias: false` leaves b out (PaLM, Llama's predecessors); `gain: false` leaves g out as well as it may, and `gain:
    zero_centered` is g = 1 + w with w from 0, as in RMSNorm.
    """

    def __init__(
        self,
        width: int,
        *,
        eps: NonNegativeFloat = 1e-5,
        gain: bool | Literal["zero_centered"] = True,
        bias: bool = True,
    ):
        super().__init__(width, gain)
        self.eps = eps
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Float[Tensor, "*b w"]) -> Float[Tensor, "*b w"]:
        return layer_norm(x, self._whole(), self.bias, self.eps)


class RMSNorm(_Gained):
    """y = g ⊙ x / √(mean x² + ε). (Zhang & Sennrich 2019)

    `gain: zero_centered` is g = 1 + w with w from 0 (Gemma), which weight decay pulls towards g = 1 and not 0.
    """

    def __init__(self, width: int, *, eps: NonNegativeFloat = 1e-6, gain: bool | Literal["zero_centered"] = True):
        super().__init__(width, gain)
        self.eps = eps

    def forward(self, x: Float[Tensor, "*b w"]) -> Float[Tensor, "*b w"]:
        return rms_norm(x, self._whole(), self.eps)


class NoNorm(nn.Module, Norm):
    """y = x: the control."""

    def __init__(self, width: int):
        super().__init__()

    def forward(self, x: Float[Tensor, "*b w"]) -> Float[Tensor, "*b w"]:
        return x
