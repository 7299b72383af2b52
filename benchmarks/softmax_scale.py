"""The entropy of attention's softmax and its gradient by the width of a head, with and without 1/√d_k: a figure.

python benchmarks/softmax_scale.py [--to docs/results/inside/softmax_scale.svg]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
NAMES = {"none": "q·k", "sqrt": "q·k / √d_k"}
COLOURS = {"none": "#cc6677", "sqrt": "#4477aa"}


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=Path("docs/results/inside/softmax_scale.svg"))
    options = parser.parse_args()
    rows = saturation(WIDTHS)
    chart = Figure(figsize=(7.2, 2.6), layout="constrained")
    for ax, measure, title in zip(
        chart.subplots(1, 2),
        ("entropy", "gradient"),
        ("entropy of the weights, nats", "norm of the gradient by the logits"),
    ):
        for scale, name in NAMES.items():
            own = [row for row in rows if row.scale == scale]
            ax.plot(
                [row.width for row in own], [getattr(row, measure) for row in own], color=COLOURS[scale], label=name
            )
        ax.set(xscale="log", xlabel="d_k", title=title, ylim=(0, None))
        ax.spines[["top", "right"]].set_visible(False)
    chart.axes[0].legend(frameon=False)
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "scaling"}):
        chart.savefig(options.to, metadata={"Date": None})
    for row in rows:
        print(f"{row.width:>4} {row.scale:<5} entropy {row.entropy:.3f} gradient {row.gradient:.4f}")


if __name__ == "__main__":
    main()
