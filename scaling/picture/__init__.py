"""Pictures for print (PDF, SVG, PNG) and for the screen (HTML): described once, drawn by matplotlib or plotly."""

from __future__ import annotations

from scaling.picture.approaches import isoflop_valleys, learning_curves
from scaling.picture.laws import contours, extrapolation, joint_region, loss_against, residuals, sensitivity
from scaling.picture.picture import Picture, save

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
    "sensitivity",
]
