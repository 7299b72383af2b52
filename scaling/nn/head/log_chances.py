"""Losses of heads whose logarithms of chances exist and whose logits do not, and the type that losses are taken in."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from scaling.batch import IGNORE


def at_least_float32(logits: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def log_softmax(logits: Float[Tensor, "*n v"]) -> Float[Tensor, "*n v"]:
    return at_least_float32(logits).log_softmax(-1)


def smoothed(log_chances: Float[Tensor, "*n v"], targets: Int[Tensor, "*n"], smoothing: float) -> Float[Tensor, "*n"]:
    """−(1 − ε) log p[target] − ε mean log p, 0 where the target is IGNORE. (Szegedy et al. 2015, section 7)"""
    of_target = log_chances.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    losses = -(1 - smoothing) * of_target - smoothing * log_chances.mean(-1)
    return losses.masked_fill(targets == IGNORE, 0)
