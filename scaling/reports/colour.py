"""Colours on the page: those of the pictures as they are on white, and their counterparts on black."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

# OKLab (Ottosson 2020): from linear sRGB to the cones' responses, and from their cube roots to lightness and hue.
_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
LIGHT, DARK = (0.25, 0.83), (0.93, 0.58)
"""Lightness from the darkest to the palest ink on white, and where each end goes on black: the order is kept."""


def counterpart(colour: str) -> str:
    """The colour of the same hue with the contrast to black that `colour` has to white."""
    rgb = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lab = _LAB @ np.cbrt(_CONES @ linear)
    lab[0] = np.interp(lab[0], LIGHT, DARK)
    linear = np.clip(np.linalg.solve(_CONES, np.linalg.solve(_LAB, lab) ** 3), 0, 1)
    shown = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    red, green, blue = (round(float(255 * part)) for part in shown)
    return f"#{red:02x}{green:02x}{blue:02x}"


def name(colour: str) -> str:
    """The class under which a style sheet knows a colour."""
    return f"c{colour[1:].lower()}"


def rules(colours: Iterable[str]) -> str:
    """The style sheet of these colours, on white, on black, and white again on paper."""
    distinct = sorted({colour.lower() for colour in colours})
    light = "".join(f".{name(colour)}{{--c:{colour}}}" for colour in distinct)
    dark = "".join(f".{name(colour)}{{--c:{counterpart(colour)}}}" for colour in distinct)
    return f"{light}@media screen and (prefers-color-scheme:dark){{{dark}}}"
