"""The laws of Kaplan et al. 2020, arXiv 2001.08361."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scaling.law.autodiff import Dual
from scaling.law.forms.form import Columns, Form, coefficient, exponent, scale

CITATION = "Kaplan et al. 2020, arXiv 2001.08361"
SMALLEST = 1e-3  # exponents divide each other here, so none may vanish


@dataclass(frozen=True)
class Kaplan(Form):
    """L(x) = (x_c / x)^α for x = N, D, C or C_min. Kaplan et al. 2020, arXiv 2001.08361, eq. 1.1 to 1.3."""

    x: str = "N"
    formula = "L(x) = (x_c / x)^α"
    citation = CITATION
    special_cases = ("PowerLaw with A = x_c^α",)
    unit: str = "unit of the column"

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.x,)

    @property
    def parameters(self):  # type: ignore[override]
        return (scale("x_c", self.x, self.unit), exponent("alpha", SMALLEST))

    @property
    def name(self) -> str:
        return f"kaplan_{self.x.lower()}"

    def curve(self, p: Any, x: Any) -> Dual:
        return (p.x_c / getattr(x, self.x)) ** p.alpha

    def start(self, rng: np.random.Generator, count: int, inputs: Columns, target: np.ndarray) -> np.ndarray:
        """x_c lies far outside the points, so it starts where the law passes through their middle."""
        theta = super().start(rng, count, inputs, target)
        theta[:, 0] = np.median(inputs[self.x]) * np.median(target) ** (1.0 / theta[:, 1])
        return theta


class KaplanND(Form):
    """L(N, D) = [(N_c/N)^(α_N/α_D) + D_c/D]^α_D. Kaplan et al. 2020, arXiv 2001.08361, eq. 1.5."""

    formula = "L(N, D) = [(N_c/N)^(α_N/α_D) + D_c/D]^α_D"
    citation = CITATION
    special_cases = ("Kaplan in N at D → ∞", "Kaplan in D at N → ∞")
    inputs = ("N", "D")
    parameters = (
        scale("N_c", "N", "parameters"),
        scale("D_c", "D", "tokens"),
        exponent("alpha_N", SMALLEST),
        exponent("alpha_D", SMALLEST),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        return ((p.N_c / x.N) ** (p.alpha_N / p.alpha_D) + p.D_c / x.D) ** p.alpha_D

    def start(self, rng: np.random.Generator, count: int, inputs: Columns, target: np.ndarray) -> np.ndarray:
        """The two terms share L^(1/α_D) at the middle of the points."""
        theta = super().start(rng, count, inputs, target)
        alpha_n, alpha_d = theta[:, 2], theta[:, 3]
        share = rng.uniform(0.02, 0.98, count)
        inner = np.median(target) ** (1.0 / alpha_d)
        theta[:, 0] = np.median(inputs["N"]) * (share * inner) ** (alpha_d / alpha_n)
        theta[:, 1] = np.median(inputs["D"]) * (1.0 - share) * inner
        return theta


class KaplanNS(Form):
    """L(N, S_min) = (N_c/N)^α_N + (S_c/S_min)^α_S. Kaplan et al. 2020, arXiv 2001.08361, eq. 1.6.

    S_min is the number of steps at a batch far above the critical one; `minimum_steps` turns steps at batch B into it.
    """

    formula = "L(N, S_min) = (N_c/N)^α_N + (S_c/S_min)^α_S"
    citation = CITATION
    special_cases = ("Kaplan in N at S_min → ∞",)
    inputs = ("N", "S_min")
    parameters = (
        scale("N_c", "N", "parameters"),
        scale("S_c", "S_min", "steps"),
        exponent("alpha_N", SMALLEST),
        exponent("alpha_S", SMALLEST),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        return (p.N_c / x.N) ** p.alpha_N + (p.S_c / x.S_min) ** p.alpha_S

    def start(self, rng: np.random.Generator, count: int, inputs: Columns, target: np.ndarray) -> np.ndarray:
        """The two terms share the loss at the middle of the points."""
        theta = super().start(rng, count, inputs, target)
        share = rng.uniform(0.02, 0.98, count)
        loss = np.median(target)
        theta[:, 0] = np.median(inputs["N"]) * (share * loss) ** (1.0 / theta[:, 2])
        theta[:, 1] = np.median(inputs["S_min"]) * ((1.0 - share) * loss) ** (1.0 / theta[:, 3])
        return theta


class CriticalBatch(Form):
    """B_crit(L) = B_* L^(-1/α_B), of measured critical batches. Kaplan et al. 2020, arXiv 2001.08361, eq. 1.4."""

    formula = "B_crit(L) = B_* L^(-1/α_B)"
    citation = CITATION
    special_cases = ("a straight line of log B_crit on log L",)
    target = "B_crit"
    inputs = ("loss",)
    parameters = (coefficient("B_star", "tokens"), exponent("alpha_B", SMALLEST, start=(0.05, 1.0)))

    def curve(self, p: Any, x: Any) -> Dual:
        return p.B_star * x.loss ** (-1.0 / p.alpha_B)


def critical_batch(loss: ArrayLike, B_star: float, alpha_B: float) -> np.ndarray:
    """B_crit(L) = B_* L^(-1/α_B), in tokens."""
    return B_star * np.asarray(loss, float) ** (-1.0 / alpha_B)


def minimum_steps(steps: ArrayLike, batch: ArrayLike, critical: ArrayLike) -> np.ndarray:
    """S_min = S / (1 + B_crit/B), the steps that a batch far above the critical one would take (eq. 5.4)."""
    return np.asarray(steps, float) / (1.0 + np.asarray(critical) / np.asarray(batch))


def minimum_compute(compute: ArrayLike, batch: ArrayLike, critical: ArrayLike) -> np.ndarray:
    """C_min = C / (1 + B/B_crit), the compute that a batch far below the critical one would take (eq. 5.5)."""
    return np.asarray(compute, float) / (1.0 + np.asarray(batch) / np.asarray(critical))
