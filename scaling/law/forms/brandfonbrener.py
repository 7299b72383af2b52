"""The loss on one set from the loss on another."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaling.law.autodiff import Dual, maximum
from scaling.law.forms.form import Columns, Form, Parameter, coefficient, exponent, floor

NEAREST = 1e-9
"""Nats above E_a at which a loss below it counts, where the law would have no value."""


class LossToLoss(Form):
    """L_b = E_b + K (L_a - E_a)^κ. Brandfonbrener et al. 2024, arXiv 2411.12925, eq. 6.

    E_a and E_b are the floors of the two losses; the paper takes them from a law of each.
    """

    formula = "L_b = E_b + K (L_a - E_a)^κ"
    citation = "Brandfonbrener et al. 2024, arXiv 2411.12925"
    special_cases = ("TaskPower at E_a = 0",)
    target = "loss_b"
    inputs = ("loss_a",)
    parameters = (
        floor("E_b"),
        coefficient("K", "nats per token ^ (1 - κ)"),
        exponent("kappa", start=(0.3, 2.0)),
        Parameter("E_a", "nats per token", "linear", 0.0, 1e6, (0.0, 1.0)),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        return p.E_b + p.K * maximum(x.loss_a - p.E_a, np.full_like(x.loss_a, NEAREST)) ** p.kappa

    def start(self, rng: np.random.Generator, count: int, inputs: Columns, target: np.ndarray) -> np.ndarray:
        """The floor that is predicted from starts below the lowest loss."""
        theta = super().start(rng, count, inputs, target)
        theta[:, 3] = rng.uniform(0.0, 0.98, count) * float(np.min(inputs["loss_a"]))
        return self._share_out(rng, theta, inputs, target)
