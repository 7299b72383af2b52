from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from scaling.kernel.operations import drop
from scaling.nn.residual.pre import Branch, Pre
from scaling.schema import BelowOne
from scaling.shape import Shape


class Post(Branch):
    """norm(x + f(x)). (Vaswani et al. 2017; BERT)"""

    def read(self, x: Float[Tensor, "b t w"], piece: Callable[[Tensor], Tensor]) -> Float[Tensor, "b q w"]:
        return drop(piece(x), self.dropout, self.training)

    def join(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        return self.norm(x + y)


class Sandwich(Pre):
    """x + norm₂(f(norm₁(x))). (Ding et al. 2021, CogView)"""

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, *, dropout: BelowOne = 0.0):
        super().__init__(shape, norm, piece, dropout=dropout)
        self.outer = norm()

    def read(self, x: Float[Tensor, "b t w"], piece: Callable[[Tensor], Tensor]) -> Float[Tensor, "b q w"]:
        return drop(self.outer(piece(self.norm(x))), self.dropout, self.training)


class NoResidual(Branch):
    """f(norm(x)): the lectures' control, a stack without a residual stream."""

    def join(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        return y
