"""Laws of mixtures of experts in the granularity of experts, and in the parameters that a token uses."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaling.law.autodiff import Dual, exp
from scaling.law.forms.form import Form, Parameter, coefficient, exponent, floor

SIZE, TOKENS = 1e9, 2e10
"""Where the coefficients of the joint law are stated."""


class Granularity(Form):
    """L(N, D, G) = E + (g G^-γ + a) N^-α + b D^-β. Ludziejewski et al. 2024, arXiv 2402.07871, eq. 9.

    G is the hidden width of a dense layer over that of one expert; N counts all parameters, at a fixed ratio to those
    that a token uses.
    """

    formula = "L(N, D, G) = E + (g G^-γ + a) N^-α + b D^-β"
    citation = "Ludziejewski et al. 2024, arXiv 2402.07871"
    special_cases = ("Chinchilla at G = 1 or γ = 0",)
    inputs = ("N", "D", "granularity")
    parameters = (
        floor(),
        coefficient("g"),
        coefficient("a"),
        coefficient("b"),
        exponent("gamma", start=(0.1, 1.5)),
        exponent("alpha"),
        exponent("beta"),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        return p.E + (p.g * x.granularity**-p.gamma + p.a) * x.N**-p.alpha + p.b * x.D**-p.beta


class ActiveExperts(Form):
    """L(N, D, X) = E + A n^-α X^-δ n^(γ ln X) + B d^-β X^ω d^(ζ ln X).

    Ludziejewski et al. 2025, arXiv 2502.05172, eq. 3. N counts the parameters that a token uses, X the experts, which
    enter both terms: more experts act as a larger model and ask for more data. Departs from the paper, whose X̂
    saturates: here it is X.
    """

    formula = "L(N, D, X) = E + A n^(γ ln X - α) X^-δ + B d^(ζ ln X - β) X^ω, n = N/10⁹, d = D/(2·10¹⁰)"
    citation = "Ludziejewski et al. 2025, arXiv 2502.05172"
    special_cases = ("Chinchilla at X = 1",)
    inputs = ("N", "D", "experts")
    parameters = (
        floor(),
        coefficient("A", "nats per token"),
        coefficient("B", "nats per token"),
        exponent("alpha"),
        exponent("beta"),
        *(Parameter(name, "1", "linear", -2.0, 2.0, (-0.2, 0.2)) for name in ("delta", "omega", "gamma", "zeta")),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        size, data, experts = np.log(x.N / SIZE), np.log(x.D / TOKENS), np.log(x.experts)
        return (
            p.E
            + p.A * exp(p.gamma * size * experts - p.alpha * size - p.delta * experts)
            + p.B * exp(p.zeta * data * experts - p.beta * data + p.omega * experts)
        )
