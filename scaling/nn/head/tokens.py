from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.batch import IGNORE
from scaling.kernel.operations import drop
from scaling.nn.contract import Head
from scaling.nn.head.log_chances import at_least_float32
from scaling.nn.role import declare
from scaling.number import BelowOne, PositiveInt
from scaling.shape import Shape


class Tokens(nn.Module, Head):
    """logits = h W + b: a class for each token, as in named-entity recognition. (Devlin et al. 2018)"""

    target = "targets"

    def __init__(self, shape: Shape, *, classes: PositiveInt, dropout: BelowOne = 0.0):
        super().__init__()
        self.out, self.dropout = declare(nn.Linear(shape.width, classes), weight="output"), dropout

    def forward(self, hidden: Float[Tensor, "b t w"]) -> Float[Tensor, "b t c"]:
        return self.out(drop(hidden, self.dropout, self.training))

    def loss(
        self, hidden: Float[Tensor, "b t w"], targets: Int[Tensor, "b t"], smoothing: float = 0.0
    ) -> Float[Tensor, "b t"]:
        logits = at_least_float32(self(hidden)).flatten(0, 1)
        losses = F.cross_entropy(
            logits, targets.flatten(), ignore_index=IGNORE, reduction="none", label_smoothing=smoothing
        )
        return losses.view_as(targets)
