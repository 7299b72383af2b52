"""The Chinchilla law (approach 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from scaling.law.autodiff import Dual
from scaling.law.forms.form import Form, coefficient, exponent, floor


@dataclass(frozen=True)
class Chinchilla(Form):
    """L(N, D) = E + A N^-α + B D^-β. Hoffmann et al. 2022, arXiv 2203.15556, eq. 2."""

    formula = "L(N, D) = E + A N^-α + B D^-β"
    citation = "Hoffmann et al. 2022, arXiv 2203.15556"
    special_cases = ("Gadre's L(C, M) at α = β", "PowerLawFloor in N at D → ∞")
    derived: ClassVar = {
        "a": lambda p: p.beta / (p.alpha + p.beta),  # N_opt ∝ C^a
        "b": lambda p: p.alpha / (p.alpha + p.beta),  # D_opt ∝ C^b
    }
    inputs = ("N", "D")
    parameters = (floor(), coefficient("A"), coefficient("B"), exponent("alpha"), exponent("beta"))

    def curve(self, p: Any, x: Any) -> Dual:
        return p.E + p.A * x.N**-p.alpha + p.B * x.D**-p.beta
