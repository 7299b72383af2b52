"""The law of repeated data."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaling.law.autodiff import Dual, exp, expm1, log, minimum
from scaling.law.forms.chinchilla import Chinchilla
from scaling.law.forms.form import Columns, Form, Parameter, exponent, floor


class DataConstrained(Form):
    """L(N, D, U) = E + A N'^-α + B D'^-β. Muennighoff et al. 2023, arXiv 2305.16264, eq. 4 to 6.

    D' = U_D + U_D R_D* (1 - exp(-R_D/R_D*)) with U_D = min(U, D) unique tokens and R_D = D/U_D - 1 repetitions;
    N' likewise, with U_N = min(N, the N that is compute-optimal for U_D) and R_N = N/U_N - 1.
    """

    formula = "L(N, D, U) = E + A N'^-α + B D'^-β, x' = U_x + U_x R_x* (1 - exp(-R_x/R_x*))"
    citation = "Muennighoff et al. 2023, arXiv 2305.16264"
    special_cases = ("Chinchilla at D ≤ U and N ≤ N_opt(U)", "Chinchilla at R_D* = R_N* → ∞")
    inputs = ("N", "D", "U")
    parameters = (
        floor(),
        # Not linear: A and B also decide which N is optimal for U.
        Parameter("A", "nats per token × parameters^α", "log", 1e-100, 1e100, (1.0, 1e10)),
        Parameter("B", "nats per token × tokens^β", "log", 1e-100, 1e100, (1.0, 1e10)),
        exponent("alpha", 1e-3),
        exponent("beta", 1e-3),
        Parameter("R_D", "repetitions", "log", 1e-3, 1e5, (1.0, 100.0)),
        Parameter("R_N", "repetitions", "log", 1e-3, 1e5, (1.0, 100.0)),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        unique = np.minimum(x.D, x.U)
        optimum = minimum(_optimal_size(p, unique), x.N)
        size = _worth(optimum, x.N / optimum - 1.0, p.R_N)
        data = _worth(unique, x.D / unique - 1.0, p.R_D)
        return p.E + p.A * size**-p.alpha + p.B * data**-p.beta

    def start(self, rng: np.random.Generator, count: int, inputs: Columns, target: np.ndarray) -> np.ndarray:
        """The first five as if nothing were repeated."""
        theta = super().start(rng, count, inputs, target)
        theta[:, :5] = Chinchilla().start(rng, count, inputs, target)[:, [0, 1, 2, 3, 4]]
        return theta


def _optimal_size(p: Any, data: np.ndarray) -> Dual:
    """The N for which `data` tokens are compute-optimal: G (G D)^(β/α), G = (αA/βB)^(1/(α+β))."""
    log_g = log(p.alpha * p.A / (p.beta * p.B)) / (p.alpha + p.beta)
    return exp(log_g + (p.beta / p.alpha) * (log_g + np.log(data)))


def _worth(unique: Any, repetitions: Any, decay: Dual) -> Dual:
    """What `repetitions` of `unique` are worth in fresh ones: U + U R* (1 - exp(-R/R*))."""
    return unique * (1.0 - decay * expm1(-repetitions / decay))
