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


def save(picture: Picture, *paths: str | Path) -> list[Path]:
    """Draw to files; a suffix says how. What is printed is laid out once for all of them."""
    found = [Path(path) for path in paths]
    for path in found:
        if path.suffix not in (*PRINTED, ".html"):
            mend = "choose .pdf, .svg, .png or .html"
            raise ScalingError("is no kind of picture", key="suffix", value=path.suffix, file=path, mend=mend)
        path.parent.mkdir(parents=True, exist_ok=True)
    printed = [path for path in found if path.suffix in PRINTED]
    if printed:
        from scaling.law.picture import still

        still.save(picture, printed)
    for path in found:
        if path not in printed:
            from scaling.law.picture import interactive

            interactive.save(picture, path)
    return found
