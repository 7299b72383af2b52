"""The law of precision in training."""

from __future__ import annotations

from typing import Any

from scaling.law.autodiff import Dual, expm1
from scaling.law.forms.form import Form, Parameter, coefficient, exponent, floor


class Precision(Form):
    """L(N, D, P) = E + A (N (1 - exp(-P/γ)))^-α + B D^-β, weights of P bits.

    Kumar et al. 2024, arXiv 2411.04330, eq. 3. Weights of fewer bits count as fewer weights; γ is the number of bits at
    which 63% of them are left.
    """

    formula = "L(N, D, P) = E + A (N (1 - exp(-P/γ)))^-α + B D^-β"
    citation = "Kumar et al. 2024, arXiv 2411.04330"
    special_cases = ("Chinchilla at P → ∞",)
    inputs = ("N", "D", "bits")
    parameters = (
        floor(),
        coefficient("A"),
        coefficient("B"),
        exponent("alpha"),
        exponent("beta"),
        Parameter("gamma", "bits", "log", 1e-2, 1e3, (0.5, 10.0)),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        effective = -expm1(-x.bits / p.gamma) * x.N
        return p.E + p.A * effective**-p.alpha + p.B * x.D**-p.beta
