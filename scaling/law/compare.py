"""Compare laws of the same points: information criteria, and averages over laws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.errors import ScalingError
from scaling.law.fit import Fit
from scaling.law.interval import Interval, intervals
from scaling.law.noise import measure, student
from scaling.law.quantity import prediction


def aicc(fit: Fit) -> float:
    """n log s² + 2k + 2k(k+1)/(n-k-1) with k = p + 1 for the noise. Hurvich and Tsai 1989, Biometrika 76(2).

    s is the noise that explains the objective without correction for p: the root mean square residual under squared
    errors, in proportion to the mean absolute one under absolute errors.
    """
    n, k = len(fit.problem.observed), len(fit.problem.free) + 1
    if n <= k + 1:
        return float("inf")
    scale = float(measure(fit.problem.objective, np.array([fit.objective]), n, 0).scale[0])
    shared = fit.problem.shared
    determinant = 0.0 if shared is None else shared.log_determinant
    return n * 2.0 * float(np.log(max(scale, 1e-150))) + determinant + 2.0 * k + 2.0 * k * (k + 1) / (n - k - 1)


@dataclass(frozen=True)
class Comparison:
    """Laws fitted to the same points, the best first."""

    aicc: dict[str, float]
    weights: dict[str, float]
    """Akaike weights: they sum to one."""

    @property
    def best(self) -> str:
        return next(iter(self.aicc))


def compare(fits: Mapping[Any, Fit]) -> Comparison:
    """Weigh fits of the same points under the same objective by AICc."""
    first = next(iter(fits.values()))
    for fit in fits.values():
        alike = fit.problem.objective == first.problem.objective and len(fit.problem.observed) == len(
            first.problem.observed
        )
        if not alike or not np.array_equal(np.sort(fit.problem.observed), np.sort(first.problem.observed)):
            raise ScalingError("only fits of the same points under the same objective compare", fix="fit them again")
    criterion = dict(sorted(((name, aicc(fit)) for name, fit in fits.items()), key=lambda item: item[1]))
    values = np.array(list(criterion.values()))
    likelihood = np.exp(-0.5 * (values - values.min()))
    return Comparison(criterion, dict(zip(criterion, map(float, likelihood / likelihood.sum()))))


def average(fits: Mapping[str, Fit], inputs: Mapping[str, float], level: float = 0.95) -> Interval:
    """The prediction averaged over laws by Akaike weight; its error holds the disagreement between them.

    t Σ w √(se² + (q - mean)²) on either side, on log loss: Buckland, Burnham and Augustin 1997, Biometrics 53(2), eq. 9
    for the standard error and Student's t of each law.
    """
    weights = compare(fits).weights
    centres, errors, shares, quantiles = [], [], [], []
    for name, fit in fits.items():
        row = {column: inputs[column] for column in fit.form.inputs}
        interval = next(iter(intervals(fit, "t", level=level, quantities=[prediction(fit.form, row)]).values()))
        centres.append(np.log(interval.estimate))
        errors.append(0.5 * np.log(interval.high / interval.low))
        shares.append(weights[name])
        quantiles.append(student(level, fit.degrees_of_freedom_of_intervals))
    centre = float(np.dot(shares, centres))
    width = float(np.dot(shares, np.hypot(errors, quantiles * (np.array(centres) - centre))))
    low, high = float(np.exp(centre - width)), float(np.exp(centre + width))
    return Interval("average", float(np.exp(centre)), low, high, level, "t")
