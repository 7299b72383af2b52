"""What an estimate rests on: where Huber's penalty turns linear, and each of the points."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from scaling.errors import ScalingError
from scaling.law.fit import Fit
from scaling.law.objective import Objective
from scaling.law.solver import PATIENT, minimise

DELTAS = (np.inf, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
"""From least squares to almost the absolute error, in units of log loss."""
MOST_POINTS = 300


@dataclass(frozen=True)
class Sensitivity:
    """One parameter under other penalties, and without each point in turn; not a number where a refit fails."""

    parameter: str
    estimate: float
    by_delta: np.ndarray
    """Under each of `DELTAS`."""
    without: np.ndarray
    """In the order of the table's rows."""


def sensitivity(fit: Fit) -> Sensitivity:
    """That of the law's floor, or of its first free parameter where it has none."""
    free = [fit.form.parameters[index] for index in fit.problem.free]
    chosen = next((each for each in free if each.linear and each.scale == "linear"), free[0]).name
    index = fit.form.parameter_names.index(chosen)
    without = _one_by_one(fit, chosen) if fit.problem.shared is not None else _at_once(fit, index)
    u, by_delta = fit.u[None], []
    for delta in DELTAS:  # each from where the one before ended
        problem = replace(fit.problem, objective=_at(fit.problem.objective, delta))
        best = minimise(problem, u, effort=PATIENT)
        u = np.where(best.converged[:, None], best.u, u)
        by_delta.append(problem.theta(best.u[0])[index] if best.converged[0] else np.nan)
    return Sensitivity(chosen, fit.estimates[chosen], np.array(by_delta), without)


def _at_once(fit: Fit, index: int) -> np.ndarray:
    """Every fit without one point, from the whole one's optimum: one point less moves it little."""
    problem, count = fit.problem, len(fit.points)
    best = minimise(problem, np.tile(fit.u, (count, 1)), problem.weights * (1.0 - np.eye(count)), effort=PATIENT)
    without = np.empty(count)
    without[fit.order] = np.where(best.converged, problem.theta(best.u)[:, index], np.nan)
    return without


def _one_by_one(fit: Fit, chosen: str) -> np.ndarray:
    """The same where points share errors, whose correlation each fit learns again."""
    without = np.full(len(fit.points), np.nan)
    for row in range(len(fit.points)):
        try:
            without[row] = fit.without(np.arange(len(fit.points)) == row, starts=fit.theta[None]).estimates[chosen]
        except ScalingError:
            continue
    return without


def _at(objective: Objective, delta: float) -> Objective:
    return replace(objective, delta=delta, path=())
