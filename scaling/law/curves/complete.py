"""The end of a run from its beginning: the law, corrected by how the run has erred so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from scaling.law.curves.curve import Curve
from scaling.law.curves.errors import covariance, places_of
from scaling.law.curves.fit import CurveFit
from scaling.law.discrepancy import derivative
from scaling.law.interval import Interval
from scaling.law.noise import student


def complete(fit: CurveFit, begun: Curve, steps: Sequence[int] | None = None, level: float = 0.95) -> list[Interval]:
    """The losses of a run at `steps` (by default its end), given those that it has logged.

    The best linear prediction: what the run's errors so far show of its later ones (Rasmussen and Williams 2006,
    Gaussian Processes, section 2.2 with 2.7), with the error of the law, and the noise of one evaluation.
    """
    steps = [len(begun.rates)] if steps is None else list(steps)
    seen = begun.thinned(0.0) if len(begun.steps) else begun
    seen = seen.where(seen.steps > 2 * begun.warmup)
    goal = begun.at(steps)
    ahead = places_of([goal])
    law = np.log(fit.predict(goal))
    design = derivative(fit.problem, fit.u, fit.columns(goal))
    variance = np.diag(covariance(fit.sizes, ahead)).copy()
    if len(seen.steps):
        behind = places_of([seen])
        cross = covariance(fit.sizes, ahead, behind)
        gain = np.linalg.solve(covariance(fit.sizes, behind), cross.T).T
        law = law + gain @ (np.log(seen.losses) - np.log(fit.predict(seen)))
        design = design - gain @ derivative(fit.problem, fit.u, fit.columns(seen))
        variance = variance - np.sum(gain * cross, axis=1)
    variance = variance + np.einsum("ij,jk,ik->i", design, fit.parameter_covariance, design)
    half = student(level, max(len(set(fit.groups.tolist())) - 1, 1)) * np.sqrt(np.maximum(variance, 0.0))
    return [
        Interval(
            f"{begun.run} at step {step}", float(np.exp(at)), float(np.exp(at - by)), float(np.exp(at + by)), level, "t"
        )
        for step, at, by in zip(steps, law, half, strict=True)
    ]


def from_schedule(fit: CurveFit, like: Curve, rates: np.ndarray, N: float | None = None) -> Curve:
    """A run as `like` with another schedule, or another size, and no losses yet."""
    goal = replace(like.at([]), rates=np.asarray(rates, float), N=like.N if N is None else N, run="another")
    return goal.at([len(goal.rates)])
