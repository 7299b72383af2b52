"""The maps of a look for print: all heads by layer, or one head with its tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scaling.inside.look import Look
from scaling.picture import FORMATS

SIDE = 0.62
"""Inches of a small map."""


def save(seen: Look, path: Path, head: str | None = None) -> None:
    """Write a PNG, PDF or SVG, by the ending of the path."""
    from matplotlib import rc_context

    with rc_context({"font.size": 7, "pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "scaling"}):
        figure = one(seen, head) if head else every(seen)
        figure.savefig(path, dpi=160, metadata=FORMATS[path.suffix])


def every(seen: Look) -> Any:
    from matplotlib.figure import Figure

    across = max(each.heads for each in seen.maps)
    chart = Figure(figsize=(SIDE * across + 0.9, SIDE * len(seen.maps) + 0.3), layout="constrained")
    for row, (axes, name, each) in enumerate(
        zip(chart.subplots(len(seen.maps), across, squeeze=False), seen.names, seen.maps, strict=True)
    ):
        for number, ax in enumerate(axes):
            if number >= each.heads:
                ax.axis("off")
                continue
            ax.imshow(each.weights[number], cmap="Blues", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
            ax.set_xticks([])
            ax.set_yticks([])
            if row == 0:
                ax.set_title(str(number), fontsize=7)
        axes[0].set_ylabel(name, rotation=0, ha="right", va="center")
    return chart


def one(seen: Look, head: str) -> Any:
    from matplotlib.figure import Figure

    at, number = seen.at(head)
    each = seen.maps[at]
    rows, columns = (["".join(_plain(token)) for token in tokens] for tokens in (seen.rows(each), seen.columns(each)))
    chart = Figure(figsize=(1.6 + 0.16 * len(columns), 1.4 + 0.16 * len(rows)), layout="constrained")
    ax = chart.subplots()
    image = ax.imshow(each.weights[number], cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    ax.set_xticks(range(len(columns)), columns, rotation=90, parse_math=False)
    ax.set_yticks(range(len(rows)), rows, parse_math=False)
    ax.set_title(f"layer {seen.names[at]}, head {number}")
    chart.colorbar(image, ax=ax, shrink=0.6)
    return chart


def _plain(token: str) -> str:
    """A token on one line."""
    return token.replace("\n", "⏎").replace("\t", "⇥")
