"""The entropy of attention's softmax and its gradient by the width of a head, with and without 1/√d_k: a figure.

python benchmarks/softmax_scale.py [--to docs/results/inside/softmax_scale.svg]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from scaling.inside.heads import saturation

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
NAMES = {"none": "q·k", "sqrt": "q·k / √d_k"}
COLOURS = {"none": "#cc6677", "sqrt": "#4477aa"}


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
