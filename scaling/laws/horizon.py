"""What a study says beyond its law: the loss of compute-optimal runs 10 and 100 times further with the run that would
tell most of it, and whether runs whose learning rate fell over few steps end with a higher loss than the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scaling.laws.diagnostics import added_variables
from scaling.laws.fit import FittedLaw
from scaling.laws.intervals import Interval, Method, student
from scaling.laws.law import with_compute
from scaling.laws.optimum import Budget, best_run
from scaling.laws.predict import TwoStep, predict_runs
from scaling.laws.problem import prediction

FARTHER = (10.0, 100.0)  # times the compute of the largest fitted run
SIZES, LENGTHS = 25, 25  # candidates for the next run, by parameters and by tokens a parameter
COOLDOWN = "cooldown"  # the column of the steps over which the learning rate of a run fell


def horizon(fit: FittedLaw | TwoStep, level: float = 0.95, method: Method | None = "profile") -> dict[str, Any] | None:
    """The predictions and the next run, as a document; None of a law in other columns than N and D, or C.

    A law in two steps predicts the score of the runs that are best by its loss.
    """
    law = fit.loss if isinstance(fit, TwoStep) else fit
    columns = law.problem.columns
    if law.form.target != "loss" or set(law.form.inputs) not in ({"N", "D"}, {"C"}) or law.degrees_of_freedom < 1:
        return None
    largest = float(with_compute(columns)["C"].max())
    places = [best_run(law, Budget(times * largest)) for times in FARTHER]
    predictions = [
        {"times": times, "C": times * largest, **row, fit.form.target: each.estimate, **each.to_json()}
        for times, row, each in zip(
            FARTHER, places, predict_runs(fit, places, level, method, seed=law.seed), strict=True
        )
    ]
    return {"largest": largest, "predictions": predictions, "next_run": _next_run(law, places[0], FARTHER[0] * largest)}


def _next_run(fit: FittedLaw, place: dict[str, float], most: float) -> dict[str, Any]:
    """The cheapest run up to `most` FLOPs that halves the interval of the mean at a place, or else narrows it most.

    One more run at x lowers the variance g'Vg of the prediction by (g'Vx)²/(1 + x'Vx), the law linearised at its
    optimum (Sherman and Morrison 1950); its noise is that of the others.
    """
    problem, u = fit.problem, fit.u[None]
    columns = problem.columns
    candidates = {"C": np.geomspace(columns["C"].min(), most, SIZES * LENGTHS)} if "C" in columns else {}
    if not candidates:
        ratio = columns["D"] / columns["N"]
        N, per = np.meshgrid(
            np.geomspace(columns["N"].min(), max(place["N"], columns["N"].max()), SIZES),
            np.geomspace(ratio.min(), ratio.max(), LENGTHS),
        )
        candidates = {"N": N.ravel(), "D": (N * per).ravel()}
    cost, slopes = with_compute(candidates)["C"], problem.derivative(u, candidates)[0, 1:].T
    possible = (cost <= most * (1 + 1e-9)) & np.isfinite(slopes).all(axis=1)
    candidates, cost = {name: column[possible] for name, column in candidates.items()}, cost[possible]
    rows, jacobian = slopes[possible], problem.linearise(u)[1][0]
    variance = np.linalg.pinv((jacobian * problem.weights) @ jacobian.T, rcond=1e-13, hermitian=True)
    slope = prediction(fit.form, place).along(problem, u)[1][0]
    now = float(slope @ variance @ slope)
    left = 1.0 - (rows @ variance @ slope) ** 2 / (1.0 + np.einsum("ij,jk,ik->i", rows, variance, rows)) / now
    # A quarter of the variance is left where an interval is half as wide.
    halving = left <= 0.25
    best = int(np.where(halving, cost, np.inf).argmin() if halving.any() else left.argmin())
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


def excess_of_short_cooldowns(fit: FittedLaw, level: float = 0.95) -> dict[str, Any] | None:
    """What the shortest cool-down costs, as a fraction of the loss, with a sentence; None where points show none.

    The variable 1/steps is added to the law, linearised at its optimum: an excess c n₀/n of log loss, n₀ the fewest
    steps, has Student's t with a degree of freedom less than the law.
    """
    freedom = fit.degrees_of_freedom - 1
    if COOLDOWN not in fit.points or fit.form.target != "loss" or freedom < 1:
        return None
    steps = fit.points.numbers(COOLDOWN)[fit.order]
    least, most = float(steps.min()), float(steps.max())
    if least <= 0 or least == most:
        return None
    residual, jacobian = fit.linear
    shape = fit.problem.whitened((least / steps)[None, None])[0] * np.sqrt(fit.problem.weights)
    (estimate,), (error,) = added_variables(jacobian, -residual, shape)
    if np.isnan(estimate):
        return None
    estimate, half = float(estimate), student(level, freedom) * float(error)
    excess = Interval("excess of the shortest cool-down", estimate, estimate - half, estimate + half, level, "t")
    ends, found = (
        f"{estimate:.2%} [{excess.low:.2%}, {excess.high:.2%}]",
        "these runs do not tell what the shortest loses",
    )
    if excess.low > 0:
        found = f"the shortest costs {ends} of the loss, so short runs are undercooled; raise schedule.decay"
    elif excess.high < 0.1:  # beyond a tenth of the loss nothing is known
        found = f"no undercooled run is seen; the shortest loses at most {max(excess.high, 0.0):.2%} of its loss"
    sentence = f"cool-downs of {least:,.0f} to {most:,.0f} steps: {found}"
    return {**excess.to_json(), "steps": [least, most], "sentence": sentence}
