"""The law of whole learning curves under an annealed learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from scaling.errors import ScalingError, nearest
from scaling.law.autodiff import Dual
from scaling.law.forms.form import Form, coefficient, exponent, floor
from scaling.law.points import Points

DECAY = 0.999


class Annealing(Form):
    """L(s) = L₀ + A S₁^-α - C S₂, at every step of a curve. Tissue et al. 2024, arXiv 2408.11029, eq. 1.

    S₁ is the area under the learning rate up to s and S₂ the annealing area; `areas` computes both from the schedule.
    """

    formula = "L(s) = L₀ + A S₁^-α - C S₂"
    citation = "Tissue et al. 2024, arXiv 2408.11029"
    special_cases = ("PowerLawFloor in S₁ under a constant learning rate, where S₂ = 0",)
    inputs = ("S1", "S2")
    parameters = (floor("L_0"), coefficient("A"), coefficient("C", "nats per token / unit of S₂"), exponent("alpha"))

    def curve(self, p: Any, x: Any) -> Dual:
        return p.L_0 + p.A * x.S1**-p.alpha - p.C * x.S2


def with_areas(points: Points, schedules: Mapping[str, np.ndarray], decay: float = DECAY) -> Points:
    """Whole curves made ready for the law: S₁ and S₂ at each point's `step` (the first is 1) of its `run`'s schedule.

    `schedules` holds the learning rate of every step of each run.
    """
    S1, S2 = np.empty(len(points)), np.empty(len(points))
    steps, runs = points.numbers("step").astype(int), np.array([str(run) for run in points["run"]])
    for run in sorted(set(runs)):
        if run not in schedules:
            raise ScalingError("has no schedule", key="run", value=run, fix=nearest(run, schedules))
        rows = runs == run
        if steps[rows].min() < 1 or steps[rows].max() > len(schedules[run]):
            raise ScalingError(
                f"its schedule has {len(schedules[run])} steps, its curve goes from {steps[rows].min()} to "
                f"{steps[rows].max()}",
                key="run",
                value=run,
                fix="give the learning rate of every step",
            )
        forward, annealed = areas(schedules[run], decay)
        S1[rows], S2[rows] = forward[steps[rows] - 1], annealed[steps[rows] - 1]
    points = points.with_column("S1", S1, "area under the learning rate")
    return points.with_column("S2", S2, f"annealing area, λ = {decay:g}")


def areas(rates: np.ndarray, decay: float = DECAY) -> tuple[np.ndarray, np.ndarray]:
    """S₁ and S₂ after each step, from the learning rate of every step.

    S₁ = Σᵢ ηᵢ, and S₂ = Σᵢ Σ_{k≤i} (η_{k-1} - η_k) λ^(i-k) with λ = `decay`: a fall of the rate helps for about
    1/(1-λ) steps.
    """
    from scipy.signal import lfilter

    rates = np.asarray(rates, float)
    falls = -np.diff(rates, prepend=rates[:1])
    momentum = lfilter([1.0], [1.0, -decay], falls)
    return np.cumsum(rates), np.cumsum(momentum)
