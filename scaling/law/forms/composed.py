"""A law of a task's score given the loss, and in the place of its loss a law of the loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from scaling.errors import ScalingError
from scaling.law.autodiff import Dual
from scaling.law.forms.constrained import Bounds, constrained
from scaling.law.forms.form import Columns, Form, Parameter

Value = TypeVar("Value")

PREFIX = "task_"
"""Before the parameters of the second step: `task_b` is b of task_sigmoid."""


@dataclass(frozen=True)
class Composed(Form):
    """score(N, D, …) = task(loss(N, D, …)). Bhagia et al. 2024, arXiv 2412.04403, section 3."""

    loss: Form
    task: Form

    def __post_init__(self):
        if self.task.inputs != ("loss",):
            raise ScalingError(
                f"{self.task.name} is not a law of a task given loss", fix="take task_sigmoid, task_power, …"
            )
        if self.loss.target != "loss" or "loss" in self.loss.inputs:
            raise ScalingError(
                f"{self.loss.name} is not a law of the loss", fix="take chinchilla, power_law_floor_c, …"
            )

    @property
    def name(self) -> str:
        return f"{self.loss.name},{self.task.name}"

    @property
    def formula(self) -> str:  # type: ignore[override]
        return f"{self.loss.formula}, {self.task.formula}"

    @property
    def citation(self) -> str:  # type: ignore[override]
        return "; ".join(dict.fromkeys((self.loss.citation, self.task.citation)))

    @property
    def special_cases(self) -> tuple[str, ...]:  # type: ignore[override]
        return ()

    @property
    def target(self) -> str:  # type: ignore[override]
        return self.task.target

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.loss.inputs

    @property
    def axes(self) -> tuple[str, ...]:
        return self.loss.axes

    @property
    def parameters(self) -> tuple[Parameter, ...]:  # type: ignore[override]
        return (
            *self.loss.parameters,
            *(replace(parameter, name=PREFIX + parameter.name, linear=False) for parameter in self.task.parameters),
        )

    def curve(self, p: Any, x: Any) -> Dual:
        later = SimpleNamespace(**{name: getattr(p, PREFIX + name) for name in self.task.parameter_names})
        return self.task.curve(later, SimpleNamespace(loss=self.loss.curve(p, x)))

    def constrained(self, ties: Mapping[str, str], limits: Mapping[str, Bounds]) -> Composed:
        """Both steps under these ties and bounds, each under its own names."""
        first_ties, later_ties = _by_step(ties)
        first_limits, later_limits = _by_step(limits)
        later_ties = {name: other.removeprefix(PREFIX) for name, other in later_ties.items()}
        return Composed(
            constrained(self.loss, first_ties, first_limits), constrained(self.task, later_ties, later_limits)
        )

    def start(self, rng: np.random.Generator, count: int, inputs: Columns, target: np.ndarray) -> np.ndarray:
        raise ScalingError(f"{self.name} is fitted in two steps", fix="use scaling.law.fit_two_steps")


def _by_step(stated: Mapping[str, Value]) -> tuple[dict[str, Value], dict[str, Value]]:
    """What is stated by parameter, for the first step and for the second, each under its own names."""
    first = {name: value for name, value in stated.items() if not name.startswith(PREFIX)}
    later = {name.removeprefix(PREFIX): value for name, value in stated.items() if name.startswith(PREFIX)}
    return first, later
