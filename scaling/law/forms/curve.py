"""Laws of whole training curves over the size, the tokens and the schedule: joint laws of many runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaling.law.autodiff import Dual
from scaling.law.forms.form import Columns, Form, Parameter, coefficient, exponent, floor

FALL = ("nats per token / fall of the rate", "log", 1e-12, 1e12, (1e-3, 1.0))


class AnnealedCurve(Form):
    """L(N, s) = E + A N^-α + B S₁^-β - C S₂. Tissue et al. 2024, arXiv 2408.11029, eq. 1 with its extension to N.

    S₁ is the area under the learning rate as a fraction of its reference, in tokens, so that at the reference it is D;
    S₂ is the annealing area, which has no bound, so that E is the floor under a constant rate.
    """

    formula = "L(N, s) = E + A N^-α + B S₁^-β - C S₂"
    citation = "Tissue et al. 2024, arXiv 2408.11029"
    special_cases = ("Chinchilla under a constant learning rate, where S₁ = D and S₂ = 0",)
    inputs = ("N", "S1", "S2")
    parameters = (
        floor(),
        coefficient("A"),
        coefficient("B"),
        Parameter("C", *FALL),
        exponent("alpha"),
        exponent("beta"),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        return p.E + p.A * x.N**-p.alpha + p.B * x.S1**-p.beta - p.C * x.S2

    def reference(self, inputs: Columns, parameter: Parameter) -> dict[str, float]:
        """The middle of the points under a constant rate, where a term is of its coefficient alone."""
        return {**super().reference(inputs, parameter), "S2": 0.0}


class MultiPower(Form):
    """L(N, s) = E + A N^-α + B S₁^-β + C (1 - Σₖ Δηₖ G(ηₖ^-γ Sₖ)), G(x) = 1 - (1 + c x)^-κ.

    Luo et al. 2025, arXiv 2503.12811, eq. 3 to 5, with a term in N. Δηₖ is a fall of the learning rate, ηₖ the rate
    after it and Sₖ the area under the rate since then. Falls are gathered into a few of equal height. C is what the
    reference rate adds to the loss until it has fallen to nothing, so that E is the floor that final losses have too;
    the paper's L₀ is E + C.
    """

    formula = "L(N, s) = E + A N^-α + B S₁^-β + C (1 - Σₖ Δηₖ G(ηₖ^-γ Sₖ)), G(x) = 1 - (1 + c x)^-κ"
    citation = "Luo et al. 2025, arXiv 2503.12811"
    special_cases = ("Chinchilla with a floor of E + C under a constant learning rate, where S₁ = D and no rate falls",)
    inputs = ("N", "S1", "falls", "rates", "since")
    parameters = (
        floor(),
        coefficient("A"),
        coefficient("B"),
        Parameter("C", *FALL),
        Parameter("c", "1 / tokens", "log", 1e-15, 1e3, (1e-8, 1e-3)),
        exponent("alpha"),
        exponent("beta"),
        Parameter("gamma", "1", "linear", 0.0, 3.0, (0.1, 1.0)),
        Parameter(
            "kappa", "1", "linear", 0.2, 5.0, (0.2, 1.0)
        ),  # below, a fall is worth a logarithm, and no run shows E
    )

    def curve(self, p: Any, x: Any) -> Dual:
        plain = p.E + p.A * x.N**-p.alpha + p.B * x.S1**-p.beta + p.C
        return plain - p.C * self._gained(p, x) if np.any(x.falls) else plain

    @staticmethod
    def _gained(p: Any, x: Any) -> Dual:
        """Σₖ Δηₖ G(ηₖ^-γ Sₖ), its derivatives by c, γ and κ written down: three passes in place of thirty."""
        c, gamma, kappa = (part.value[..., None] for part in (p.c, p.gamma, p.kappa))
        scaled = c * x.rates**-gamma * x.since
        inner = np.log1p(scaled)
        left = x.falls * np.exp(-kappa * inner)
        value = x.falls.sum(-1) - left.sum(-1)
        steep = kappa * left * scaled / (1.0 + scaled)
        parts = (
            (p.c, steep.sum(-1) / p.c.value),
            (p.gamma, -(steep * np.log(x.rates)).sum(-1)),
            (p.kappa, (left * inner).sum(-1)),
        )
        gradient: dict[int, np.ndarray] = {}
        for part, slope in parts:
            for index, seed in part.gradient.items():
                gradient[index] = gradient.get(index, 0.0) + seed * slope
        return Dual(value, gradient)

    def reference(self, inputs: Columns, parameter: Parameter) -> dict[str, float]:
        """The middle of the points under a constant rate, where a term is of its coefficient alone."""
        plain = super().reference(
            {name: inputs[name] for name in ("N", "S1")} | dict.fromkeys(self.inputs[2:], ONE), parameter
        )
        return {**plain, "falls": 0.0}


ONE = np.ones(1)
CURVE_LAWS: dict[str, Form] = {"multi_power": MultiPower(), "annealed_curve": AnnealedCurve()}
"""The laws of whole curves by name."""
