"""A law, its points and an objective, seen by the solver: coordinates in, residuals and exact Jacobian out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from scaling.law.coordinates import Coordinates, Expanded
from scaling.law.forms.form import Form
from scaling.law.objective import Objective
from scaling.law.shared_errors import Correlation, SharedErrors, learned


class Correlated(Protocol):
    """How the errors of points correlate."""

    def whiten(self, values: np.ndarray) -> np.ndarray:
        """The last axis of `values` as combinations that do not correlate."""
        ...

    def at(self, rows: np.ndarray) -> Correlated:
        """For some of the points."""
        ...

    @property
    def log_determinant(self) -> float:
        """Of the covariance."""
        ...


@dataclass(frozen=True)
class Problem:
    """What is fitted to what."""

    form: Form
    columns: Mapping[str, np.ndarray]
    observed: np.ndarray
    """The target, in the space of the objective."""
    weights: np.ndarray
    objective: Objective
    fixed: Mapping[str, float]
    shared: Correlated | None = None
    """What errors the points share; residuals are then made independent of each other."""

    @cached_property
    def coordinates(self) -> Coordinates:
        """How the solver sees the parameters."""
        return Coordinates(self.form, self.fixed, self.columns, abs(float(np.median(self.loss))))

    @cached_property
    def loss(self) -> np.ndarray:
        """The target in its own unit."""
        return np.exp(self.observed) if self.objective.space == "log" else self.observed

    @property
    def free(self) -> list[int]:
        return self.coordinates.free

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return self.coordinates.bounds

    def theta(self, u: np.ndarray) -> np.ndarray:
        """All parameters, from the coordinates of the free ones."""
        return self.coordinates.theta(u)

    def errors(self, u: np.ndarray, observed: np.ndarray | None = None) -> np.ndarray:
        """Predicted minus observed in the objective's space, `[starts, points]`; not finite where there is no log."""
        predicted = self.form.predict(self.theta(u), self.columns)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.objective.transform(predicted) - (self.observed if observed is None else observed)

    def residuals(self, u: np.ndarray, observed: np.ndarray | None = None) -> np.ndarray:
        """The errors, made independent of each other where points share some."""
        return self.whitened(self.errors(u, observed))

    def whitened(self, values: np.ndarray) -> np.ndarray:
        """Values of the points `[..., points]` as combinations that do not correlate."""
        if self.shared is None:
            return values
        with np.errstate(invalid="ignore"):
            if self._alike:
                return self.shared.whiten(values)
            root = np.sqrt(self.weights)
            return self.shared.whiten(values * root) / root

    @cached_property
    def _alike(self) -> bool:
        """Whether every point has weight 1."""
        return bool((self.weights == 1.0).all())

    def linearise(
        self, u: np.ndarray, observed: np.ndarray | None = None, expanded: Expanded | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Residuals `[starts, points]` and their derivative by u `[starts, parameters, points]`."""
        theta, seeds = expanded or self.coordinates.expand(u)
        dual = self.form.evaluate(theta, self.columns, seeds)
        both = np.zeros((len(u), 1 + u.shape[1], len(self.observed)))
        both[:, 0] = self.objective.transform(dual.value) - (self.observed if observed is None else observed)
        slope = 1.0 / dual.value if self.objective.space == "log" else 1.0
        for row, part in dual.gradient.items():
            np.multiply(part, slope, out=both[:, 1 + row])
        both = self.whitened(both)
        return both[:, 0], both[:, 1:]

    def correlation(self, u: np.ndarray) -> Correlation | None:
        """What the errors at `u` show of how they correlate within groups; None where points share none."""
        if not isinstance(self.shared, SharedErrors) or len(self.observed) <= len(self.free):
            return None
        root = np.sqrt(self.weights)
        residual, jacobian = replace(self, shared=None).linearise(u[None])
        return learned(self.shared, jacobian[0] * root, -residual[0] * root)

    def at(self, rows: np.ndarray) -> Problem:
        """That of some of the rows."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        shared = self.shared and self.shared.at(rows)
        return replace(self, columns=columns, observed=self.observed[rows], weights=self.weights[rows], shared=shared)

    def cost(self, residual: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """The objective of each row of residuals; infinite where a residual is not a number."""
        total = ((self.weights if weights is None else weights) * self.objective.penalty(residual)).sum(-1)
        return np.where(np.isfinite(total), total, np.inf)


def thinned(problem: Problem, most: int) -> Problem:
    """The problem of at most `most` of its rows, evenly spaced in their order; itself where it has no more."""
    rows = len(problem.observed)
    step = -(-rows // most)
    return problem if step == 1 else problem.at(np.arange(0, rows, step))
