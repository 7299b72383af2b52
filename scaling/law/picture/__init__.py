"""Pictures for print (PDF, SVG, PNG) and for the screen (HTML): described once, drawn by matplotlib or plotly."""

from __future__ import annotations

from pathlib import Path

from scaling.errors import ScalingError
from scaling.law.picture.curves import isoflop_valleys, learning_curves
from scaling.law.picture.laws import contours, extrapolation, joint_region, loss_against, residuals
from scaling.law.picture.parts import Picture

__all__ = [
    "Picture",
    "contours",
    "extrapolation",
    "isoflop_valleys",
    "joint_region",
    "learning_curves",
    "loss_against",
    "residuals",
    "save",
]

PRINTED = (".pdf", ".svg", ".png")


def save(picture: Picture, path: str | Path) -> Path:
    """Draw to a file; its suffix says how."""
    path = Path(path)
    if path.suffix in PRINTED:
        from scaling.law.picture.still import save as draw
    elif path.suffix == ".html":
        from scaling.law.picture.interactive import save as draw
    else:
        raise ScalingError(
            "is no kind of picture", key="suffix", value=path.suffix, file=path, mend="choose .pdf, .svg, .png or .html"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    draw(picture, path)
    return path
