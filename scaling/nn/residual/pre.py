from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from scaling.kernel.operations import drop
from scaling.nn.context import Context
from scaling.nn.contract import Residual
from scaling.schema import BelowOne
from scaling.shape import Shape


class Branch(nn.Module, Residual):
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


class Pre(Branch):
    """x + f(norm(x)). (Xiong et al. 2020; GPT-2, T5)"""

    def update(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return self.added(x, self.read(x, lambda h: self.piece(h, context)))

    def join(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        return x + self.added(x, y)

    def added(self, x: Float[Tensor, "b q w"], y: Float[Tensor, "b q w"]) -> Float[Tensor, "b q w"]:
        return y
