"""From compute to a task in two steps: size and data to loss, loss to the task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from scaling.errors import ScalingError
from scaling.law.discrepancy import influence
from scaling.law.fit import STARTS, Fit, fit
from scaling.law.forms import Form
from scaling.law.forms.composed import PREFIX, Composed
from scaling.law.objective import Objective
from scaling.law.points import Points

DOUBT = 10.0
"""Runs without a correlation that count with those of the fit: few runs show little of one."""


@dataclass(frozen=True, eq=False, repr=False)
class TwoStep:
    """A law of loss and a law of a task's score given that loss.

    Bhagia et al. 2024, arXiv 2412.04403, section 3; Gadre et al. 2024, arXiv 2403.08540, section 2. `predict_runs` and
    all that uses it take it as they take a `Fit`.
    """

    loss: Fit
    task: Fit
    rows: np.ndarray | None = None
    """For each point of the second step the same run's point of the first; without it their errors are independent."""

    def __post_init__(self):
        Composed(self.loss.form, self.task.form)  # refuses what are no two steps

    def __repr__(self) -> str:
        return f"{self.loss}; {self.task}"

    @property
    def form(self) -> Composed:
        return Composed(self.loss.form, self.task.form)

    @property
    def points(self) -> Points:
        return self.loss.points

    @property
    def seed(self) -> int:
        return self.loss.seed

    @property
    def degrees_of_freedom(self) -> int:
        """Of the step that has fewer."""
        return min(self.loss.degrees_of_freedom, self.task.degrees_of_freedom)

    @property
    def parameters_fitted(self) -> int:
        """Of the step that has more."""
        return max(self.loss.parameters_fitted, self.task.parameters_fitted)

    @property
    def estimates(self) -> dict[str, float]:
        """The parameters of the first step under their names, those of the second with `task_` before them."""
        return self.loss.estimates | {PREFIX + name: value for name, value in self.task.estimates.items()}

    def predict(self, **inputs: Any) -> np.ndarray:
        """The score at these columns of the law of loss."""
        return self.task.predict(loss=self.loss.predict(**inputs))

    @cached_property
    def correlation(self) -> float:
        """Of a run's errors in the two steps, log of the loss and score given the loss."""
        if self.rows is None:
            return 0.0
        first, second = self.loss.residuals[self.rows], self.task.residuals
        size = float(np.sqrt(np.sum(first**2) * np.sum(second**2)))
        share = len(second) / (len(second) + DOUBT)
        return share * float(first @ second) / size if size > 0 else 0.0

    def correlation_of_means(self, inputs: Mapping[str, float]) -> float:
        """Of the errors of the two fitted laws, the second at the loss that the first predicts for this row."""
        if self.rows is None:
            return 0.0
        row = {name: np.array([float(inputs[name])]) for name in self.loss.form.inputs}
        first = influence(self.loss, row)[0]
        second = influence(self.task, {"loss": self.loss.predict(**row)})[0]
        size = float(np.linalg.norm(first) * np.linalg.norm(second))
        return self.correlation * float(first[self.rows] @ second) / size if size > 0 else 0.0

    def without(self, mask: np.ndarray, starts: int = STARTS) -> TwoStep:
        """The same steps fitted to the points outside the mask."""
        rows = np.arange(len(self.points)) if self.rows is None else self.rows
        kept = np.flatnonzero(~mask)
        paired = np.flatnonzero(~mask[rows])
        return TwoStep(
            self.loss.without(mask, starts),
            self.task.without(mask[rows], starts),
            None if self.rows is None else np.searchsorted(kept, rows[paired]),
        )


def fit_two_steps(
    form: Composed,
    points: Points | Mapping[str, Any],
    *,
    objective: Objective | None = None,
    weights: np.ndarray | None = None,
    clusters: str | np.ndarray | None = None,
    fixed: Mapping[str, float] | None = None,
    shared: str | np.ndarray | None = None,
    starts: int = STARTS,
    seed: int = 0,
) -> TwoStep:
    """Fit both steps to the same runs; a run without a score takes part in the first step alone.

    `fixed` names parameters of the second step with `task_` before them; `objective` is that of both steps.
    """
    points = points if isinstance(points, Points) else Points({name: np.asarray(c) for name, c in points.items()})
    fixed = dict(fixed or {})
    later = {name.removeprefix(PREFIX): fixed.pop(name) for name in list(fixed) if name.startswith(PREFIX)}
    scored = has_score(form, points)
    labels, groups = (points[name] if isinstance(name, str) else name for name in (clusters, shared))

    def step(law: Form, mask: np.ndarray, constants: Mapping[str, float]) -> Fit:
        return fit(
            law,
            points if mask.all() else points.where(mask),
            objective=objective,
            weights=None if weights is None else weights[mask],
            clusters=None if labels is None else labels[mask],
            fixed=constants,
            shared=None if groups is None else groups[mask],
            starts=starts,
            seed=seed,
        )

    first = step(form.loss, np.ones(len(points), bool), fixed)
    return TwoStep(first, step(form.task, scored, later), np.flatnonzero(scored))


def fit_law(form: Form | str, points: Points | Mapping[str, Any], **choices: Any) -> Fit | TwoStep:
    """The law fitted to the points, in one step or, where it has two, in two."""
    return (fit_two_steps if isinstance(form, Composed) else fit)(form, points, **choices)  # type: ignore[arg-type]


def has_score(form: Composed, points: Points) -> np.ndarray:
    """Which runs have a score; refused where none has."""
    column = points[form.target]
    if not np.issubdtype(column.dtype, np.number):
        raise ScalingError(
            "is not a number in every row",
            file=points.source or None,
            key=form.target,
            fix="correct the cells, or leave those of runs without a score empty",
        )
    scored = np.isfinite(column.astype(float))
    if not scored.any():
        raise ScalingError("no run has a score", file=points.source or None, key=form.target, fix="evaluate some")
    return scored
