"""How far a run lies beyond the points of a fit, and whether intervals were tested that far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.law.fit import Fit
from scaling.law.points import SIZE_EXPONENTS

TESTED = 1.0
"""Decades beyond the points, along one axis, within which 95% intervals held 91% or more of the runs of published
studies (docs/coverage.md)."""
TESTED_COMPUTE = 2.0
"""The same of N times D."""


@dataclass(frozen=True)
class Extrapolation:
    """Decades beyond the points by axis: positive above the largest, negative below the smallest, none within."""

    decades: Mapping[str, float]

    @property
    def is_tested(self) -> bool:
        return all(abs(far) <= _tested(name) for name, far in self.decades.items())

    def __bool__(self) -> bool:
        return bool(self.decades)

    def __str__(self) -> str:
        def distance(far: float) -> str:
            size = f"{abs(far):.2g}"
            side = "above the largest" if far > 0 else "below the smallest"
            return f"{size} {'decade' if size == '1' else 'decades'} {side}"

        return ", ".join(f"{distance(far)} {name}" for name, far in self.decades.items())

    def to_json(self) -> dict[str, Any]:
        return {"decades_outside": dict(self.decades), "tested": self.is_tested}


def _tested(name: str) -> float:
    """Decades of this column within which the intervals were tested; a loss counts as the size that it falls with."""
    return TESTED_COMPUTE if name == "C" else TESTED * SIZE_EXPONENTS.get(name, 1.0)


def extrapolation(fit: Fit, row: Mapping[str, float]) -> Extrapolation:
    """How far the row is from the points of the fit; an axis without a logarithm has no decades."""
    columns = {name: fit.problem.columns[name] for name in fit.form.axes}
    target = {name: float(row[name]) for name in columns}
    if {"N", "D"} <= set(columns) and "C" not in columns:
        columns, target = {**columns, "C": columns["N"] * columns["D"]}, {**target, "C": target["N"] * target["D"]}
    outside = {
        name: math.log10(target[name] / (values.max() if target[name] > values.max() else values.min()))
        for name, values in columns.items()
        if values.min() > 0 and target[name] > 0 and not values.min() <= target[name] <= values.max()
    }
    return Extrapolation({name: float(np.round(far, 4)) for name, far in outside.items() if abs(far) > 1e-3})
