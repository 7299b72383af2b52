"""What a law is: a formula over named parameters and columns, with units, bounds and where to start looking."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from scaling.law.autodiff import Dual

Columns = Mapping[str, np.ndarray]
Inputs = Mapping[str, ArrayLike]
Seeds = dict[int, dict[int, np.ndarray]]


@dataclass(frozen=True)
class Parameter:
    """One unknown of a law.

    `scale` is the coordinate the solver moves in: "log" for quantities that are positive and span decades.
    `start` is the range random starts are drawn from, or the name of the column whose range it is.
    `linear`: the prediction is a sum in which this parameter multiplies one term (variable projection).
    """

    name: str
    unit: str
    scale: Literal["linear", "log"]
    lower: float
    upper: float
    start: tuple[float, float] | str
    linear: bool = False
    bounded: bool = False
    """A person stated its bounds: they hold for the parameter itself, even where its term is the coordinate."""


def floor(name: str = "E", unit: str = "nats per token") -> Parameter:
    """The irreducible loss."""
    return Parameter(name, unit, "linear", 0.0, 1e6, (0.1, 2.0), linear=True)


def coefficient(name: str, unit: str = "nats per token × unit of the column ^ exponent") -> Parameter:
    """The height of a power-law term."""
    return Parameter(name, unit, "log", 1e-100, 1e100, (1.0, 1e10), linear=True)


def exponent(name: str, lower: float = 0.0, upper: float = 5.0, start: tuple[float, float] = (0.02, 1.0)) -> Parameter:
    """How fast a term falls."""
    return Parameter(name, "1", "linear", lower, upper, start)


def scale(name: str, column: str, unit: str) -> Parameter:
    """A place on a column's axis, such as a break or Kaplan's N_c."""
    return Parameter(name, unit, "log", 1e-200, 1e200, column)


class Form(ABC):
    """A scaling law. A subclass states its `formula`, `citation`, `inputs`, `parameters` and the formula as code."""

    formula: ClassVar[str]
    citation: ClassVar[str]
    special_cases: ClassVar[tuple[str, ...]] = ()
    derived: ClassVar[Mapping[str, Callable[[Any], Dual]]] = {}
    """Quantities the literature quotes that are formulas of the parameters, by name."""
    target: str = "loss"
    inputs: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    objective: ClassVar[str] = "log_huber"
    """What a fit minimises unless another objective is named."""
    chance: ClassVar[str | None] = None
    """The parameter that is the score of guessing, where there is one."""
    height: ClassVar[str | None] = None
    """The parameter that is the distance from there to the score at a loss of zero."""

    @abstractmethod
    def curve(self, p: Any, x: Any) -> Dual:
        """The formula: `p` holds the parameters, `x` the columns, each under its own name."""

    @property
    def name(self) -> str:
        """The law's name on the command line: its class in snake case."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    @property
    def axes(self) -> tuple[str, ...]:
        """The columns of a run's size: all of them, but for the code of its variant."""
        return self.inputs

    @property
    def free_axes(self) -> tuple[str, ...]:
        """Those that a design can choose: all of them, unless one follows from the others."""
        return self.axes

    @property
    def tied(self) -> Mapping[str, str]:
        """Names that are another parameter's in this fit, and which."""
        return {}

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.parameters)

    def predict(self, theta: np.ndarray, inputs: Inputs) -> np.ndarray:
        """The law at parameters `theta[..., p]` for n rows of columns: `[..., n]`."""
        return self._shaped(self.evaluate(theta, inputs, seeds={}).value, theta, inputs)

    def jacobian(self, theta: np.ndarray, inputs: Inputs) -> np.ndarray:
        """The exact derivative of `predict` with respect to each parameter: `[..., n, p]`."""
        theta = np.asarray(theta, float)
        ones = {index: {index: np.ones_like(theta[..., :1])} for index in range(len(self.parameters))}
        gradient = self.evaluate(theta, inputs, seeds=ones).gradient
        zero = np.zeros((*theta.shape[:-1], 1))
        parts = [self._shaped(gradient.get(index, zero), theta, inputs) for index in ones]
        return np.stack(parts, axis=-1)

    @np.errstate(all="ignore")  # a start may overflow, and loses by it
    def evaluate(self, theta: np.ndarray, inputs: Inputs, seeds: Seeds) -> Dual:
        """The formula on dual numbers; `seeds` hold dθ/du, by parameter and then by coordinate u."""
        columns = {name: np.asarray(inputs[name], float) for name in self.inputs}
        return self.curve(self.named_duals(theta, seeds), SimpleNamespace(**columns))

    def named_duals(self, theta: np.ndarray, seeds: Seeds) -> SimpleNamespace:
        """The parameters as dual numbers `[..., 1]` under their names."""
        theta = np.asarray(theta, float)
        return SimpleNamespace(
            **{
                name: Dual(theta[..., index : index + 1], seeds.get(index, {}))
                for index, name in enumerate(self.parameter_names)
            }
        )

    def start(self, rng: np.random.Generator, count: int, inputs: Columns, target: np.ndarray) -> np.ndarray:
        """`count` random starts `[count, p]`: uniform in each parameter's own scale and range."""
        theta = np.empty((count, len(self.parameters)))
        for index, parameter in enumerate(self.parameters):
            low, high = self._range(parameter, inputs)
            draw = rng.random(count)
            if parameter.scale == "log":
                theta[:, index] = np.exp(np.log(low) + draw * np.log(high / low))
            else:
                theta[:, index] = low + draw * (high - low)
        return self._share_out(rng, theta, inputs, target)

    @staticmethod
    def _range(parameter: Parameter, inputs: Columns) -> tuple[float, float]:
        if isinstance(parameter.start, str):
            return float(np.min(inputs[parameter.start])), float(np.max(inputs[parameter.start]))
        return parameter.start

    def _share_out(
        self, rng: np.random.Generator, theta: np.ndarray, inputs: Columns, target: np.ndarray
    ) -> np.ndarray:
        """Give each linear term a random fraction of the middle loss, so that starts do not depend on units."""
        linear = [index for index, parameter in enumerate(self.parameters) if parameter.linear]
        if not linear:
            return theta
        theta[:, linear] = 1.0
        terms = np.mean(np.abs(self.jacobian(theta, inputs)[:, :, linear]), axis=1)
        shares = rng.dirichlet(np.ones(len(linear)), size=len(theta))
        theta[:, linear] = shares * abs(np.median(target)) / np.maximum(terms, 1e-280)
        return theta

    def reference(self, inputs: Columns, parameter: Parameter) -> dict[str, float]:
        """The row in the middle of the points at which the size of a parameter's term is its coordinate."""
        return {name: _middle(np.asarray(inputs[name], float)) for name in self.inputs}

    def check(self, columns: Columns) -> None:  # noqa: B027  (most laws ask nothing more of their columns)
        """Refuse columns that this law cannot have, such as proportions that do not sum to one."""

    def canonical(self, theta: np.ndarray) -> np.ndarray:
        """The same law written in its one agreed way, where parameters can trade places."""
        return theta

    def _shaped(self, values: np.ndarray, theta: np.ndarray, inputs: Inputs) -> np.ndarray:
        n = len(np.atleast_1d(inputs[self.inputs[0]]))
        return np.broadcast_to(values, (*np.asarray(theta).shape[:-1], n))


def _middle(column: np.ndarray) -> float:
    return float(np.exp(np.mean(np.log(column)))) if column.min() > 0 else float(np.mean(column))
