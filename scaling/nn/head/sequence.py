from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.batch import IGNORE
from scaling.build import Recipe
from scaling.kernel.operations import drop
from scaling.nn.contract import Head
from scaling.nn.head.log_chances import at_least_float32
from scaling.nn.role import declare
from scaling.number import BelowOne, PositiveInt
from scaling.shape import Shape


class Sequence(nn.Module, Head):
    """logits = φ(h₁ U + c) W + b, h₁ the first token's vector: a class for the whole text. (Devlin et al. 2018)"""

    target, reads = "labels", "text"

    def __init__(self, shape: Shape, *, classes: PositiveInt, activation: Recipe, dropout: BelowOne = 0.0):
        super().__init__()
        self.pool, self.activation, self.dropout = nn.Linear(shape.width, shape.width), activation(), dropout
        self.out = declare(nn.Linear(shape.width, classes), weight="output")

    def forward(self, hidden: Float[Tensor, "b t w"]) -> Float[Tensor, "b c"]:
        return self.out(drop(self.activation(self.pool(hidden[:, 0])), self.dropout, self.training))

    def loss(
        self, hidden: Float[Tensor, "b t w"], labels: Int[Tensor, " b"], smoothing: float = 0.0
    ) -> Float[Tensor, " b"]:
        logits = at_least_float32(self(hidden))
        return F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="none", label_smoothing=smoothing)


class NextSentence(Sequence):
    """Does sentence B follow sentence A? Two classes over the pooled first token. (Devlin et al. 2018)"""

    def __init__(self, shape: Shape, *, activation: Recipe, dropout: BelowOne = 0.0):
        super().__init__(shape, classes=2, activation=activation, dropout=dropout)
