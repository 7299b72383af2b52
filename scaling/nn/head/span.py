from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.nn.contract import Head
from scaling.nn.head.class_loss import choice_loss
from scaling.nn.role import declare
from scaling.shape import Shape


class Span(nn.Module, Head):
    """Where an answer starts and ends: softmax over positions of h·s and of h·e. (Devlin et al. 2018, SQuAD)

    Padding, whose vectors arrive as 0, has no chance, so that a loss does not depend on how far a batch is filled.
    """

    target, answer, omits_padding = "labels", "span", True

    def __init__(self, shape: Shape):
        super().__init__()
        self.out = declare(nn.Linear(shape.width, 2), weight="output")

    def forward(self, hidden: Float[Tensor, "b t w"]) -> Float[Tensor, "b 2 t"]:
        absent = (hidden == 0).all(-1)
        absent = absent & ~absent.all(-1, keepdim=True)
        return self.out(hidden).transpose(1, 2).masked_fill(absent[:, None], -float("inf"))

    def loss(
        self, hidden: Float[Tensor, "b t w"], labels: Int[Tensor, "b 2"], smoothing: float = 0.0
    ) -> Float[Tensor, "b 2"]:
        return choice_loss(self(hidden), labels, smoothing)

    def labels_like(self, tokens: Tensor) -> Tensor:
        return tokens.new_zeros(len(tokens), 2)
