from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor

from scaling.batch import IGNORE
from scaling.nn.head.class_loss import Weights, check_weights
from scaling.nn.head.log_chances import at_least_float32
from scaling.nn.head.pooled import Pooled
from scaling.schema import BelowOne, PositiveInt, Recipe
from scaling.shape import Shape


class Classes(Pooled):
    """p = σ(φ(h U + c) W + b): which of several classes hold, each by itself. Labels are 0 or 1 for each class.

    The vectors read of a row are added up. The loss of a class counts `weights` times.
    """

    answer = "classes"

    def __init__(
        self,
        shape: Shape,
        *,
        classes: PositiveInt,
        activation: Recipe | None = None,
        dropout: BelowOne = 0.0,
        weights: Weights = None,
    ):
        super().__init__(shape, classes, activation, dropout, added=True)
        self.classes, self.weights = classes, check_weights(weights, classes)

    def forward(self, hidden: Float[Tensor, "b k w"]) -> Float[Tensor, "b c"]:
        return self.scores(hidden)[:, 0]

    def loss(
        self, hidden: Float[Tensor, "b k w"], labels: Shaped[Tensor, "b c"], smoothing: float = 0.0
    ) -> Float[Tensor, "b c"]:
        logits = at_least_float32(self(hidden))
        targets = labels.clamp(min=0).to(logits.dtype) * (1 - smoothing) + smoothing / 2
        weights = None if self.weights is None else logits.new_tensor(self.weights)
        losses = F.binary_cross_entropy_with_logits(logits, targets, weights, reduction="none")
        return losses.masked_fill(labels == IGNORE, 0)

    def labels_like(self, tokens: Tensor) -> Tensor:
        return tokens.new_zeros(len(tokens), self.classes)
