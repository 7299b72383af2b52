"""The loss of a class among a few: with weights of the classes, or with fewer choices in some rows than in others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from scaling.batch import IGNORE
from scaling.errors import ScalingError
from scaling.nn.head.log_chances import at_least_float32
from scaling.schema import PositiveFloat

Weights = list[PositiveFloat] | Literal["balanced"] | None


def check_weights(weights: Weights, classes: int) -> list[float] | None:
    """The weights that are given; `balanced` are those that a run takes from its training examples."""
    if weights is None or isinstance(weights, str):
        return None
    if len(weights) != classes:
        raise ScalingError(f"{len(weights)} weights of {classes} classes", key="weights", value=weights)
    return weights


def class_loss(logits: Tensor, labels: Tensor, weights: Sequence[float] | None, smoothing: float) -> Tensor:
    """The loss of each label [*n] by its logits [*n c], times the weight of its class."""
    logits = at_least_float32(logits)
    losses = F.cross_entropy(
        logits.flatten(0, -2),
        labels.flatten(),
        weight=None if weights is None else logits.new_tensor(weights),
        ignore_index=IGNORE,
        reduction="none",
        label_smoothing=smoothing,
    )
    return losses.view_as(labels)


def choice_loss(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """The loss of each label [*n] by its logits [*n k], of which those of no choice are −∞."""
    log_chances = at_least_float32(logits).log_softmax(-1)
    losses = -log_chances.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    if smoothing:
        chosen = logits != -float("inf")
        mean = log_chances.masked_fill(~chosen, 0).sum(-1) / chosen.sum(-1).clamp(min=1)
        losses = (1 - smoothing) * losses - smoothing * mean
    return losses.masked_fill(labels == IGNORE, 0)
