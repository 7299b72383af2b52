"""Residual placements: a branch is residual(norm, piece).

Each takes the shape, `norm`, a function that makes a norm of the stream's width, and the built `piece`, and is called
with the stream x and the context. Those that only add to the stream say what they add (`update`), so that branches can
run in parallel.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from scaling.nn.context import Context
from scaling.nn.dropout import drop
from scaling.number import BelowOne
from scaling.shape import Shape


class Pre(nn.Module):
    """x + f(norm(x)). (Xiong et al. 2020; GPT-2, T5)"""

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, *, dropout: BelowOne = 0.0):
        super().__init__()
        self.norm, self.piece, self.dropout = norm(), piece, dropout

    def update(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b q w"]:
        return drop(self.piece(self.norm(x), context), self.dropout, self.training)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b q w"]:
        y = self.update(x, context)
        return context.beside(x, y) + y


class Post(nn.Module):
    """norm(x + f(x)). (Vaswani et al. 2017; BERT)"""

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, *, dropout: BelowOne = 0.0):
        super().__init__()
        self.norm, self.piece, self.dropout = norm(), piece, dropout

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b q w"]:
        y = drop(self.piece(x, context), self.dropout, self.training)
        return self.norm(context.beside(x, y) + y)


class Sandwich(nn.Module):
    """x + norm₂(f(norm₁(x))). (Ding et al. 2021, CogView)"""

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, *, dropout: BelowOne = 0.0):
        super().__init__()
        self.norm, self.piece, self.outer, self.dropout = norm(), piece, norm(), dropout

    def update(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b q w"]:
        return drop(self.outer(self.piece(self.norm(x), context)), self.dropout, self.training)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b q w"]:
        y = self.update(x, context)
        return context.beside(x, y) + y


class NoResidual(nn.Module):
    """f(norm(x)): the lectures' control, a stack without a residual stream."""

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, *, dropout: BelowOne = 0.0):
        super().__init__()
        self.norm, self.piece, self.dropout = norm(), piece, dropout

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b q w"]:
        return drop(self.piece(self.norm(x), context), self.dropout, self.training)


class ReZero(nn.Module):
    """x + α f(norm(x)), α one number a branch that starts at 0. (Bachlechner et al. 2020, formula 4)

    The paper's has NoNorm.
    """

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, *, dropout: BelowOne = 0.0):
        super().__init__()
        self.norm, self.piece, self.dropout = norm(), piece, dropout
        self.alpha = nn.Parameter(torch.zeros(1))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.alpha)

    def update(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b q w"]:
        return self.alpha * drop(self.piece(self.norm(x), context), self.dropout, self.training)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b q w"]:
        y = self.update(x, context)
        return context.beside(x, y) + y


class Fixup(nn.Module):
    """x + s f(norm(x) + b) + c, numbers s from 1, b and c from 0, and f from near 0. (Zhang et al. 2019, section 3.3)

    The paper's has NoNorm. The last of a branch's m matrices starts at 0, as does a head that is not tied, and each
    other at L^(−1/(2m−2)) of its usual start, L the branches of the model, a shared block's once a run. The paper
    shifts before every linear layer and activation inside f too; here those are the piece's biases.
    """

    head_start = 0.0

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, *, dropout: BelowOne = 0.0):
        super().__init__()
        self.norm, self.piece, self.dropout = norm(), piece, dropout
        self.shift, self.scale, self.offset = (nn.Parameter(torch.empty(1)) for _ in range(3))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.scale)
        for shift in (self.shift, self.offset):
            nn.init.zeros_(shift)

    def starts(self, branches: int) -> dict[str, float]:
        """The factor on the start of each matrix of the piece, in a model of so many branches."""
        matrices = [name for name, parameter in self.piece.named_parameters() if parameter.ndim > 1]
        factor = branches ** (-1 / max(2, 2 * len(matrices) - 2))
        return {name: 0.0 if name.endswith("out.weight") else factor for name in matrices}

    def update(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b q w"]:
        y = drop(self.piece(self.norm(x) + self.shift, context), self.dropout, self.training)
        return self.scale * y + self.offset

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b q w"]:
        y = self.update(x, context)
        return context.beside(x, y) + y


class GRU(nn.Module):
    """x + (1 − u) ⊙ y + u ⊙ c, y = f(norm(x)): a gated recurrent unit between what a branch says and the stream.
    (Dehghani et al. 2018, the gated transition of their code; Narang et al. 2021)

    u = σ([x̂, ŷ] U), r = σ([x̂, ŷ] R), c = σ([norm'(r ⊙ x), ŷ] C), with biases, x̂ = norm'(x), ŷ = norm'(y). The unit of
    Cho et al. 2014 has tanh for the last σ and no norms, and is not added to x.
    """

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, *, dropout: BelowOne = 0.0):
        super().__init__()
        self.norm, self.piece, self.gate, self.dropout = norm(), piece, _Gate(shape.width, norm()), dropout

    def update(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b q w"]:
        y = self.piece(self.norm(x), context)
        return drop(self.gate(context.beside(x, y), y), self.dropout, self.training)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b q w"]:
        y = self.update(x, context)
        return context.beside(x, y) + y


class _Gate(nn.Module):
    def __init__(self, width: int, norm: nn.Module):
        super().__init__()
        self.norm = norm
        self.update, self.reset, self.candidate = (nn.Linear(2 * width, width) for _ in range(3))

    def forward(self, x: Float[Tensor, "b t w"], y: Float[Tensor, "b t w"]) -> Float[Tensor, "b t w"]:
        said = self.norm(y)
        both = torch.cat([self.norm(x), said], -1)
        update, reset = self.update(both).sigmoid(), self.reset(both).sigmoid()
        candidate = self.candidate(torch.cat([self.norm(reset * x), said], -1)).sigmoid()
        return (1 - update) * y + update * candidate
