"""The law of sparsely activated models that start from a dense one (upcycling)."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaling.law.autodiff import Dual, exp
from scaling.law.forms.form import Form, Parameter, coefficient, exponent, floor


class SparseExperts(Form):
    """L = E + A N^-α K^-γ P^(δ + ω ln K) + B D^-β. After Liew et al. 2025, arXiv 2502.03009, eq. 3 and 5.

    N is the size of the dense model, K the parameters that a token uses over N, P all parameters over those that it
    uses, D the tokens of sparse training. Departs from the paper, which fits the data's term and the term of
    N_active = K N and P apart: here N and K have an exponent each, and P helps with ln K (ω < 0), as where several
    experts answer a token.
    """

    formula = "L(N, K, P, D) = E + A N^-α K^-γ P^(δ + ω ln K) + B D^-β"
    citation = "Liew et al. 2025, arXiv 2502.03009"
    special_cases = ("Chinchilla at K = P = 1",)
    inputs = ("N", "K", "P", "D")
    parameters = (
        floor(),
        coefficient("A"),
        exponent("alpha"),
        exponent("gamma", -1.0, 3.0, (0.01, 0.5)),
        Parameter("omega", "1", "linear", -1.0, 1.0, (-0.1, 0.1)),
        Parameter("delta", "1", "linear", -1.0, 1.0, (-0.2, 0.2)),
        coefficient("B"),
        exponent("beta"),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        active, total = np.log(x.K), np.log(x.P)
        routed = exp(p.omega * active * total + p.delta * total - p.gamma * active)
        return p.E + p.A * x.N**-p.alpha * routed + p.B * x.D**-p.beta
