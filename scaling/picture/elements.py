"""The elements of a picture: panels of marks, lines, bands and contours, independent of what draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from scaling.picture.palette import BLACK


@dataclass(frozen=True)
class Marks:
    """Observed points. Hollow ones were not used by the fit."""

    x: np.ndarray
    y: np.ndarray
    colour: str | tuple[str, ...] = BLACK
    label: str = ""
    symbol: str = "circle"
    hollow: bool = False
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    names: tuple[str, ...] = ()
    """Shown on hovering, one a point."""


@dataclass(frozen=True)
class Line:
    """A fitted or derived curve."""

    x: np.ndarray
    y: np.ndarray
    colour: str = BLACK
    label: str = ""
    dash: Literal["solid", "dashed", "dotted", "dashdot"] = "solid"
    wide: float = 1.4


@dataclass(frozen=True)
class Band:
    """An interval around a curve; the caption names it."""

    x: np.ndarray
    low: np.ndarray
    high: np.ndarray
    colour: str = BLACK
    label: str = ""
    shade: Literal["dark", "light"] = "dark"


@dataclass(frozen=True)
class Contours:
    """Lines of equal height over a grid: `z[i, j]` at `y[i]`, `x[j]`."""

    x: np.ndarray
    y: np.ndarray
    z: np.ndarray
    levels: np.ndarray
    avoid: tuple[np.ndarray, np.ndarray]
    """x and y of what the heights written along the lines must not cover."""


@dataclass(frozen=True)
class Axis:
    """A quantity and its unit; logarithmic where it spans decades."""

    label: str
    log: bool = False
    range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Panel:
    x: Axis
    y: Axis
    parts: tuple[Marks | Line | Band | Contours, ...]
    title: str = ""
    legend: str = ""
    """Title of the legend; there is one where a part has a label."""


@dataclass(frozen=True, repr=False)
class Sheet:
    """Panels side by side over a caption that states the definitions and the count of runs."""

    panels: tuple[Panel, ...]
    caption: str
    title: str = ""
