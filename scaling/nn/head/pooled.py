from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from scaling.kernel.operations import drop
from scaling.nn.contract import Head
from scaling.nn.role import declare
from scaling.schema import Recipe
from scaling.shape import Shape


class Pooled(nn.Module, Head):
    """y = φ(h U + c) A + b of every vector that a head of the whole text reads (BERT's pooler, Devlin et al. 2018), or
    y = h A + b without φ (Radford et al. 2018). `added` adds the vectors of a row up first.
    """

    target, reads = "labels", "text"

    def __init__(self, shape: Shape, outputs: int, activation: Recipe | None, dropout: float, added: bool = False):
        super().__init__()
        self.added, self.dropout = added, dropout
        self.activation: Callable[..., Any] | None = None
        if activation is not None:
            self.pool, self.activation = nn.Linear(shape.width, shape.width), activation()
        self.out = declare(nn.Linear(shape.width, outputs), weight="output")

    def scores(self, hidden: Float[Tensor, "b k w"]) -> Float[Tensor, "b j c"]:
        """[b k c], or [b 1 c] where the vectors are added up."""
        if self.added:
            hidden = hidden.sum(1, keepdim=True)
        if self.activation is not None:
            hidden = self.activation(self.pool(hidden))
        return self.out(drop(hidden, self.dropout, self.training))


def alone(scores: Tensor) -> Tensor:
    """[b …] of [b 1 …]: where one vector is read, a row has one prediction and not a list of one."""
    return scores.squeeze(1)
