"""What 1/√d_k is for: the entropy and the gradient of attention's softmax by a head's width, with it and without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class Saturation:
    """Means over queries of softmax(s q·k) over `keys` keys, where q and k are standard normal.

    `entropy` is in nats: log `keys` where all weights are equal. `gradient` is the Frobenius norm of the derivatives of
    the weights by the logits: 0 where one weight is 1.
    """

    width: int
    scale: Literal["none", "sqrt"]
    entropy: float
    gradient: float


def saturation(widths: Sequence[int], *, keys: int = 128, queries: int = 512, seed: int = 0) -> list[Saturation]:
    """Both scales at each width: q·k has the variance d_k, so that without a scale one key takes all the weight of a
    wide head, and nothing is learned through the softmax. (Vaswani et al. 2017, section 3.2.1)
    """
    drawn = np.random.default_rng(seed)
    rows = []
    for width in widths:
        q, k = drawn.standard_normal((queries, width)), drawn.standard_normal((queries, keys, width))
        products = np.einsum("qd,qkd->qk", q, k)
        rows.append(_measured(width, "none", products))
        rows.append(_measured(width, "sqrt", products / width**0.5))
    return rows


def _measured(width: int, scale: Literal["none", "sqrt"], logits: np.ndarray) -> Saturation:
    weights = np.exp(logits - logits.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    logs = np.log(np.maximum(weights, np.finfo(float).tiny))
    squares = (weights**2).sum(1)
    # ‖diag(p) − p pᵀ‖² = Σ p² − 2 Σ p³ + (Σ p²)²
    norms = np.sqrt(np.maximum(0, squares - 2 * (weights**3).sum(1) + squares**2))
    return Saturation(width, scale, float(-(weights * logs).sum(1).mean()), float(norms.mean()))
