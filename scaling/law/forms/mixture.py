"""Laws of a mixture of data: the loss on one domain from the proportions of all of them. A paper a class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from scaling.errors import ScalingError
from scaling.law.autodiff import Dual, exp
from scaling.law.forms.form import Columns, Form, Parameter, coefficient, exponent, floor

SIZE = 1e8
"""The size at which the joint law's coefficients are stated."""


@dataclass(frozen=True)
class Mixture(Form):
    """What the laws of mixtures share: `domains` columns p_1, p_2, … of proportions."""

    domains: int = 3

    @property
    def proportions(self) -> tuple[str, ...]:
        return tuple(f"p_{i}" for i in range(1, self.domains + 1))

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.proportions

    @property
    def free_axes(self) -> tuple[str, ...]:
        return tuple(axis for axis in self.axes if axis != self.proportions[0])

    @property
    def name(self) -> str:
        return f"{super().name}_{self.domains}"

    def check(self, columns: Columns) -> None:
        """Proportions are 0 to 1 and sum to one."""
        table = np.column_stack([columns[name] for name in self.proportions])
        low = np.flatnonzero(table.min(1) < 0)
        off = np.flatnonzero(np.abs(table.sum(1) - 1.0) > 0.01)
        for rows, what in ((low, "has a negative proportion"), (off, "does not sum to 1")):
            if len(rows):
                raise ScalingError(
                    f"{', '.join(self.proportions)} of row {rows[0] + 1} {what}",
                    key="p",
                    value=" + ".join(f"{value:g}" for value in table[rows[0]]),
                    fix="give every domain of the mixture a column of its fraction",
                )


@dataclass(frozen=True)
class MixtureExponential(Mixture):
    """L_i(p) = c + k exp(Σ_j t_j p_j), j = 2 … m. Ye et al. 2024 (Data Mixing Laws), arXiv 2403.16952, eq. 6.

    Proportions sum to one, so that adding a constant to every t_j changes k alone: t_1 is 0 here.
    """

    formula = "L_i(p) = c + k exp(Σ_j t_j p_j), j ≥ 2"
    citation = "Ye et al. 2024, arXiv 2403.16952"
    special_cases = ("a constant c + k at t = 0",)

    @property
    def parameters(self) -> tuple[Parameter, ...]:  # type: ignore[override]
        weights = (Parameter(f"t_{i}", "1", "linear", -50.0, 50.0, (-3.0, 1.0)) for i in range(2, self.domains + 1))
        return (floor("c"), coefficient("k", "nats per token"), *weights)

    def curve(self, p: Any, x: Any) -> Dual:
        return p.c + p.k * exp(
            reduce(add, (getattr(p, f"t_{i}") * getattr(x, f"p_{i}") for i in range(2, self.domains + 1)))
        )


@dataclass(frozen=True)
class MixtureJoint(Mixture):
    """L_i(p, N) = c + (Σ_j w_j p_j)^-γ n^κ + A n^-α, n = N/10⁸.

    After Shukor et al. 2025, arXiv 2507.09404, eq. 4 and 5. The sum is the mixture's worth in text of domain i: each
    domain teaches the others, by its weight w_j. Departs from the paper: the powers of the proportions are 1, and the
    term of the mixture has a power of N of its own.
    """

    formula = "L_i(p, N) = c + (Σ_j w_j p_j)^-γ n^κ + A n^-α, n = N/10⁸"
    citation = "Shukor et al. 2025, arXiv 2507.09404"
    special_cases = ("PowerLawFloor in N at one mixture where κ = 0",)

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*self.proportions, "N")

    @property
    def axes(self) -> tuple[str, ...]:
        return self.inputs

    @property
    def parameters(self) -> tuple[Parameter, ...]:  # type: ignore[override]
        weights = (Parameter(f"w_{i}", "1", "log", 1e-8, 1e6, (0.01, 1.0)) for i in range(1, self.domains + 1))
        return (
            floor("c"),
            exponent("gamma", 0.01, 3.0, (0.05, 1.0)),
            *weights,
            coefficient("A", "nats per token"),
            exponent("alpha"),
            Parameter("kappa", "1", "linear", -2.0, 2.0, (-0.5, 0.5)),
        )

    def curve(self, p: Any, x: Any) -> Dual:
        worth = reduce(add, (getattr(p, f"w_{i}") * getattr(x, f"p_{i}") for i in range(1, self.domains + 1)))
        size = np.log(x.N / SIZE)
        return p.c + worth**-p.gamma * exp(p.kappa * size) + p.A * exp(-(p.alpha * size))


class BiMix(Form):
    """L_i(p, D) = p^-α (A D^-β + C), p the proportion of the domain itself. Ge et al. 2024, arXiv 2405.14908, eq. 3."""

    formula = "L_i(p, D) = p^-α (A D^-β + C)"
    citation = "Ge et al. 2024, arXiv 2405.14908"
    special_cases = ("PowerLawFloor in D at p = 1",)
    inputs = ("p", "D")
    parameters = (
        floor("C"),
        coefficient("A"),
        exponent("alpha", start=(0.01, 0.5)),
        exponent("beta"),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        return exp(-(p.alpha * np.log(x.p))) * (p.A * x.D**-p.beta + p.C)


def best_mixture(laws: Sequence[tuple[Form, np.ndarray]], weights: np.ndarray, **others: float) -> np.ndarray:
    """The proportions of the lowest Σ_i weight_i L_i, each law of a domain with its parameters; others as N.

    Found from the even mixture and from one start near each domain, by sequential quadratic programming.
    """
    from scipy.optimize import minimize  # a third of a second, of each fit of any law

    domains = len(laws[0][0].proportions)  # type: ignore[attr-defined]

    def total(mixture: np.ndarray) -> float:
        row = {f"p_{i + 1}": np.array([value]) for i, value in enumerate(np.abs(mixture))}
        row |= {name: np.array([value]) for name, value in others.items()}
        return float(
            sum(weight * form.predict(theta, row)[0] for weight, (form, theta) in zip(weights, laws, strict=True))
        )

    corners = 0.8 * np.eye(domains) + 0.2 / domains
    ended = [
        minimize(
            total,
            begin,
            method="SLSQP",
            bounds=[(0.0, 1.0)] * domains,
            constraints={"type": "eq", "fun": lambda mixture: mixture.sum() - 1.0},
            options={"ftol": 1e-12, "maxiter": 500},
        )
        for begin in (np.full(domains, 1.0 / domains), *corners)
    ]
    best = min(ended, key=lambda end: end.fun).x
    return np.maximum(best, 0.0) / np.maximum(best, 0.0).sum()
