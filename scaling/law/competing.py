"""Competing laws of an optimum: the best use of a budget depends on the law's form, which an interval does not hold.

Each other law of N and D is fitted to the same points, with their shared errors, under the same objective and equal
weights; where the fitted law has other weights, that law with equal ones too. Those whose residuals are about as small
compete: the same points support what they say of an optimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaling.errors import ScalingError
from scaling.law.diagnostics import POINTS_A_PARAMETER
from scaling.law.fit import Fit, fit
from scaling.law.forms import laws
from scaling.law.frontier import Optimum, optimal
from scaling.law.identification import is_wide_size
from scaling.law.interval import Interval

COMPETES = 2.0
"""Times the smallest scale of the residuals among the laws, up to which a law competes."""
STARTS = 64


@dataclass(frozen=True)
class CompetingOptimum:
    """The best use of a budget by another law, with intervals by Student's t."""

    law: str
    residual_scale: float
    best: Optimum

    def agrees(self, size: Interval | float) -> bool:
        """Whether its size lies in the interval of the fitted law; without one, that law's size in its interval."""
        if isinstance(size, Interval):
            return size.covers(self.best.N.estimate)
        return self.best.N.covers(size)


@dataclass(frozen=True)
class Competitor:
    """A competing law as fitted, what it is called, and the scale of its residuals."""

    name: str
    fit: Fit
    residual_scale: float


def competitors(law: Fit) -> tuple[Competitor, ...]:
    """The fits of the competing laws; none where the law is not one of N and D, or its points are few."""
    if set(law.form.inputs) != {"N", "D"} or law.form.target != "loss":
        return ()
    weighted = not np.allclose(law.weights, 1.0)
    others = []
    for form in laws().values():
        comparable = set(form.inputs) == {"N", "D"} and form.target == law.form.target
        enough = len(law.problem.observed) >= POINTS_A_PARAMETER * len(form.parameters)
        if (form.name == law.form.name and not weighted) or not comparable or not enough:
            continue
        try:
            other = fit(
                form,
                law.points,
                objective=law.problem.objective,
                clusters=law.labels,
                shared=law.groups,
                starts=STARTS,
                seed=law.seed,
            )
        except ScalingError:
            continue  # it does not converge on these points
        name = f"{form.name} with equal weights" if weighted else form.name
        others.append(Competitor(name, other, residual_scale(other)))
    smallest = min((residual_scale(law), *(other.residual_scale for other in others)))
    return tuple(other for other in others if other.residual_scale <= COMPETES * smallest)


def residual_scale(law: Fit) -> float:
    """The root mean square residual, without weights."""
    return float(np.sqrt(np.sum(law.residuals**2) / max(law.degrees_of_freedom, 1)))


def competing_optima(
    others: tuple[Competitor, ...], C: float, served: float, level: float
) -> tuple[CompetingOptimum, ...]:
    """What the competing laws that identify an optimum make of a budget."""
    optima = []
    for other in others:
        best = optimal(other.fit, C, served=served, method="t", level=level)
        if not is_wide_size(best.N.low, best.N.high):
            optima.append(CompetingOptimum(other.name, other.residual_scale, best))
    return tuple(optima)
