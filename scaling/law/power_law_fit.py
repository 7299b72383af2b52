"""A power law y = k xᵖ, fitted as a straight line in logarithms: how optimal sizes grow with compute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaling.errors import ScalingError


@dataclass(frozen=True)
class PowerLawFit:
    """y = coefficient · x^exponent, with the standard error of the exponent where more than two points determine it."""

    coefficient: float
    exponent: float
    standard_error: float
    freedom: int

    def __call__(self, x: np.ndarray | float) -> np.ndarray | float:
        return self.coefficient * np.asarray(x, float) ** self.exponent

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The t-interval of the exponent; unbounded where two points alone were joined."""
        if self.freedom < 1:
            return (-np.inf, np.inf)
        from scipy.special import stdtrit

        reach = float(stdtrit(self.freedom, 0.5 + level / 2)) * self.standard_error
        return (self.exponent - reach, self.exponent + reach)


def fit_power_law(x: np.ndarray, y: np.ndarray, spread: np.ndarray | None = None) -> PowerLawFit:
    """Least squares of log y on log x, weighted by 1/spread² where the standard deviation of log y is known."""
    if len(np.unique(x)) < 2:
        raise ScalingError("a power law needs points at two compute budgets or more", fix="add a budget")
    order = np.lexsort((y, x))  # a fixed order of summation: permuted rows change no digit
    log_x, log_y = np.log(np.asarray(x, float)[order]), np.log(np.asarray(y, float)[order])
    weight = np.ones_like(log_x) if spread is None else np.asarray(spread, float)[order] ** -2.0
    weight = weight / weight.sum()
    mean_x, mean_y = weight @ log_x, weight @ log_y
    variance = weight @ (log_x - mean_x) ** 2
    exponent = weight @ ((log_x - mean_x) * (log_y - mean_y)) / variance
    residual = log_y - mean_y - exponent * (log_x - mean_x)
    freedom = len(log_x) - 2
    error = np.sqrt((weight @ residual**2) / variance / freedom) if freedom > 0 else np.inf
    return PowerLawFit(float(np.exp(mean_y - exponent * mean_x)), float(exponent), float(error), freedom)
