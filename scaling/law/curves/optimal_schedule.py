"""The schedule of the lowest predicted loss for a budget, and what it gains over the usual ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scaling.law.curves.curve import Curve
from scaling.law.curves.fit import CurveFit

KNOTS = 25
LEAST_FALL = 1e-4  # of a stretch in a schedule that a search begins from: a smaller one would not move
MOST_STEPS = 4000  # of a schedule that is tried; a longer one is tried at fewer steps


@dataclass(frozen=True)
class BestSchedule:
    """Learning rates of every step, the loss that the law predicts, and that of usual schedules of the same budget."""

    rates: np.ndarray
    loss: float
    usual: Mapping[str, float]

    @property
    def gain(self) -> float:
        """Nats per token under the best of the usual schedules."""
        return min(self.usual.values()) - self.loss

    @property
    def best_usual(self) -> str:
        return min(self.usual, key=lambda name: self.usual[name])


def best_schedule(fit: CurveFit, N: float, D: float, tokens_per_step: float, warmup: int | None = None) -> BestSchedule:
    """Rates that do not rise after the warmup, of the lowest loss at N and D; the peak is the fit's reference.

    The law is trusted no further than schedules like the fitted ones: a loss for rates that fall at once is its
    extrapolation (Luo et al. 2025, section 5).
    """
    from scipy.optimize import minimize

    steps = max(2, round(D / tokens_per_step))
    warmup = min(fit.curves[0].warmup, steps // 10) if warmup is None else warmup
    coarse = min(steps, MOST_STEPS)
    scale = steps / coarse
    rise = round(warmup / scale)

    def loss(shape: np.ndarray) -> float:
        rates = fit.reference * np.concatenate([(np.arange(rise) + 1) / max(rise, 1), shape])
        curve = Curve("best", N, np.array([coarse]), np.array([np.nan]), np.ones(1, int), rates, D / coarse)
        return float(fit.predict(curve)[0])

    way = np.linspace(0.0, 1.0, coarse - rise)
    known = {
        "constant": np.ones_like(way),
        "cosine to 0.1": 0.55 + 0.45 * np.cos(np.pi * way),
        "linear to 0": 1.0 - way,
        "WSD, 20%": np.minimum(1.0, (1.0 - way) / 0.2),
    }
    usual = {name: loss(rates) for name, rates in known.items()}
    knots = np.linspace(0.0, 1.0, KNOTS + 1)

    def shape(z: np.ndarray) -> np.ndarray:
        parts = np.exp(z - z.max())
        left = 1.0 - np.concatenate([[0.0], np.cumsum(parts / parts.sum())[:-1]])
        return np.interp(way, knots, left)

    def searched(begin: np.ndarray) -> np.ndarray:
        falls = -np.diff(np.append(np.interp(knots, way, begin), 0.0))
        z = np.log(np.maximum(falls, LEAST_FALL))
        # Steps of the schedule are whole, so that the loss has no slope on the smallest scale.
        return shape(minimize(lambda z: loss(shape(z)), z, method="Powell", options={"maxiter": 10}).x)

    # From the usual ones that end low; what cannot be improved stays as it is.
    best = min([*known.values(), *(searched(known[name]) for name in ("linear to 0", "WSD, 20%"))], key=loss)
    after = np.interp(np.linspace(0.0, 1.0, steps - warmup), way, best)
    rates = fit.reference * np.concatenate([(np.arange(warmup) + 1) / max(warmup, 1), after])
    return BestSchedule(rates, loss(best), usual)
