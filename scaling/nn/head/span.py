from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.batch import IGNORE
from scaling.nn.contract import Head
from scaling.nn.head.log_chances import at_least_float32
from scaling.nn.role import declare
from scaling.shape import Shape


class Span(nn.Module, Head):
    """Where an answer starts and ends: softmax over positions of h·s and of h·e. (Devlin et al. 2018, SQuAD)"""

    target = "labels"

    def __init__(self, shape: Shape):
        super().__init__()
        self.out = declare(nn.Linear(shape.width, 2), weight="output")

    def forward(self, hidden: Float[Tensor, "b t w"]) -> Float[Tensor, "b 2 t"]:
        return self.out(hidden).transpose(1, 2)

    def loss(
        self, hidden: Float[Tensor, "b t w"], labels: Int[Tensor, "b 2"], smoothing: float = 0.0
    ) -> Float[Tensor, " b"]:
        logits = at_least_float32(self(hidden)).flatten(0, 1)
        losses = F.cross_entropy(
            logits, labels.flatten(), ignore_index=IGNORE, reduction="none", label_smoothing=smoothing
        )
        return losses.view(-1, 2).mean(1)
