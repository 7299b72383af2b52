"""The law of models whose weights are sparse."""

from __future__ import annotations

from typing import Any

from scaling.law.autodiff import Dual
from scaling.law.forms.form import Form, coefficient, exponent, floor


class SparseWeights(Form):
    """L(N, D, κ) = E + (a κ^b + c) N^-α + B D^-β, κ = 1 - sparsity. Frantar et al. 2023, arXiv 2309.08520, eq. 1.

    N counts the weights that are not zero, and `density` is the fraction of them.
    """

    formula = "L(N, D, κ) = E + (a κ^b + c) N^-α + B D^-β, κ = 1 - sparsity"
    citation = "Frantar et al. 2023, arXiv 2309.08520"
    special_cases = ("Chinchilla at κ = 1, A = a + c",)
    inputs = ("N", "D", "density")
    parameters = (
        floor(),
        coefficient("a"),
        coefficient("c"),
        coefficient("B"),
        exponent("b", start=(0.1, 2.0)),
        exponent("alpha"),
        exponent("beta"),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        return p.E + (p.a * x.density**p.b + p.c) * x.N**-p.alpha + p.B * x.D**-p.beta
