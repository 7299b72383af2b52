"""Cooled: whether runs whose learning rate fell over few steps end with a higher loss than the law of the others."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaling.laws.fit import FittedLaw
from scaling.laws.intervals import Interval, student

COOLDOWN = "cooldown"
"""The column of the steps over which the learning rate of a run fell."""


def undercooled(fit: FittedLaw, level: float = 0.95) -> Interval | None:
    """What the shortest cool-down costs, as a fraction of the loss; None where the points do not show it.

    The variable 1/steps is added to the law, linearised at its optimum: an excess c n₀/n of log loss, n₀ the fewest
    steps, has Student's t with a degree of freedom less than the law. (Added variables: Cook and Weisberg 1982,
    Residuals and Influence in Regression, section 2.4.)
    """
    freedom = fit.degrees_of_freedom - 1
    if COOLDOWN not in fit.points or fit.form.target != "loss" or freedom < 1:
        return None
    steps = fit.points.numbers(COOLDOWN)[fit.order]
    if steps.min() <= 0 or steps.min() == steps.max():
        return None
    root = np.sqrt(fit.problem.weights)
    residual, jacobian = fit.problem.linearise(fit.u[None])
    basis, _ = np.linalg.qr((jacobian[0] * root).T)

    def apart(values: np.ndarray) -> np.ndarray:
        """What the law's parameters cannot explain of values."""
        return values * root - basis @ (basis.T @ (values * root))

    shape = fit.problem.whitened((steps.min() / steps)[None, None])[0, 0]
    excess, observed = apart(shape), apart(-residual[0])  # a residual is predicted less observed
    square = float(excess @ excess)
    if square < 1e-6 * float(root @ root):  # the law's own terms have the same shape
        return None
    estimate = float(excess @ observed) / square
    error = float(np.sqrt(((observed - estimate * excess) ** 2).sum() / freedom / square))
    half = student(level, freedom) * error
    return Interval("excess of the shortest cool-down", estimate, estimate - half, estimate + half, level, "t")


def excess_of_short_cooldowns(fit: FittedLaw, level: float = 0.95) -> dict[str, Any] | None:
    """The excess of the shortest cool-down with a sentence, as a document."""
    excess = undercooled(fit, level)
    if excess is None:
        return None
    steps = fit.points.numbers(COOLDOWN)
    span = f"cool-downs of {steps.min():,.0f} to {steps.max():,.0f} steps"
    cost = f"the shortest costs {excess.estimate:.2%} [{excess.low:.2%}, {excess.high:.2%}] of the loss"
    if excess.low > 0:
        sentence = f"{span}: {cost}, so short runs are undercooled; raise schedule.decay"
    else:
        sentence = f"{span}: no undercooled run is seen; {cost}"
    return {**excess.to_json(), "steps": [float(steps.min()), float(steps.max())], "sentence": sentence}
