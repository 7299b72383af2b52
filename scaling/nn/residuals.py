"""Residual placements: a branch is residual(norm, piece).

Each takes the shape, `norm`, a function that makes a norm of the stream's width, and the built `piece`, and is called
with the stream x and the context.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from scaling.kernel.operations import drop
from scaling.nn.context import Context
from scaling.nn.contract import Residual, role
from scaling.schema import BelowOne
from scaling.shape import Shape


class _Branch(nn.Module, Residual):
    """join(x, f(norm(x))), f the piece under dropout."""

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, *, dropout: BelowOne = 0.0):
        super().__init__()
        self.norm, self.piece, self.dropout = norm(), piece, dropout

    def forward(
        self, x: Float[Tensor, "b t w"], context: Context, asking: Callable[[Tensor], Tensor] | None = None
    ) -> Float[Tensor, "b q w"]:
        if asking is None:
            return self.join(x, self.read(x, lambda h: self.piece(h, context)))
        y = self.read(x, lambda h: self.piece(h, context, asking(h)))
        return self.join(asking(x), y)

    def read(self, x: Float[Tensor, "b t w"], piece: Callable[[Tensor], Tensor]) -> Float[Tensor, "b q w"]:
        """What the branch makes of the stream."""
        return drop(piece(self.norm(x)), self.dropout, self.training)

    @abstractmethod
    def join(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        """The stream after the branch, which made y."""


class Pre(_Branch):
    """x + f(norm(x)). (Xiong et al. 2020; GPT-2, T5)"""

    def update(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return self.added(x, self.read(x, lambda h: self.piece(h, context)))

    def join(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        return x + self.added(x, y)

    def added(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        return y


class Post(_Branch):
    """norm(x + f(x)). (Vaswani et al. 2017; BERT)"""

    def read(self, x: Float[Tensor, "b t w"], piece: Callable[[Tensor], Tensor]) -> Float[Tensor, "b q w"]:
        return drop(piece(x), self.dropout, self.training)

    def join(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        return self.norm(x + y)


class Sandwich(Pre):
    """x + norm₂(f(norm₁(x))). (Ding et al. 2021, CogView)"""

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, **common: Any):
        super().__init__(shape, norm, piece, **common)
        self.outer = norm()

    def read(self, x: Float[Tensor, "b t w"], piece: Callable[[Tensor], Tensor]) -> Float[Tensor, "b q w"]:
        return drop(self.outer(piece(self.norm(x))), self.dropout, self.training)


class NoResidual(_Branch):
    """f(norm(x)): the lectures' control, a stack without a residual stream."""

    def join(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        return y


class ReZero(Pre):
    """x + α f(norm(x)), α one number a branch that starts at 0. (Bachlechner et al. 2020, formula 4)

    The paper's has NoNorm.
    """

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, **common: Any):
        super().__init__(shape, norm, piece, **common)
        self.alpha = nn.Parameter(torch.zeros(1))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.alpha)

    def added(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        return self.alpha * y


class Fixup(Pre):
    """x + s f(norm(x) + b) + c, numbers s from 1, b and c from 0, and f from near 0. (Zhang et al. 2019, section 3.3)

    The paper's has NoNorm. The last of a branch's m matrices starts at 0, as does a head that is not tied, and each
    other at L^(−1/(2m−2)) of its usual start, L the branches of the model, a shared block's once a run. The paper
    shifts before every linear layer and activation inside f too; here those are the piece's biases.
    """

    rescales, head_start = True, 0.0

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, **common: Any):
        super().__init__(shape, norm, piece, **common)
        self.shift, self.scale, self.offset = (nn.Parameter(torch.empty(1)) for _ in range(3))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.scale)
        for shift in (self.shift, self.offset):
            nn.init.zeros_(shift)

    def starts(self, branches: int) -> Iterator[tuple[nn.Parameter, float]]:
        matrices = [
            (parameter, role(module, name))
            for module in self.piece.modules()
            if getattr(module, "slot", None) != "tuning"  # what tuning adds sets its own start
            for name, parameter in module.named_parameters(recurse=False)
            if role(module, name) != "gain"
        ]
        factor = branches ** (-1 / max(2, 2 * len(matrices) - 2))
        for parameter, own in matrices:
            yield parameter, 0.0 if own == "output" else factor

    def read(self, x: Float[Tensor, "b t w"], piece: Callable[[Tensor], Tensor]) -> Float[Tensor, "b q w"]:
        return drop(piece(self.norm(x) + self.shift), self.dropout, self.training)

    def added(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        return self.scale * y + self.offset


class GRU(Pre):
    """x + (1 − u) ⊙ y + u ⊙ c, y = f(norm(x)): a gated recurrent unit between what a branch makes and the stream.
    (Dehghani et al. 2018, the gated transition of their code; Narang et al. 2021)

    u = σ([x̂, ŷ] U), r = σ([x̂, ŷ] R), c = σ([norm'(r ⊙ x), ŷ] C), with biases, x̂ = norm'(x), ŷ = norm'(y). The unit of
    Cho et al. 2014 has tanh for the last σ and no norms, and is not added to x.
    """

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, **common: Any):
        super().__init__(shape, norm, piece, **common)
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
