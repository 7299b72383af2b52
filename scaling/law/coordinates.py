"""The coordinates the solver moves in, chosen so that a step in one of them means the same at any scale of the columns.

An exponent or a floor is its own coordinate. A place on an axis, positive and spanning decades, is its logarithm. The
coefficient of a term is the logarithm of the term's size in the middle of the points: A itself, the term's size at
x = 1, is many decades away from any point, and changes by x^Δα when α does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from scaling.law.autodiff import Dual, log
from scaling.law.forms.form import Columns, Form, Seeds

Expanded = tuple[np.ndarray, Seeds]
"""θ of u, and dθ/du."""

SMALLEST, LARGEST = 1e-12, 1e12
"""A term's size in the middle of the points, in units of the target."""


@dataclass(frozen=True)
class Coordinates:
    """From coordinates u of the free parameters to all parameters θ, and back."""

    form: Form
    fixed: Mapping[str, float]
    columns: Columns
    size: float
    """The target's size in the middle of the points."""

    @cached_property
    def free(self) -> list[int]:
        return [index for index, name in enumerate(self.form.parameter_names) if name not in self.fixed]

    @cached_property
    def heights(self) -> list[int]:
        """The free coefficients, whose coordinate is their term's size; one within stated bounds is its own."""
        own = ((index, self.form.parameters[index]) for index in self.free)
        return [index for index, each in own if each.linear and each.scale == "log" and not each.bounded]

    @cached_property
    def in_log(self) -> np.ndarray:
        """Which free coordinates are logarithms."""
        return np.array([self.form.parameters[index].scale == "log" for index in self.free], bool)

    @cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bound of each free coordinate."""
        parameters = [self.form.parameters[index] for index in self.free]
        limits = [
            (SMALLEST * self.size, LARGEST * self.size) if index in self.heights else (parameter.lower, parameter.upper)
            for index, parameter in zip(self.free, parameters)
        ]
        lower, upper = (np.array(ends) for ends in zip(*limits))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.in_log, np.log(lower), lower), np.where(self.in_log, np.log(upper), upper)

    @np.errstate(all="ignore")
    def of(self, theta: np.ndarray) -> np.ndarray:
        """u of θ, inside the bounds."""
        theta = np.asarray(theta, float)
        plain = theta[..., self.free]
        u = np.where(self.in_log, np.log(np.maximum(plain, 1e-300)), plain)
        if self.heights:
            u[..., self._rows] += np.moveaxis(self._shapes(theta, {}).value[..., 0], 0, -1)
        return np.clip(u, *self.bounds)

    def theta(self, u: np.ndarray) -> np.ndarray:
        """θ of u, the fixed parameters filled in."""
        return self.expand(u, seeded=False)[0]

    @np.errstate(all="ignore")
    def expand(self, u: np.ndarray, seeded: bool = True) -> Expanded:
        """θ of u, and dθ/du: for each parameter its derivative by each coordinate that moves it."""
        theta = np.empty((*u.shape[:-1], len(self.form.parameters)))
        for index, name in enumerate(self.form.parameter_names):
            if name in self.fixed:
                theta[..., index] = self.fixed[name]
        theta[..., self.free] = np.where(self.in_log, np.exp(u), u)
        ones = np.ones((*u.shape[:-1], 1))
        seeds: Seeds = {
            index: {row: theta[..., index : index + 1] if log else ones}
            for row, (index, log) in enumerate(zip(self.free, self.in_log))
        }
        if self.heights:
            others = {index: seed for index, seed in seeds.items() if index not in self.heights} if seeded else {}
            shapes = self._shapes(theta, others)
            for k, (row, index) in enumerate(zip(self._rows, self.heights)):
                height = np.exp(u[..., row : row + 1] - shapes.value[k])
                theta[..., index : index + 1] = height
                seeds[index] = {row: height} | {r: -height * slope[k] for r, slope in shapes.gradient.items()}
        return theta, seeds

    @cached_property
    def _middle(self) -> Columns:
        """For each coefficient the row at which its term is measured, `[heights, 1, 1]`."""
        rows = [self.form.reference(self.columns, self.form.parameters[index]) for index in self.heights]
        return {name: np.array([row[name] for row in rows])[:, None, None] for name in self.form.inputs}

    @cached_property
    def _linear(self) -> list[int]:
        return [index for index, parameter in enumerate(self.form.parameters) if parameter.linear]

    @cached_property
    def _rows(self) -> list[int]:
        return [self.free.index(index) for index in self.heights]

    def _shapes(self, theta: np.ndarray, seeds: Seeds) -> Dual:
        """log |term / coefficient| in the middle of the points, `[heights, ..., 1]`."""
        alone = np.repeat(theta[None], len(self.heights), axis=0)
        alone[..., self._linear] = 0.0
        for k, index in enumerate(self.heights):
            alone[k, ..., index] = 1.0
        curved = {index: seed for index, seed in seeds.items() if index not in self._linear}
        flat = theta.ndim == 1
        middle = {name: row[..., 0] for name, row in self._middle.items()} if flat else self._middle
        term = self.form.evaluate(alone, middle, curved)
        sign = np.where(term.value < 0, -1.0, 1.0)
        return log(term * sign)
