"""All pictures that a fit has, by name."""

from __future__ import annotations

import numpy as np

from scaling.law.bootstrap import refit
from scaling.law.envelope import Envelope
from scaling.law.fit import Fit
from scaling.law.frontier import FLOPS, optimal_size
from scaling.law.held_out import HeldOut
from scaling.law.interval import Method
from scaling.law.isoflop import IsoFlop
from scaling.law.points import Points
from scaling.law.predictions import predict_runs, rows_of
from scaling.law.sensitivity import MOST_POINTS
from scaling.law.two_step import TwoStep
from scaling.picture.approaches import isoflop_valleys, learning_curves
from scaling.picture.laws import Predict, contours, extrapolation, joint_region, loss_against, residuals, sensitivity
from scaling.picture.picture import Picture

SHARED = ("residuals", "sensitivity", "extrapolation", "joint_region", "learning_curves", "contours")
"""Pictures that both steps of a law may have."""
DRAWS = 400
"""Bootstrap refits behind a joint region."""


def figures_of_law(
    fit: Fit | TwoStep,
    held_out: Points | None = None,
    *,
    level: float = 0.95,
    method: Method | None = "profile",
    tested: HeldOut | None = None,
) -> dict[str, Picture]:
    """The law along each of its columns (and along compute), over N and D, its residuals, and its test.

    The test has the intervals of `method`, as the tables have; curves have those of Student's t. Without a method there
    are none. Of a joint law the residuals alone: it is one curve a variant. `tested` is the test by that method,
    where it is known: along a flat valley its intervals take longer than all pictures.
    """
    if isinstance(fit, TwoStep):
        steps = (("loss", fit.loss), ("task", fit.task))
        return {
            f"{step}_{name}" if name in SHARED else name: picture
            for step, law in steps
            for name, picture in figures_of_law(law, held_out, level=level, method=method).items()
        }
    if fit.form.axes != fit.form.inputs:
        return {"residuals": residuals(fit)}
    bounded = method is not None and fit.degrees_of_freedom > 0
    pictures = curves_of_law(fit, held_out, level=level, bounded=bounded)
    if set(fit.form.inputs) == {"N", "D"}:
        pictures["contours"] = contours(fit, frontier=frontier(fit))
    pictures["residuals"] = residuals(fit)
    if bounded and fit.degrees_of_freedom > 1 and len(fit.points) <= MOST_POINTS and fit.form.target == "loss":
        pictures["sensitivity"] = sensitivity(fit)
    exponents = [parameter.name for parameter in fit.form.parameters if parameter.unit == "1"]
    free = [name for name in exponents if name not in fit.problem.fixed]
    if len(free) > 1 and fit.degrees_of_freedom > 0:
        resampling = "case" if fit.problem.shared is None else "run"  # runs that share errors are drawn together
        theta = refit(fit, resampling, DRAWS, seed=fit.seed).theta
        draws = {name: theta[:, fit.form.parameter_names.index(name)] for name in free[:2]}
        pictures["joint_region"] = joint_region(fit, draws, *free[:2])
    if {"run", "N", "D"} <= set(fit.points.columns) and len(set(fit.points["run"])) < len(fit.points):
        pictures["learning_curves"] = learning_curves(fit.points)
    if held_out is not None:
        axis = "C" if {"N", "D"} <= set(fit.form.inputs) else fit.form.inputs[0]
        known = (lambda columns: tested.predictions) if tested is not None else predictor(fit, level, method or "t")
        pictures["extrapolation"] = extrapolation(fit, held_out, predict=known if bounded else None, axis=axis)
    return pictures


def curves_of_law(
    fit: Fit, held_out: Points | None = None, *, level: float = 0.95, bounded: bool = True
) -> dict[str, Picture]:
    """The law along each of its columns, and along compute, with its intervals where it is `bounded`."""
    axes = [*fit.form.inputs, *(["C"] if {"N", "D"} <= set(fit.form.inputs) else [])]
    predict = predictor(fit, level) if bounded else None
    return {
        f"{fit.form.target}_against_{axis}": loss_against(fit, axis, held_out=held_out, predict=predict)
        for axis in axes
    }


def figures_of_isoflop(points: Points, size: IsoFlop, data: IsoFlop) -> dict[str, Picture]:
    return {"isoflop_N": isoflop_valleys(size, points), "isoflop_D": isoflop_valleys(data, points)}


def figures_of_envelope(points: Points, envelope: Envelope) -> dict[str, Picture]:
    return {"envelope": learning_curves(points, axis="C", envelope=envelope)}


def frontier(fit: Fit) -> tuple[np.ndarray, np.ndarray]:
    """N and D of the compute-optimal runs over the budgets of the points and a decade on either side."""
    compute = FLOPS * fit.points["N"] * fit.points["D"]
    budgets = np.geomspace(compute.min() / 10, compute.max() * 10, 40)
    size = np.array([float(optimal_size(fit.form, budget).of(fit.form, fit.theta)) for budget in budgets])
    return size, budgets / (FLOPS * size)


def predictor(fit: Fit, level: float = 0.95, method: Method = "t") -> Predict:
    """Both intervals of what the law predicts at each row of columns; by default by Student's t, which is quick."""
    return lambda columns: predict_runs(fit, rows_of(columns, fit), level, method, seed=fit.seed)
