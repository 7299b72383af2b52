"""The law of whole learning curves under an annealed learning rate."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaling.law.dual import Dual
from scaling.law.forms.form import Form, coefficient, exponent, floor

DECAY = 0.999


class Annealing(Form):
    """L(s) = L₀ + A S₁^-α - C S₂, at every step of a curve. Tissue et al. 2024, arXiv 2408.11029, eq. 1.

    S₁ is the area under the learning rate up to s and S₂ the annealing area; `areas` computes both from the schedule.
    """

    formula = "L(s) = L₀ + A S₁^-α - C S₂"
    citation = "Tissue et al. 2024, arXiv 2408.11029"
    special_cases = ("PowerLawFloor in S₁ under a constant learning rate, where S₂ = 0",)
    inputs = ("S1", "S2")
    parameters = (floor("L_0"), coefficient("A"), coefficient("C", "nats a token / unit of S₂"), exponent("alpha"))

    def curve(self, p: Any, x: Any) -> Dual:
        return p.L_0 + p.A * x.S1**-p.alpha - p.C * x.S2


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
