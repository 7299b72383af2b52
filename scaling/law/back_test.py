"""The back-test of a fit: leave out the largest runs of its own points, predict them, and count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.errors import ScalingError
from scaling.law.fit import Fit
from scaling.law.held_out import judge
from scaling.law.two_step import TwoStep

SHARES = (0.2, 0.4)
"""Of the points, the largest by one axis, that are left out."""
POINTS_A_PARAMETER = 3
STARTS = 256


@dataclass(frozen=True)
class BackTest:
    """The largest runs by one axis, predicted from the smaller ones."""

    axis: str
    smallest: float
    """The smallest value of the axis that is left out."""
    runs: int
    decades: float
    """How far beyond the points the furthest run lies along the axis."""
    mean_absolute_relative_error: float
    bias: float
    """The mean of predicted over observed, less one; like the relative error not finite where a score is 0."""
    mean_absolute_error: float
    mean_error: float
    """The mean of predicted less observed."""
    inside: int
    level: float
    law: str
    """The law that predicts: where a law was chosen by what it predicts, the choice has not seen these runs either."""

    def to_json(self) -> dict[str, Any]:
        return {
            "axis": self.axis,
            "from": self.smallest,
            "runs": self.runs,
            "decades_outside": self.decades,
            "mean_absolute_relative_error": self.mean_absolute_relative_error,
            "bias": self.bias,
            "mean_absolute_error": self.mean_absolute_error,
            "mean_error": self.mean_error,
            "covered": self.inside / self.runs,
            "level": self.level,
            "law": self.law,
        }


Refit = Callable[[np.ndarray], Fit | TwoStep]
"""A fit to the points outside a mask."""


def back_test(fit: Fit | TwoStep, level: float = 0.95, refit: Refit | None = None) -> list[BackTest]:
    """For each axis of the law, and for compute, the largest fifth and the largest two fifths of the fitted points.

    `refit` fits the points that are left, by default the same law; for a law that was chosen it chooses again.
    Refits that leave fewer than three points for each parameter, or that do not converge, are left out.
    """
    tests = []
    for axis, values in _axes(fit):
        for share in SHARES:
            ordered = np.sort(values)
            smallest = ordered[-max(1, round(share * len(values)))]
            left_out = values >= smallest * (1.0 - 1e-9)
            if (~left_out).sum() < POINTS_A_PARAMETER * fit.parameters_fitted:
                continue
            if tests and (tests[-1].axis, tests[-1].runs) == (axis, int(left_out.sum())):
                continue
            try:
                smaller = fit.without(left_out, STARTS) if refit is None else refit(left_out)
                tests.append(_test(fit, smaller, axis, float(smallest), left_out, level))
            except ScalingError:
                continue
    return tests


def _axes(fit: Fit | TwoStep) -> Iterator[tuple[str, np.ndarray]]:
    """The columns that are sizes, in the order of the table's rows."""
    columns = {name: fit.points.numbers(name) for name in fit.form.axes}
    if {"N", "D"} <= set(columns) and "C" not in columns:
        columns["C"] = columns["N"] * columns["D"]
    return ((name, values) for name, values in columns.items() if values.min() > 0)


def _test(
    fit: Fit | TwoStep, smaller: Fit | TwoStep, axis: str, smallest: float, left_out: np.ndarray, level: float
) -> BackTest:
    judged = judge(smaller, fit.points.hold_out(left_out)[1], level, "t")
    furthest = max(prediction.extrapolation.decades.get(axis, 0.0) for prediction in judged.predictions)
    errors = judged.relative_errors
    return BackTest(
        axis,
        smallest,
        len(errors),
        furthest,
        float(np.mean(np.abs(errors))),
        float(np.mean(errors)),
        float(np.mean(np.abs(judged.errors))),
        float(np.mean(judged.errors)),
        int(judged.covered.sum()),
        level,
        smaller.form.name,
    )
