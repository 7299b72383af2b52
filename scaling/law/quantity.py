"""What an interval is asked for: a parameter, something derived from parameters, or a prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from scaling.errors import ScalingError, nearest
from scaling.law.autodiff import Dual, log
from scaling.law.coordinates import Expanded
from scaling.law.forms import Form
from scaling.law.forms.form import Seeds
from scaling.law.points import SIGNED
from scaling.law.problem import Problem


@dataclass(frozen=True)
class Quantity:
    """A number that the parameters decide. Its interval is searched for, and its errors are even, in `scale`."""

    name: str
    formula: Callable[[Form, np.ndarray, Seeds], Dual]
    """The law, θ `[batch, p]` and the seeds of differentiation, to a dual number `[batch, 1]`."""
    scale: Literal["linear", "log"]
    limits: tuple[float, float] = (-np.inf, np.inf)
    """What it cannot pass, in its scale."""

    @property
    def in_log(self) -> bool:
        return self.scale == "log"

    def of(self, form: Form, theta: np.ndarray) -> np.ndarray:
        """Its value at θ `[..., p]`."""
        flat = np.asarray(theta, float).reshape(-1, len(form.parameters))
        return self.formula(form, flat, {}).value[:, 0].reshape(np.shape(theta)[:-1])

    def along(self, problem: Problem, u: np.ndarray, expanded: Expanded | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Its value in its own scale `[batch]`, and its derivative by the coordinates `[batch, parameters]`.

        `expanded` is what the coordinates make of u, where it is known already.
        """
        theta, seeds = expanded or problem.coordinates.expand(u)
        dual = self.formula(problem.form, theta, seeds)
        dual = log(dual) if self.scale == "log" else dual
        slope = np.zeros(u.shape)
        for row, part in dual.gradient.items():
            slope[:, row] = np.broadcast_to(part, dual.value.shape)[:, 0]
        return np.broadcast_to(dual.value, (len(u), 1))[:, 0], slope

    def at(self, rows: np.ndarray | slice) -> Quantity:
        """For some rows of a batch it is the same."""
        return self

    def unscale(self, value: np.ndarray) -> np.ndarray:
        """From its scale to its unit."""
        return np.exp(value) if self.scale == "log" else value


@dataclass(frozen=True)
class Each:
    """A quantity of its own for each row of a batch, so that many are bounded at once."""

    quantities: Sequence[Quantity]
    which: np.ndarray

    @property
    def in_log(self) -> np.ndarray:
        return np.array([quantity.in_log for quantity in self.quantities])[self.which]

    @property
    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        low, high = np.array([quantity.limits for quantity in self.quantities])[self.which].T
        return low, high

    def along(self, problem: Problem, u: np.ndarray, expanded: Expanded | None = None) -> tuple[np.ndarray, np.ndarray]:
        theta, seeds = expanded = expanded or problem.coordinates.expand(u)
        if len(self._rows) == 1:
            return self._rows[0][0].along(problem, u, expanded)
        value, slope = np.empty(len(u)), np.empty(u.shape)
        for quantity, rows in self._rows:
            own = {each: {row: part[rows] for row, part in seed.items()} for each, seed in seeds.items()}
            value[rows], slope[rows] = quantity.along(problem, u[rows], (theta[rows], own))
        return value, slope

    @cached_property
    def _rows(self) -> list[tuple[Quantity, np.ndarray]]:
        """Each quantity of the batch, and its rows."""
        return [(self.quantities[index], np.flatnonzero(self.which == index)) for index in np.unique(self.which)]

    def at(self, rows: np.ndarray | slice) -> Each:
        return Each(self.quantities, self.which[rows])


def parameter(form: Form, name: str) -> Quantity:
    """A parameter of the law."""
    if name not in form.parameter_names:
        raise ScalingError(f"{form.name} has no parameter {name!r}", fix=nearest(name, form.parameter_names))
    chosen = form.parameters[form.parameter_names.index(name)]
    with np.errstate(divide="ignore"):
        limits = np.log((chosen.lower, chosen.upper)) if chosen.scale == "log" else (chosen.lower, chosen.upper)
    low, high = map(float, limits)
    return replace(derived(name, lambda p: getattr(p, name), scale=chosen.scale), limits=(low, high))


def derived(name: str, formula: Callable[[Any], Dual], scale: Literal["linear", "log"] = "linear") -> Quantity:
    """A formula of the parameters: `derived("a", lambda p: p.beta / (p.alpha + p.beta))`."""

    def evaluate(form: Form, theta: np.ndarray, seeds: Seeds) -> Dual:
        return formula(form.named_duals(theta, seeds))

    return Quantity(name, evaluate, scale)


def prediction(form: Form, inputs: Mapping[str, Any], name: str | None = None) -> Quantity:
    """The law at one row of columns: `prediction(form, {"N": 1e9, "D": 2e10})`."""
    row = {column: np.atleast_1d(np.asarray(inputs[column], float)) for column in form.inputs}
    label = name or f"{form.target}({', '.join(f'{column}={row[column][0]:g}' for column in form.inputs)})"
    scale: Literal["linear", "log"] = "linear" if form.target in SIGNED else "log"
    return Quantity(label, lambda law, theta, seeds: law.evaluate(theta, row, seeds), scale)
