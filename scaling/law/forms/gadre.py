"""The over-training law and the error of tasks from loss."""

from __future__ import annotations

from typing import Any

from scaling.law.autodiff import Dual, exp
from scaling.law.forms.form import Form, Parameter, coefficient, exponent, floor

CITATION = "Gadre et al. 2024, arXiv 2403.08540"


class OverTraining(Form):
    """L(C, M) = E + (a M^η + b M^-η) C^-η with M = D/N. Gadre et al. 2024, arXiv 2403.08540, eq. 4."""

    formula = "L(C, M) = E + (a M^η + b M^-η) C^-η"
    citation = CITATION
    special_cases = ("Chinchilla with α = β = 2η, C = 6ND, a = A 6^η, b = B 6^η",)
    inputs = ("C", "M")
    parameters = (floor(), coefficient("a"), coefficient("b"), exponent("eta"))

    def curve(self, p: Any, x: Any) -> Dual:
        return p.E + p.a * (x.C / x.M) ** -p.eta + p.b * (x.C * x.M) ** -p.eta


class TaskExponential(Form):
    """Err(L) = ε - k exp(-γ L). Gadre et al. 2024, arXiv 2403.08540, eq. 5."""

    formula = "Err(L) = ε - k exp(-γ L)"
    citation = CITATION
    special_cases = ("the error of chance ε at L → ∞",)
    target = "error"
    inputs = ("loss",)
    objective = "squared"
    chance = "epsilon"
    parameters = (
        Parameter("epsilon", "error", "linear", 0.0, 1e3, (0.3, 1.0), linear=True),
        Parameter("k", "error", "log", 1e-30, 1e30, (0.1, 10.0), linear=True),
        Parameter("gamma", "1 / nat", "linear", 0.0, 50.0, (0.1, 3.0)),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        return p.epsilon - p.k * exp(-p.gamma * x.loss)
