"""Residual placements: a branch is residual(norm, piece).

Each takes `norm`, a function that makes a norm of the stream's width, and the built `piece`, and is called with the
stream x and the context. Those that only add to the stream say what they add (`update`), so that branches can run in
parallel.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from scaling.nn.context import Context
from scaling.nn.dropout import drop


class Pre(nn.Module):
    """x + f(norm(x)). (Xiong et al. 2020; GPT-2, T5)"""

    def __init__(self, norm: Callable[[], nn.Module], piece: nn.Module, *, dropout: float = 0.0):
        super().__init__()
        self.norm, self.piece, self.dropout = norm(), piece, dropout

    def update(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return drop(self.piece(self.norm(x), context), self.dropout, self.training)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return x + self.update(x, context)


class Post(nn.Module):
    """norm(x + f(x)). (Vaswani et al. 2017; BERT)"""

    def __init__(self, norm: Callable[[], nn.Module], piece: nn.Module, *, dropout: float = 0.0):
        super().__init__()
        self.norm, self.piece, self.dropout = norm(), piece, dropout

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return self.norm(x + drop(self.piece(x, context), self.dropout, self.training))


class Sandwich(nn.Module):
    """x + norm₂(f(norm₁(x))). (Ding et al. 2021, CogView)"""

    def __init__(self, norm: Callable[[], nn.Module], piece: nn.Module, *, dropout: float = 0.0):
        super().__init__()
        self.norm, self.piece, self.outer, self.dropout = norm(), piece, norm(), dropout

    def update(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return drop(self.outer(self.piece(self.norm(x), context)), self.dropout, self.training)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return x + self.update(x, context)


class NoResidual(nn.Module):
    """f(norm(x)): the lectures' control, a stack without a residual stream."""

    def __init__(self, norm: Callable[[], nn.Module], piece: nn.Module, *, dropout: float = 0.0):
        super().__init__()
        self.norm, self.piece, self.dropout = norm(), piece, dropout

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return drop(self.piece(self.norm(x), context), self.dropout, self.training)
