from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from scaling.kernel.operations import drop
from scaling.nn.residual.pre import Pre
from scaling.nn.role import role
from scaling.schema import BelowOne
from scaling.shape import Shape


class ReZero(Pre):
    """x + α f(norm(x)), α one number a branch that starts at 0. (Bachlechner et al. 2020, formula 4)

    The paper's has NoNorm.
    """

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, *, dropout: BelowOne = 0.0):
        super().__init__(shape, norm, piece, dropout=dropout)
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

    def __init__(self, shape: Shape, norm: Callable[[], nn.Module], piece: nn.Module, *, dropout: BelowOne = 0.0):
        super().__init__(shape, norm, piece, dropout=dropout)
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
