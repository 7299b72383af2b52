"""−log softmax(h Wᵀ + b)[target], the loss of a linear head over a vocabulary."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from scaling.batch import IGNORE


def cross_entropy(
    hidden: Float[Tensor, "n w"],
    weight: Float[Tensor, "v w"],
    bias: Float[Tensor, " v"] | None,
    targets: Int[Tensor, " n"],
    smoothing: float = 0.0,
) -> Float[Tensor, " n"]:
    """The loss of each row in nats, 0 where the target is IGNORE, in float32 or better."""
    logits = F.linear(hidden, weight, bias)
    logits = logits if logits.dtype.itemsize >= 4 else logits.float()
    return F.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="none", label_smoothing=smoothing)
