"""The law whose exponent in the data changes with the size of the model."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaling.law.autodiff import Dual, exp
from scaling.law.forms.form import Columns, Form, Parameter

SIZE, TOKENS = 1e9, 2e10
"""Where the three terms are stated: their values there are parameters of any unit of N and D."""


class Farseer(Form):
    """L(N, D) = exp(e(N)) + exp(b(N)) D^-exp(a(N)), each of e, b and a linear in N^γ. Li et al. 2025, arXiv 2506.10972.

    Written about N₀ = 10⁹ and D₀ = 2·10¹⁰: E(N) = E₀ exp(s_E q_E), B(N) = B₀ exp(s_B q_B), β(N) = β₀ exp(s_β q_β) with
    q_γ = ((N/N₀)^γ - 1)/γ, L = E(N) + B(N) (D/D₀)^-β(N). The same functions; γ → 0 is a power of N, and no parameter
    is the value of a term many decades away.
    """

    formula = "L(N, D) = E(N) + B(N) (D/D₀)^-β(N), log E, log B and log β linear in N^γ"
    citation = "Li et al. 2025, arXiv 2506.10972"
    special_cases = ("PowerLawFloor in D at one N", "Chinchilla where only E depends on N, as a power with a floor")
    inputs = ("N", "D")
    parameters = tuple(
        parameter
        for letter, unit, start in (
            ("E", "nats per token", (0.05, 3.0)),
            ("B", "nats per token", (0.05, 3.0)),
            ("beta", "1", (0.05, 1.0)),
        )
        for parameter in (
            Parameter(f"{letter}_0", unit, "log", 1e-12, 1e12, start),
            Parameter(f"s_{letter}", "1", "linear", -5.0, 5.0, (-0.5, 0.5)),
            Parameter(f"gamma_{letter}", "1", "linear", -1.0, 1.0, (-0.3, 0.3)),
        )
    )

    def curve(self, p: Any, x: Any) -> Dual:
        size, data = np.log(x.N / SIZE), np.log(x.D / TOKENS)
        floor, height, slope = (
            getattr(p, f"{letter}_0")
            * exp(
                getattr(p, f"s_{letter}")
                * (exp(getattr(p, f"gamma_{letter}") * size) - 1.0)
                / getattr(p, f"gamma_{letter}")
            )
            for letter in ("E", "B", "beta")
        )
        return floor + height * exp(-(slope * data))

    def start(self, rng: np.random.Generator, count: int, inputs: Columns, target: np.ndarray) -> np.ndarray:
        """The first two terms share the loss at the middle of the points."""
        theta = super().start(rng, count, inputs, target)
        share = rng.uniform(0.1, 0.9, count) * abs(float(np.median(target)))
        theta[:, 0], theta[:, 3] = share, abs(float(np.median(target))) - share
        return theta
