"""A law, its points and an objective, seen by the solver: coordinates in, residuals and exact Jacobian out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scaling.law.forms.form import Form
from scaling.law.objective import Objective


@dataclass(frozen=True)
class Problem:
    """What is fitted to what. The solver's coordinates u are θ or log θ of the free parameters, by each one's scale."""

    form: Form
    columns: Mapping[str, np.ndarray]
    observed: np.ndarray
    """The target, in the space of the objective."""
    weights: np.ndarray
    objective: Objective
    fixed: Mapping[str, float]

    @property
    def free(self) -> list[int]:
        return [index for index, name in enumerate(self.form.parameter_names) if name not in self.fixed]

    @property
    def in_log(self) -> np.ndarray:
        """Which free coordinates are logarithms."""
        return np.array([self.form.parameters[index].scale == "log" for index in self.free], bool)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bound of each free coordinate."""
        lower = np.array([self.form.parameters[index].lower for index in self.free])
        upper = np.array([self.form.parameters[index].upper for index in self.free])
        return self._into(lower), self._into(upper)

    def coordinates(self, theta: np.ndarray) -> np.ndarray:
        """u of θ, inside the bounds."""
        return np.clip(self._into(np.asarray(theta, float)[..., self.free]), *self.bounds)

    def theta(self, u: np.ndarray) -> np.ndarray:
        """θ of u, the fixed parameters filled in."""
        theta = np.empty((*u.shape[:-1], len(self.form.parameters)))
        for index, name in enumerate(self.form.parameter_names):
            if name in self.fixed:
                theta[..., index] = self.fixed[name]
        theta[..., self.free] = np.where(self.in_log, np.exp(u), u)
        return theta

    def residuals(self, u: np.ndarray, observed: np.ndarray | None = None) -> np.ndarray:
        """Predicted minus observed in the objective's space, `[starts, points]`; not finite where there is no log."""
        predicted = self.form.predict(self.theta(u), self.columns)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.objective.transform(predicted) - (self.observed if observed is None else observed)

    def linearise(self, u: np.ndarray, observed: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Residuals `[starts, points]` and their derivative by u `[starts, parameters, points]`."""
        theta = self.theta(u)
        free = self.free
        seeds = {
            index: theta[:, index : index + 1] if log else np.ones((len(u), 1)) for index, log in zip(free, self.in_log)
        }
        dual = self.form.evaluate(theta, self.columns, seeds)
        jacobian = np.zeros((len(u), len(free), len(self.observed)))
        slope = 1.0 / dual.value if self.objective.space == "log" else 1.0
        for row, index in enumerate(free):
            if index in dual.gradient:
                np.multiply(dual.gradient[index], slope, out=jacobian[:, row])
        predicted = np.broadcast_to(dual.value, (len(u), len(self.observed)))
        return self.objective.transform(predicted) - (self.observed if observed is None else observed), jacobian

    def cost(self, residual: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """The objective of each row of residuals; infinite where a residual is not a number."""
        total = ((self.weights if weights is None else weights) * self.objective.penalty(residual)).sum(-1)
        return np.where(np.isfinite(total), total, np.inf)

    def _into(self, values: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.in_log, np.log(np.maximum(values, 1e-300)), values)
