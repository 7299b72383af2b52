"""Horizon: the loss of compute-optimal runs 10 and 100 times further, and the run that would tell most of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaling.laws.fit import FittedLaw
from scaling.laws.intervals import Method
from scaling.laws.law import with_compute
from scaling.laws.optimum import Budget, optimal_size
from scaling.laws.predict import TwoStep, predict_runs
from scaling.laws.problem import prediction

FARTHER = (10.0, 100.0)
"""Times the compute of the largest fitted run."""
SIZES, LENGTHS = 25, 25
"""Candidates for the next run, by parameters and by tokens a parameter."""
HALF = 0.25
"""The variance that is left where an interval is half as wide."""


def horizon(fit: FittedLaw | TwoStep, level: float = 0.95, method: Method | None = "profile") -> dict[str, Any] | None:
    """The predictions and the next run, as a document; None of a law in other columns than N and D, or C.

    A law in two steps predicts the score of the runs that are best by its loss.
    """
    law = fit.loss if isinstance(fit, TwoStep) else fit
    columns = law.problem.columns
    if law.form.target != "loss" or set(law.form.inputs) not in ({"N", "D"}, {"C"}) or law.degrees_of_freedom < 1:
        return None
    largest = float(with_compute(columns)["C"].max())
    places = [_best_run(law, times * largest) for times in FARTHER]
    target = fit.task.form.target if isinstance(fit, TwoStep) else law.form.target
    predictions = [
        {"times": times, "C": times * largest, **row, target: each.estimate, **each.to_json()}
        for times, row, each in zip(
            FARTHER, places, predict_runs(fit, places, level, method, seed=law.seed), strict=True
        )
    ]
    return {"largest": largest, "predictions": predictions, "next_run": _next_run(law, places[0], FARTHER[0] * largest)}


def _best_run(fit: FittedLaw, C: float) -> dict[str, float]:
    """The columns of the compute-optimal run of a budget."""
    if "C" in fit.form.inputs:
        return {"C": C}
    size = float(optimal_size(fit.form, Budget(C)).of(fit.form, fit.theta))
    return {"N": size, "D": Budget(C).data(size)}


def _next_run(fit: FittedLaw, place: dict[str, float], most: float) -> dict[str, Any]:
    """The cheapest run up to `most` FLOPs that halves the interval of the mean at a place, or else narrows it most.

    One more run at x lowers the variance g'Vg of the prediction by (g'Vx)²/(1 + x'Vx), the law linearised at its
    optimum (Sherman and Morrison 1950); its noise is that of the others.
    """
    columns = fit.problem.columns
    if "C" in columns:
        candidates = {"C": np.geomspace(columns["C"].min(), most, SIZES * LENGTHS)}
        cost = candidates["C"]
    else:
        ratio = columns["D"] / columns["N"]
        N, per = np.meshgrid(
            np.geomspace(columns["N"].min(), max(place["N"], columns["N"].max()), SIZES),
            np.geomspace(ratio.min(), ratio.max(), LENGTHS),
        )
        candidates = {"N": N.ravel(), "D": (N * per).ravel()}
        cost = with_compute(candidates)["C"]
    affordable = cost <= most * (1 + 1e-9)
    candidates = {name: column[affordable] for name, column in candidates.items()}
    cost = cost[affordable]
    jacobian = fit.problem.linearise(fit.u[None])[1][0]
    variance = np.linalg.pinv((jacobian * fit.problem.weights) @ jacobian.T, rcond=1e-13, hermitian=True)
    rows = fit.problem.derivative(fit.u[None], candidates)[0, 1:].T
    slope = prediction(fit.form, place).along(fit.problem, fit.u[None])[1][0]
    now = float(slope @ variance @ slope)
    left = 1.0 - (rows @ variance @ slope) ** 2 / (1.0 + np.einsum("ij,jk,ik->i", rows, variance, rows)) / now
    halving = left <= HALF
    best = int(np.flatnonzero(halving)[cost[halving].argmin()] if halving.any() else left.argmin())
    chosen = {name: float(column[best]) for name, column in candidates.items()}
    width = float(np.sqrt(max(left[best], 0.0)))
    return {**chosen, "C": float(cost[best]), "width": width, "halves": bool(halving.any())}


def sentence(document: dict[str, Any]) -> str:
    """The next run in words."""
    run, first = document["next_run"], document["predictions"][0]
    where = f"N = {run['N']:.3g}, D = {run['D']:.3g}, " if "N" in run else ""
    place = f"of the law's mean at {first['times']:g} × the largest compute"
    if run["halves"]:
        return f"The cheapest run that halves the interval {place}: {where}C = {run['C']:.3g}"
    what = f"No single run up to {first['times']:g} × the largest compute halves the interval {place}"
    return f"{what}; {where}C = {run['C']:.3g} leaves {run['width']:.0%} of its width"
