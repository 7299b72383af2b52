from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from scaling.kernel.operations import drop
from scaling.nn.residual.pre import Pre
from scaling.schema import BelowOne
from scaling.shape import Shape


class GRU(Pre):
    """x + (1 − u) ⊙ y + u ⊙ c, y = f(norm(x)): a gated recurrent unit between what a branch makes and the stream.
    (Dehghani et al. 2018, the gated transition of their code; Narang et al. 2021)

    u = σ([x̂, ŷ] U), r = σ([x̂, ŷ] R), c = σ([norm'(r ⊙ x), ŷ] C), with biases, x̂ = norm'(x), ŷ = norm'(y). The unit of
    Cho et al. 2014 has tanh for the last σ and no norms, and is not added to x.
    """

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, *, dropout: BelowOne = 0.0):
        super().__init__(shape, norm, piece, dropout=dropout)
        self.gate = _Gate(shape.width, norm())

    def read(self, x: Float[Tensor, "b t w"], piece: Callable[[Tensor], Tensor]) -> Float[Tensor, "b q w"]:
        return piece(self.norm(x))

    def added(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        return drop(self.gate(x, y), self.dropout, self.training)


class _Gate(nn.Module):
    def __init__(self, width: int, norm: nn.Module):
        super().__init__()
        self.norm = norm
        self.update, self.reset, self.candidate = (nn.Linear(2 * width, width) for _ in range(3))

    def forward(self, x: Float[Tensor, "b t w"], y: Float[Tensor, "b t w"]) -> Float[Tensor, "b t w"]:
        normed = self.norm(y)
        both = torch.cat([self.norm(x), normed], -1)
        update, reset = self.update(both).sigmoid(), self.reset(both).sigmoid()
        candidate = self.candidate(torch.cat([self.norm(reset * x), normed], -1)).sigmoid()
        return (1 - update) * y + update * candidate
