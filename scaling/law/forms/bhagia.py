"""Accuracy of tasks from loss, by a sigmoid."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaling.law.autodiff import Dual, sigmoid
from scaling.law.forms.form import Columns, Form, Parameter


class TaskSigmoid(Form):
    """Acc(L) = b + a / (1 + exp(k (L - L₀))). Bhagia et al. 2024, arXiv 2412.04403, eq. 3, with a > 0 and k > 0."""

    formula = "Acc(L) = b + a / (1 + exp(k (L - L₀)))"
    citation = "Bhagia et al. 2024, arXiv 2412.04403"
    special_cases = ("TaskExponential's shape far above L₀",)
    target = "accuracy"
    inputs = ("loss",)
    parameters = (
        Parameter("b", "accuracy", "linear", -1.0, 1.0, (0.0, 0.5), linear=True),
        Parameter("a", "accuracy", "log", 1e-6, 1e3, (0.1, 1.0), linear=True),
        Parameter("k", "1 / nat", "log", 1e-3, 1e3, (0.5, 20.0)),
        Parameter("L_0", "nats", "linear", -1e3, 1e3, "loss"),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        return p.b + p.a * sigmoid(-p.k * (x.loss - p.L_0))

    def start(self, rng: np.random.Generator, count: int, inputs: Columns, target: np.ndarray) -> np.ndarray:
        """The steepness starts in units of the range of the losses."""
        theta = super().start(rng, count, inputs, target)
        theta[:, 2] /= max(float(np.ptp(inputs["loss"])), 1e-9)
        return self._share_out(rng, theta, inputs, target)
