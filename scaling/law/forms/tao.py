"""The law of the vocabulary."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaling.law.autodiff import Dual, exp
from scaling.law.forms.form import Form, Parameter, coefficient, exponent

TYPICAL = 16384.0
"""The vocabulary at which the data's coefficient is stated."""


class Vocabulary(Form):
    """L_u(N, V, H) = E + A N^-α + G V^-γ + B H^-β (V/16384)^κ. Tao et al. 2024, arXiv 2407.13623, eq. 5, with κ.

    L_u is the loss less that of the tokens' frequencies alone, so that vocabularies can be compared; it and E are
    negative. N counts the parameters but for those of the vocabulary, H the characters of training. Departs from the
    paper, whose κ is 0: a larger vocabulary needs more text before its rows are learned (κ > 0), so that for each
    budget there is a best one.
    """

    formula = "L_u(N, V, H) = E + A N^-α + G V^-γ + B H^-β (V/16384)^κ"
    citation = "Tao et al. 2024, arXiv 2407.13623"
    special_cases = ("the paper's law at κ = 0",)
    target = "loss_u"
    objective = "squared"
    inputs = ("N", "V", "H")
    parameters = (
        Parameter("E", "nats per token", "linear", -1e6, 1e6, (-10.0, 1.0), linear=True),
        coefficient("A"),
        coefficient("G"),
        coefficient("B"),
        # From 0.01 on: a term that hardly falls is not separated from E, whatever its coefficient.
        exponent("alpha", 0.01, 2.0, (0.05, 1.0)),
        exponent("gamma", 0.01, 2.0, (0.05, 1.0)),
        exponent("beta", 0.01, 2.0, (0.05, 1.0)),
        Parameter("kappa", "1", "linear", -2.0, 2.0, (-0.5, 0.5)),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        rows = exp(p.kappa * np.log(x.V / TYPICAL))
        return p.E + p.A * x.N**-p.alpha + p.G * x.V**-p.gamma + p.B * x.H**-p.beta * rows

    def best_vocabulary(self, theta: np.ndarray, H: float) -> float:
        """The V of the lowest loss after H characters: (γ G V₀^κ / (κ B))^(1/(γ+κ)) H^(β/(γ+κ))."""
        p = dict(zip(self.parameter_names, theta, strict=True))
        if p["kappa"] <= 0:
            return float("inf")
        ratio = p["gamma"] * p["G"] * TYPICAL ** p["kappa"] / (p["kappa"] * p["B"] * H ** -p["beta"])
        return float(ratio ** (1.0 / (p["gamma"] + p["kappa"])))
