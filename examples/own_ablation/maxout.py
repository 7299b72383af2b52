"""Your own feed-forward layer. Its positional arguments are the same for every piece of the slot; its keyword-only
arguments are its keys in a config, with their types and defaults.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from scaling.base.numbers import PositiveInt
from scaling.config.shape import Shape
from scaling.model.context import Context


class Maxout(nn.Module):
    """FFN(x) = max_j (x W_j + b_j) V + c, j = 1 … `pieces`. (Goodfellow et al. 2013, section 2)"""

    slot = "channel"  # what it stands in for: `scaling explain` lists the slots

    def __init__(self, shape: Shape, *, pieces: PositiveInt = 2, bias: bool = True):
        super().__init__()
        self.pieces = pieces
        self.hidden = nn.Linear(shape.width, pieces * shape.hidden, bias)
        self.out = nn.Linear(shape.hidden, shape.width, bias)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return self.out(self.hidden(x).unflatten(-1, (self.pieces, -1)).amax(-2))
