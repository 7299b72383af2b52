"""The law of parallel streams."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaling.law.autodiff import Dual
from scaling.law.forms.form import Form, Parameter, coefficient, exponent, floor


class ParallelStreams(Form):
    """L(N, P) = E + A (N (1 + k ln P))^-α, P streams of one model.

    Chen et al. 2025 (ParScale), arXiv 2505.10475, eq. 5. The P outputs of the same N parameters are aggregated; k is
    how much of the size a stream is worth.
    """

    formula = "L(N, P) = E + A (N (1 + k ln P))^-α"
    citation = "Chen et al. 2025, arXiv 2505.10475"
    special_cases = ("PowerLawFloor in N at P = 1 or k = 0",)
    inputs = ("N", "streams")
    parameters = (
        floor(),
        coefficient("A"),
        exponent("alpha"),
        Parameter("k", "1", "log", 1e-6, 1e4, (0.01, 10.0)),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        return p.E + p.A * (x.N * (1.0 + p.k * np.log(x.streams))) ** -p.alpha
