"""The loss over learning rate, batch, size and data at once: an optimum that drifts, and curvature about it."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaling.law.autodiff import Dual, exp, log
from scaling.law.forms.form import Columns, Form, Parameter, coefficient, exponent, floor

SIZE, TOKENS = 3e8, 1e10
"""Where the optimum and the curvatures are stated."""


def _slope(name: str, low: float = -0.5, high: float = 0.5) -> Parameter:
    return Parameter(name, "1", "linear", -3.0, 3.0, (low, high))


class LearningRateBatch(Form):
    """L(η, B, N, D) = E + A N^-α + G D^-β + Q n^c_N d^c_D exp(s_η u + s_B v), Q = (h u² + 2ρ√(hk) u v + k v²).

    u = ln(η/η_opt) and v = ln(B/B_opt), η_opt = η₀ n^η_N d^η_D, B_opt = B₀ n^B_N d^B_D, n = N/(3·10⁸), d = D/10¹⁰.
    After Li et al. 2025 (Step Law), arXiv 2503.04715, whose optimum and convexity it has. Departs from the paper, which
    fits the optima of each N and D: here every run counts, with curvatures h and k, their correlation ρ, their drift c,
    and s, by which a rate that is too high costs more or less than one that is too low.
    """

    formula = "L(η, B, N, D) = E + A N^-α + G D^-β + (h u² + 2ρ√(hk) u v + k v²) n^c_N d^c_D exp(s_η u + s_B v)"
    citation = "Li et al. 2025, arXiv 2503.04715"
    special_cases = ("Chinchilla along η_opt and B_opt",)
    inputs = ("lr", "B", "N", "D")
    parameters = (
        floor(),
        coefficient("A"),
        coefficient("G"),
        exponent("alpha"),
        exponent("beta"),
        Parameter("eta_0", "1", "log", 1e-12, 1e6, "lr"),
        _slope("eta_N", -1.0, 0.2),
        _slope("eta_D", -0.2, 0.8),
        Parameter("B_0", "unit of the column", "log", 1e-6, 1e15, "B"),
        _slope("B_N", -0.2, 0.2),
        _slope("B_D", 0.0, 0.8),
        Parameter("h", "nats per token", "log", 1e-9, 1e3, (1e-3, 0.1)),
        Parameter("k", "nats per token", "log", 1e-9, 1e3, (1e-3, 0.1)),
        Parameter("rho", "1", "linear", -0.999, 0.999, (-0.7, 0.7)),
        _slope("c_N", -0.3, 0.3),
        _slope("c_D", -0.3, 0.3),
        _slope("s_lr", -0.3, 0.3),
        _slope("s_B", -0.3, 0.3),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        size, data = np.log(x.N / SIZE), np.log(x.D / TOKENS)
        rate = np.log(x.lr) - log(p.eta_0) - p.eta_N * size - p.eta_D * data
        batch = np.log(x.B) - log(p.B_0) - p.B_N * size - p.B_D * data
        both = 2.0 * p.rho * exp(0.5 * (log(p.h) + log(p.k)))
        bowl = p.h * rate * rate + both * rate * batch + p.k * batch * batch
        drift = exp(p.c_N * size + p.c_D * data + p.s_lr * rate + p.s_B * batch)
        return p.E + p.A * x.N**-p.alpha + p.G * x.D**-p.beta + bowl * drift

    def start(self, rng: np.random.Generator, count: int, inputs: Columns, target: np.ndarray) -> np.ndarray:
        """The optimum starts near the rates and batches of the tenth of runs with the lowest losses."""
        theta = super().start(rng, count, inputs, target)
        low = target <= np.quantile(target, 0.1)
        for name, column in (("eta_0", "lr"), ("B_0", "B")):
            middle = np.exp(np.mean(np.log(inputs[column][low])))
            theta[:, self.parameter_names.index(name)] = middle * np.exp(rng.uniform(-1.0, 1.0, count))
        return theta

    def optimum(self, theta: np.ndarray, N: float, D: float) -> tuple[float, float]:
        """η_opt and B_opt at this size and these tokens."""
        p = dict(zip(self.parameter_names, theta, strict=True))
        size, data = np.log(N / SIZE), np.log(D / TOKENS)
        rate = p["eta_0"] * np.exp(p["eta_N"] * size + p["eta_D"] * data)
        return float(rate), float(p["B_0"] * np.exp(p["B_N"] * size + p["B_D"] * data))
