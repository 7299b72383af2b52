"""What a fit minimises: a residual (of the loss or of its logarithm) and a penalty on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isinf
from typing import Literal

import numpy as np

from scaling.errors import ScalingError


@dataclass(frozen=True)
class Objective:
    """Σ wᵢ ρ(rᵢ) with ρ(r) = r²/2 for |r| ≤ δ and δ(|r| - δ/2) beyond. Huber 1964, Annals of Math. Statistics 35.

    The residual r is predicted minus observed, of log loss (`space="log"`) or of the loss (`space="linear"`).
    δ = ∞ is least squares. The logarithm of a law that is a sum of terms is the "log-sum-exp" of
    Hoffmann et al. 2022 (arXiv 2203.15556, eq. 3); it is the same number here.
    """

    name: str
    space: Literal["log", "linear"]
    delta: float
    path: tuple[float, ...] = ()
    """Wider δ that lead there: a fit under each starts where the one before ended."""
    over: float = 1.0
    """How many times as much a prediction that is too high costs as one that is too low by the same."""

    def penalty(self, residual: np.ndarray) -> np.ndarray:
        """ρ(r)."""
        size = np.abs(residual)
        if isinf(self.delta):
            return self._sided(residual, 0.5 * size * size)
        inside = np.minimum(size, self.delta)
        return self._sided(residual, inside * (size - 0.5 * inside))

    def influence(self, residual: np.ndarray) -> np.ndarray:
        """ψ = ρ'."""
        return self._sided(residual, np.minimum(np.maximum(residual, -self.delta), self.delta))

    def weight(self, residual: np.ndarray) -> np.ndarray:
        """ψ(r)/r, the weight of a point in reweighted least squares."""
        if isinf(self.delta):
            return self._sided(residual, np.ones_like(residual))
        return self._sided(residual, self.delta / np.maximum(np.abs(residual), self.delta))

    def curvature(self, residual: np.ndarray) -> np.ndarray:
        """ψ' = ρ''."""
        return self._sided(residual, (np.abs(residual) <= self.delta).astype(float))

    def _sided(self, residual: np.ndarray, value: np.ndarray) -> np.ndarray:
        """`value`, times `over` where the prediction is too high."""
        return value if self.over == 1.0 else value * np.where(residual > 0, self.over, 1.0)

    def transform(self, loss: np.ndarray) -> np.ndarray:
        """The loss in the space of the residuals."""
        return np.log(loss) if self.space == "log" else loss

    def inverse(self, value: float) -> float:
        """The loss of a value in the space of the residuals."""
        return float(np.exp(value)) if self.space == "log" else value


PATH = (1e-2, 1e-3, 1e-4, 1e-5)


def LogHuber(delta: float = 1e-3) -> Objective:
    """The objective of Hoffmann et al. 2022, eq. 3, with their δ = 10⁻³."""
    return Objective(f"log-huber({delta:g})", "log", delta)


def LogSquared() -> Objective:
    """Least squares on log loss: the likelihood of noise in proportion to the loss."""
    return Objective("log-squared", "log", np.inf)


def Squared() -> Objective:
    """Least squares on the loss."""
    return Objective("squared", "linear", np.inf)


def Huber(delta: float) -> Objective:
    """Huber's penalty on the loss."""
    return Objective(f"huber({delta:g})", "linear", delta)


def Absolute() -> Objective:
    """Absolute errors of the loss, rounded off within 10⁻⁶ of zero; reported as Σ δ(|r| - δ/2)/δ."""
    return Objective("absolute", "linear", 1e-6, PATH)


def LogAbsolute() -> Objective:
    """Absolute errors of log loss, rounded off within 10⁻⁶ of zero."""
    return Objective("log-absolute", "log", 1e-6, PATH)


OBJECTIVES: Mapping[str, Callable[[], Objective]] = {
    "log_huber": LogHuber,
    "log_squared": LogSquared,
    "squared": Squared,
    "huber": lambda: Huber(1e-3),
    "log_absolute": LogAbsolute,
    "absolute": Absolute,
}
"""Every objective by its name, Huber's with the δ of the papers."""


def named_objective(name: str, delta: float | None = None, over: float | None = None) -> Objective:
    """The objective of that name, with another δ than the papers' where one is given.

    With `over`, predictions that are too high cost that many times as much (asymmetric least squares: Newey and Powell
    1987, Econometrica 55; under absolute errors the quantile 1/(1 + over), Koenker and Bassett 1978, Econometrica 46).
    """
    huber = {"log_huber": LogHuber, "huber": Huber}
    if delta is not None and name not in huber:
        raise ScalingError(f"the objective {name} has none", key="delta", value=delta, fix="leave it out")
    chosen = OBJECTIVES[name]() if delta is None else huber[name](delta)
    return chosen if over in (None, 1.0) else replace(chosen, name=f"{chosen.name}, over × {over:g}", over=over)
