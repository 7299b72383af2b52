"""Dropout that costs nothing when it is off."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def drop(x: Tensor, rate: float, training: bool) -> Tensor:
    """x ⊙ m / (1 − p), m a mask that is 0 with probability p. (Srivastava et al. 2014)"""
    return F.dropout(x, rate) if training and rate > 0 else x
