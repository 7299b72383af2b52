"""The score of a task from loss, and from size and data without a loss between."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaling.law.autodiff import Dual, sigmoid
from scaling.law.forms.form import Columns, Form, Parameter, coefficient, exponent, floor

CITATION = "Bhagia et al. 2024, arXiv 2412.04403"
BITS = "bits per byte"


class TaskSigmoid(Form):
    """Acc(L) = b + a / (1 + exp(k (L - L₀))). Bhagia et al. 2024, arXiv 2412.04403, eq. 3, with a > 0 and k > 0."""

    formula = "Acc(L) = b + a / (1 + exp(k (L - L₀)))"
    citation = CITATION
    special_cases = ("TaskExponential's shape far above L₀",)
    target = "accuracy"
    inputs = ("loss",)
    objective = "squared"
    chance = "b"
    height = "a"
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


class TaskLinear(Form):
    """bits(L) = m + s L. The first order of TaskPower."""

    formula = "bits(L) = m + s L"
    citation = CITATION
    special_cases = ("TaskPower at g = 1",)
    target = "bits_per_byte"
    inputs = ("loss",)
    parameters = (
        Parameter("m", BITS, "linear", -1e3, 1e3, (-1.0, 1.0), linear=True),
        Parameter("s", f"{BITS} / nat", "log", 1e-6, 1e6, (0.1, 1.0), linear=True),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        return p.m + p.s * x.loss


class TaskPower(Form):
    """bits(L) = e + s L^g, the shifted power law between two losses with the floor of L at 0 (LossToLoss)."""

    formula = "bits(L) = e + s L^g"
    citation = "Brandfonbrener et al. 2024, arXiv 2411.12925"
    special_cases = ("TaskLinear at g = 1",)
    target = "bits_per_byte"
    inputs = ("loss",)
    parameters = (
        floor("e", BITS),
        coefficient("s", f"{BITS} / nat ^ g"),
        exponent("g", upper=20.0, start=(0.3, 5.0)),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        return p.e + p.s * x.loss**p.g


class DirectSigmoid(Form):
    """Acc(N, D) = b + a / (1 + exp(A N^-α + B D^-β - s)): TaskSigmoid of Chinchilla's law, fitted in one step."""

    formula = "Acc(N, D) = b + a / (1 + exp(A N^-α + B D^-β - s))"
    citation = CITATION
    special_cases = ("TaskSigmoid of Chinchilla, s = k (L₀ - E)",)
    target = "accuracy"
    inputs = ("N", "D")
    objective = "squared"
    chance = "b"
    height = "a"
    parameters = (
        *TaskSigmoid.parameters[:2],
        Parameter("A", "unit of the column ^ exponent", "log", 1e-30, 1e30, (1.0, 1e4)),
        Parameter("B", "unit of the column ^ exponent", "log", 1e-30, 1e30, (1.0, 1e4)),
        exponent("alpha"),
        exponent("beta"),
        Parameter("s", "1", "linear", -50.0, 50.0, (-1.0, 6.0)),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        return p.b + p.a * sigmoid(p.s - p.A * x.N**-p.alpha - p.B * x.D**-p.beta)

    def start(self, rng: np.random.Generator, count: int, inputs: Columns, target: np.ndarray) -> np.ndarray:
        """Each term starts at 0.1 to 10 in the middle of the points."""
        theta = super().start(rng, count, inputs, target)
        for place, name, power in ((2, "N", 4), (3, "D", 5)):
            middle = float(np.mean(np.log(inputs[name])))
            theta[:, place] = np.exp(rng.uniform(np.log(0.1), np.log(10.0), count) + theta[:, power] * middle)
        return self._share_out(rng, theta, inputs, target)


class DirectBits(Form):
    """bits(N, D) = E + A N^-α + B D^-β. Bhagia et al. 2024, arXiv 2412.04403, eq. 1, of a task's bits per byte."""

    formula = "bits(N, D) = E + A N^-α + B D^-β"
    citation = CITATION
    special_cases = ("Chinchilla of another target",)
    target = "bits_per_byte"
    inputs = ("N", "D")
    parameters = (
        floor("E", BITS),
        coefficient("A", f"{BITS} × unit of the column ^ exponent"),
        coefficient("B", f"{BITS} × unit of the column ^ exponent"),
        exponent("alpha"),
        exponent("beta"),
    )

    def curve(self, p: Any, x: Any) -> Dual:
        return p.E + p.A * x.N**-p.alpha + p.B * x.D**-p.beta
