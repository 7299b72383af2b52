"""Laws of mixtures of experts in the size of one expert's model and the number of experts."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaling.law.autodiff import Dual, exp, log
from scaling.law.forms.form import Form, Parameter, coefficient, exponent, floor

CITATION = "Clark et al. 2022, arXiv 2202.01169"
SIZE = 1e8
"""The dense size at which the coefficients are stated."""


def _interaction(name: str = "c") -> Parameter:
    return Parameter(name, "1", "linear", -1.0, 1.0, (-0.1, 0.1))


class RoutedExperts(Form):
    """log L(N, X) = log L₀ - a n - b x + c n x, n = ln(N/10⁸), x = ln X experts.

    Clark et al. 2022, arXiv 2202.01169, eq. 2. N is the size of the dense model that routing leaves active. Where
    c > 0, experts help less the larger the model.
    """

    formula = "log L(N, X) = log L₀ - a n - b x + c n x, n = ln(N/10⁸), x = ln X"
    citation = CITATION
    special_cases = ("PowerLaw in N at X = 1",)
    inputs = ("N", "experts")
    parameters = (
        Parameter("L_0", "nats per token", "log", 1e-6, 1e6, (1.0, 10.0)),
        exponent("a", -1.0, 2.0, (0.01, 0.5)),
        exponent("b", -1.0, 2.0, (0.01, 0.5)),
        _interaction(),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        size, experts = np.log(x.N / SIZE), np.log(x.experts)
        return p.L_0 * exp(p.c * size * experts - p.a * size - p.b * experts)


class RoutedExpertsFloor(Form):
    """L(N, X) = E + A exp(-a n - b x̂ + c n x̂), x̂ = ln(1 + (X - 1)/X₀): experts count from about X₀ on.

    After Clark et al. 2022, arXiv 2202.01169, eq. 2 and 7, whose X̂ saturates below and above. Departs from the paper: a
    floor E in the place of its upper saturation, with which a law without one bends alike.
    """

    formula = "L(N, X) = E + A exp(-a n - b x̂ + c n x̂), n = ln(N/10⁸), x̂ = ln(1 + (X - 1)/X₀)"
    citation = CITATION
    special_cases = ("PowerLawFloor in N at X = 1", "RoutedExperts at E = 0, X₀ = 1")
    inputs = ("N", "experts")
    parameters = (
        floor(),
        coefficient("A", "nats per token"),
        exponent("a"),
        exponent("b", -1.0, 2.0, (0.01, 0.5)),
        _interaction(),
        Parameter("X_0", "experts", "log", 1.0, 1e3, (1.0, 10.0)),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        size, experts = np.log(x.N / SIZE), log(1.0 + (x.experts - 1.0) / p.X_0)
        return p.E + p.A * exp(p.c * size * experts - p.a * size - p.b * experts)
