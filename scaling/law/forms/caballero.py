"""Broken neural scaling laws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.law.autodiff import Dual, exp, log, log1p_exp
from scaling.law.forms.form import Columns, Form, Parameter, coefficient, floor, scale


@dataclass(frozen=True)
class Broken(Form):
    """L(x) = a + b x^-c₀ Πᵢ (1 + (x/dᵢ)^(1/fᵢ))^(-cᵢ fᵢ), k breaks. Caballero et al. 2022, arXiv 2210.14891, eq. 1.

    dᵢ is where the i-th break lies, cᵢ by how much the slope changes there and fᵢ how gradual it is.
    """

    x: str = "C"
    breaks: int = 1
    formula = "L(x) = a + b x^-c₀ Πᵢ (1 + (x/dᵢ)^(1/fᵢ))^(-cᵢ fᵢ)"
    citation = "Caballero et al. 2022, arXiv 2210.14891"
    special_cases = ("PowerLawFloor with no break or at every cᵢ = 0",)

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.x,)

    @property
    def name(self) -> str:
        return f"broken_{self.x.lower()}_{self.breaks}"

    @property
    def parameters(self) -> tuple[Parameter, ...]:  # type: ignore[override]
        bends = (
            (
                Parameter(f"c_{i}", "1", "linear", -10.0, 10.0, (-1.0, 1.0)),
                scale(f"d_{i}", self.x, "unit of the column"),
                Parameter(f"f_{i}", "1", "log", 1e-3, 1e2, (0.1, 1.5)),
            )
            for i in range(1, self.breaks + 1)
        )
        first = Parameter("c_0", "1", "linear", -10.0, 10.0, (-0.2, 1.0))
        return (floor("a"), coefficient("b"), first, *(bend for bends_i in bends for bend in bends_i))

    def curve(self, p: Any, x: Any) -> Dual:
        column = getattr(x, self.x)
        fall = p.b * column**-p.c_0
        for i in range(1, self.breaks + 1):
            change, place, gradual = (getattr(p, f"{letter}_{i}") for letter in "cdf")
            past = log1p_exp(-(log(place / column)) / gradual)
            fall = fall * exp(-change * gradual * past)
        return p.a + fall

    def start(self, rng: np.random.Generator, count: int, inputs: Columns, target: np.ndarray) -> np.ndarray:
        """A random floor and random breaks; slopes by least squares of log(L - a) on the broken line they make."""
        theta = super().start(rng, count, inputs, target)
        axis = np.log(inputs[self.x])
        floors = rng.uniform(0.0, 0.98, count) * np.min(target)
        places = np.sort(rng.uniform(axis.min(), axis.max(), (count, self.breaks)), axis=1)
        hinges = np.maximum(axis[None, None, :] - places[:, :, None], 0.0)
        lines = np.broadcast_to(np.stack([np.ones_like(axis), axis]), (count, 2, len(axis)))
        basis = np.concatenate([lines, hinges], axis=1)
        square = basis @ basis.swapaxes(1, 2)
        square += 1e-9 * np.trace(square, axis1=1, axis2=2)[:, None, None] * np.eye(2 + self.breaks)
        height = np.log(target - floors[:, None])
        line = np.linalg.solve(square, basis @ height[:, :, None])[:, :, 0]
        theta[:, 0], theta[:, 1], theta[:, 2] = floors, np.exp(line[:, 0]), -line[:, 1]
        theta[:, 3::3], theta[:, 4::3] = -line[:, 2:], np.exp(places)
        return theta

    def canonical(self, theta: np.ndarray) -> np.ndarray:
        """The breaks in the order of their places."""
        bends = theta[..., 3:].reshape(*theta.shape[:-1], self.breaks, 3)
        order = np.argsort(bends[..., 1], axis=-1)
        bends = np.take_along_axis(bends, order[..., None], axis=-2)
        return np.concatenate([theta[..., :3], bends.reshape(*theta.shape[:-1], -1)], axis=-1)
