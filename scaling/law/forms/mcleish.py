"""The law of width, depth and data."""

from __future__ import annotations

from typing import Any

from scaling.law.autodiff import Dual
from scaling.law.forms.form import Form, coefficient, exponent, floor


class Shape(Form):
    """L(w, l, D) = E + A w^-α + B l^-β + G D^-γ. McLeish et al. 2025 (Gemstones), arXiv 2502.06857.

    Departs from the paper, whose law adds a term in N: with N ≈ 12 l w² it is nearly a mixture of the other two.
    """

    formula = "L(w, l, D) = E + A w^-α + B l^-β + G D^-γ"
    citation = "McLeish et al. 2025, arXiv 2502.06857"
    special_cases = ("Chinchilla along models of one shape, where w and l follow N",)
    inputs = ("width", "depth", "D")
    parameters = (
        floor(),
        coefficient("A"),
        coefficient("B"),
        coefficient("G"),
        exponent("alpha", start=(0.1, 2.0)),
        exponent("beta", start=(0.1, 2.0)),
        exponent("gamma"),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        return p.E + p.A * x.width**-p.alpha + p.B * x.depth**-p.beta + p.G * x.D**-p.gamma
