from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from scaling.nn.head.class_loss import Weights, check_weights, class_loss
from scaling.nn.head.pooled import Pooled, alone
from scaling.schema import BelowOne, PositiveInt, Recipe
from scaling.shape import Shape


class Sequence(Pooled):
    """logits = φ(h U + c) W + b, h the vector that is read, by default the first token's: a class for the whole text.
    (Devlin et al. 2018) Without `activation`, logits = h W + b. (Radford et al. 2018)

    `added` adds up the vectors read of a row, as of a pair in both orders. The loss of a class counts `weights` times;
    `balanced` weights are n / (classes · n_c) of the training examples.
    """

    answer = "class"

    def __init__(
        self,
        shape: Shape,
        *,
        classes: PositiveInt,
        activation: Recipe | None = None,
        dropout: BelowOne = 0.0,
        added: bool = False,
        weights: Weights = None,
    ):
        super().__init__(shape, classes, activation, dropout, added)
        self.weights = check_weights(weights, classes)

    def forward(self, hidden: Float[Tensor, "b k w"]) -> Float[Tensor, "b ... c"]:
        return alone(self.scores(hidden))

    def loss(
        self, hidden: Float[Tensor, "b k w"], labels: Int[Tensor, "b ..."], smoothing: float = 0.0
    ) -> Float[Tensor, "b ..."]:
        return class_loss(self.scores(hidden), labels, self.weights, smoothing)


class NextSentence(Sequence):
    """Does sentence B follow sentence A? Two classes over the pooled first token. (Devlin et al. 2018)"""

    def __init__(self, shape: Shape, *, activation: Recipe, dropout: BelowOne = 0.0):
        super().__init__(shape, classes=2, activation=activation, dropout=dropout)
