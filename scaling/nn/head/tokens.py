from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.kernel.operations import drop
from scaling.nn.contract import Head
from scaling.nn.head.class_loss import Weights, check_weights, class_loss
from scaling.nn.role import declare
from scaling.schema import BelowOne, PositiveInt
from scaling.shape import Shape


class Tokens(nn.Module, Head):
    """logits = h W + b: a class for each token, as in named-entity recognition. (Devlin et al. 2018)

    The loss of a class counts `weights` times; `balanced` weights are n / (classes · n_c) of the training examples.
    """

    target, answer = "labels", "tags"

    def __init__(self, shape: Shape, *, classes: PositiveInt, dropout: BelowOne = 0.0, weights: Weights = None):
        super().__init__()
        self.out, self.dropout = declare(nn.Linear(shape.width, classes), weight="output"), dropout
        self.weights = check_weights(weights, classes)

    def forward(self, hidden: Float[Tensor, "b t w"]) -> Float[Tensor, "b t c"]:
        return self.out(drop(hidden, self.dropout, self.training))

    def loss(
        self, hidden: Float[Tensor, "b t w"], labels: Int[Tensor, "b t"], smoothing: float = 0.0
    ) -> Float[Tensor, "b t"]:
        return class_loss(self(hidden), labels, self.weights, smoothing)

    def labels_like(self, tokens: Tensor) -> Tensor:
        return tokens.new_zeros(tokens.shape)
