"""Colours that survive colour-blindness and a grey printer, and symbols and dashes that survive without colour.

Ordered quantities (sizes, budgets) run along cividis (Nuñez et al. 2018, arXiv 1712.01662), whose lightness is even and
which looks alike to most kinds of colour vision. Kinds are the palette of Okabe and Ito, each with a symbol and a dash.
"""

from __future__ import annotations

import numpy as np

BLACK = "#000000"
GREY = "#767676"

KINDS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
SYMBOLS = ("circle", "square", "triangle", "diamond", "cross", "star")
OPACITY = {"dark": 0.18, "light": 0.08}
"""Of bands: the light one is behind the dark one."""
DASHES = ("solid", "dashed", "dashdot", "dotted", "solid", "dashed")

# Seven stations of cividis between its ends; the last, palest tenth is left out, since it fades on white.
_STATIONS = (
    (0, 34, 78),
    (33, 57, 109),
    (76, 85, 107),
    (108, 110, 114),
    (142, 137, 120),
    (180, 166, 107),
    (217, 194, 79),
)


def ordered(values: np.ndarray) -> tuple[str, ...]:
    """A colour for each value, by its place between the least and the largest; in logarithms where all are positive."""
    places = np.asarray(values, float)
    places = np.log(places) if places.min() > 0 else places
    span = np.ptp(places)
    place = (places - places.min()) / span if span > 0 else np.zeros_like(places)
    return tuple(map(colour_at, place))


def colour_at(place: float) -> str:
    """The colour at a place from 0 (dark) to 1 (light)."""
    stations = np.array(_STATIONS, float)
    at = np.linspace(0, 1, len(stations))
    red, green, blue = (round(float(np.interp(place, at, stations[:, channel]))) for channel in range(3))
    return f"#{red:02x}{green:02x}{blue:02x}"
