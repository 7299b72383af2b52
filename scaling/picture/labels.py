"""Axis labels, short numbers, and the caption that states what was counted and how."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from scaling.law.points import MEANINGS, NOT_STATED, Points

UNITS = {"C": "FLOPs", "N": "parameters", "D": "training tokens", "U": "unique tokens", "loss": "nats per token"}


def label(name: str) -> str:
    """The axis of a column: its letter and unit."""
    if name == "loss":
        return "loss (nats per token)"
    return f"{name} ({UNITS[name]})" if name in UNITS else f"{name} ({MEANINGS[name]})" if name in MEANINGS else name


def short(value: float) -> str:
    """Three digits with the letter of its thousands; powers of ten where letters end."""
    if value >= 1e15 or 0 < value < 1e-3:
        mantissa, power = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(power)}"
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size * 0.9995:  # what rounds to 1000 of one letter is 1 of the next
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def caption(points: Points, names: Iterable[str], *sentences: str) -> str:
    """Each column's stated definition, the count of runs, and further sentences."""
    stated = [f"{name}: {points.definition(name)}" for name in (*names, "loss") if name in points]
    silent = all(points.definition(name) == NOT_STATED for name in names)
    definitions = "Definitions not stated." if silent else "; ".join(stated) + "."
    source = f"{points.source}: " if points.source else ""
    return " ".join([*sentences, definitions, f"{source}{points.count()}."])


def levels(values: np.ndarray, most: int = 5) -> np.ndarray:
    """The distinct values where they are few, else as many evenly spaced, in logarithms where all are positive."""
    distinct = np.unique(values)
    if len(distinct) <= most:
        return distinct
    if distinct[0] <= 0:
        return np.linspace(distinct[0], distinct[-1], most)
    return np.geomspace(distinct[0], distinct[-1], most)
