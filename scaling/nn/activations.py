"""Activations φ: between the two matrices of a feed-forward layer, or on its gate."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from scaling.kernel import operations
from scaling.nn.contract import Activation


class ReLU(nn.Module, Activation):
    """φ(x) = max(0, x). (Nair & Hinton 2010; Vaswani et al. 2017)"""

    def forward(self, x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return torch.relu(x)


class GeLU(nn.Module, Activation):
    """φ(x) = x Φ(x), Φ the normal distribution function. (Hendrycks & Gimpel 2016)

    `tanh` is the paper's approximation 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))), which GPT-2 and T5 v1.1 use.
    """

    def __init__(self, *, approximate: Literal["none", "tanh"] = "none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return operations.gelu(x) if self.approximate == "tanh" else F.gelu(x)

    def times(self, gate: Float[Tensor, "*s"], x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        """φ(gate) ⊙ x."""
        return operations.gelu_gated(gate, x) if self.approximate == "tanh" else F.gelu(gate) * x


class Swish(nn.Module, Activation):
    """φ(x) = x σ(βx), with β = 1 also called SiLU. (Ramachandran et al. 2017; Elfwing et al. 2017)"""

    def __init__(self, *, beta: float = 1.0):
        super().__init__()
        self.beta = beta

    def forward(self, x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return operations.silu(x) if self.beta == 1 else x * torch.sigmoid(self.beta * x)

    def times(self, gate: Float[Tensor, "*s"], x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        """φ(gate) ⊙ x."""
        return operations.silu_gated(gate, x) if self.beta == 1 else self(gate) * x


class ELU(nn.Module, Activation):
    """φ(x) = x for x > 0, α (eˣ − 1) below. (Clevert et al. 2015)"""

    def __init__(self, *, alpha: float = 1.0):
        super().__init__()
        self.alpha = alpha

    def forward(self, x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return F.elu(x, self.alpha)


class SeLU(nn.Module, Activation):
    """φ(x) = λ ELU(x; α), with λ and α such that unit variance is a fixed point. (Klambauer et al. 2017)"""

    def forward(self, x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return F.selu(x)


class Sigmoid(nn.Module, Activation):
    """φ(x) = 1 / (1 + e⁻ˣ); with a gate this is GLU. (Dauphin et al. 2016)"""

    def forward(self, x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return torch.sigmoid(x)


class Softplus(nn.Module, Activation):
    """φ(x) = ln(1 + eˣ). (Dugas et al. 2001)"""

    def forward(self, x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return F.softplus(x)


class Tanh(nn.Module, Activation):
    """φ(x) = tanh x: BERT's pooler. (Devlin et al. 2018)"""

    def forward(self, x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return torch.tanh(x)


class Linear(nn.Module, Activation):
    """φ(x) = x; with a gate this is LiGLU, the bilinear layer. (Shazeer 2020)"""

    def forward(self, x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return x


class SquaredReLU(nn.Module, Activation):
    """φ(x) = max(0, x)². (So et al. 2021, Primer)"""

    def forward(self, x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return torch.relu(x).square()
