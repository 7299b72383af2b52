"""Compute-optimal size, data and loss under a law in N and D, with intervals.

C = k N D, with k = 6 FLOPs per parameter and token unless stated otherwise (Kaplan et al. 2020, arXiv 2001.08361).
Where the model is to serve T tokens after its training, which take 2 FLOPs per parameter each, C = k N D + 2 N T pays
for both (Sardana et al. 2024, arXiv 2401.00448): the best model is then smaller and trained on more data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.errors import ScalingError
from scaling.law.autodiff import Dual, exp
from scaling.law.fit import Fit
from scaling.law.forms import Form
from scaling.law.forms.form import Seeds
from scaling.law.interval import Interval, Method, intervals
from scaling.law.quantity import Quantity

FLOPS = 6.0
SERVED = "served"
"""The column of a target that names the tokens served after training."""
SERVING = 2.0
"""FLOPs per parameter and token of a forward pass."""
WIDEST = 60.0  # log N is searched this far on either side of √(C/k): 26 decades
STEP = 4e-3  # of log N, for derivatives along the budget by differences


@dataclass(frozen=True)
class Optimum:
    """The best use of a budget."""

    C: float
    N: Interval
    D: Interval
    loss: Interval


def optimal(
    fit: Fit,
    C: float,
    *,
    others: Mapping[str, float] | None = None,
    flops: float = FLOPS,
    served: float = 0.0,
    method: Method = "profile",
    level: float = 0.95,
) -> Optimum:
    """N, D and loss of the compute-optimal run at budget `C`; `others` are the law's further columns, such as U.

    The budget also pays for the tokens that the model serves, where some are `served`.
    """
    size = optimal_size(fit.form, C, others=others, flops=flops, served=served)
    loss = optimal_loss(fit.form, C, others=others, flops=flops, served=served)
    bounds = intervals(fit, method, level=level, quantities=[size, loss])
    n = bounds[size.name]
    data = Interval(
        f"D_opt(C={C:g})",
        data_left(C, n.estimate, flops, served),
        data_left(C, n.high, flops, served),
        data_left(C, n.low, flops, served),
        level,
        method,
        n.open_above,
        n.open_below,
    )
    return Optimum(C, n, data, bounds[loss.name])


def data_left(C: Any, N: Any, flops: float = FLOPS, served: float = 0.0) -> Any:
    """The data that a budget pays for at a size, after what serving takes."""
    return C / (flops * N) - SERVING / flops * served


def optimal_size(
    form: Form, C: float, *, others: Mapping[str, float] | None = None, flops: float = FLOPS, served: float = 0.0
) -> Quantity:
    """N that minimises the law along C = k N D + 2 N T."""
    _require_size_and_data(form)

    def formula(law: Form, theta: np.ndarray, seeds: Seeds) -> Dual:
        best = log_best_size(law, theta, C, others, flops, served)
        # dx*/dθ = -L_xθ / L_xx by the implicit function theorem, x = log N; L_x by differences of exact derivatives.
        below, at, above = (
            law.evaluate(theta, _run(best + shift, C, others, flops, served), seeds) for shift in (-STEP, 0.0, STEP)
        )
        curvature = (above.value - 2.0 * at.value + below.value) / STEP**2
        mixed = (above - below) / (2.0 * STEP)
        moves = {index: -part / curvature for index, part in mixed.gradient.items()}
        return exp(Dual(best, moves))

    return Quantity(f"N_opt(C={C:g})", formula, "log")


def optimal_loss(
    form: Form, C: float, *, others: Mapping[str, float] | None = None, flops: float = FLOPS, served: float = 0.0
) -> Quantity:
    """The least loss along C = k N D + 2 N T, or the law itself where it is a law in C."""
    return Quantity(
        f"{form.target}_opt(C={C:g})",
        lambda law, theta, seeds: best_loss(law, theta, seeds, np.full((len(theta), 1), C), others, flops, served),
        "log",
    )


def best_loss(
    form: Form,
    theta: np.ndarray,
    seeds: Seeds,
    C: np.ndarray,
    others: Mapping[str, float] | None = None,
    flops: float = FLOPS,
    served: float = 0.0,
) -> Dual:
    """The least loss at budgets `C` `[batch, 1]`. At the minimum the change of N* adds nothing to the derivative."""
    if form.inputs[0] == "C" and "N" not in form.inputs:
        extra = {name: np.full_like(C, value) for name, value in (others or {}).items()}
        return form.evaluate(theta, {"C": C, **extra}, seeds)
    _require_size_and_data(form)
    best = log_best_size(form, theta, C, others, flops, served)
    return form.evaluate(theta, _run(best, C, others, flops, served), seeds)


def log_best_size(
    form: Form,
    theta: np.ndarray,
    C: float | np.ndarray,
    others: Mapping[str, float] | None,
    flops: float,
    served: float = 0.0,
) -> np.ndarray:
    """log N* `[batch, 1]`: ever finer grids around the best point of the one before, then Newton's method."""
    C = np.broadcast_to(np.asarray(C, float), (len(theta), 1))
    centre, reach = 0.5 * np.log(C / flops), WIDEST
    grid = np.linspace(-1.0, 1.0, 81)
    rows = np.arange(len(theta))

    def loss_at(log_size: np.ndarray) -> np.ndarray:
        return form.evaluate(theta, _run(log_size, C, others, flops, served), {}).value

    while reach > STEP:
        tried = centre + reach * grid
        with np.errstate(all="ignore"):
            loss = loss_at(tried)
        best = np.where(np.isfinite(loss), loss, np.inf).argmin(1)
        centre, reach = tried[rows, best][:, None], reach * 0.05
    for _ in range(3):
        two_below, below, at, above, two_above = (loss_at(centre + shift * STEP) for shift in (-2, -1, 0, 1, 2))
        slope = (two_below - 8.0 * below + 8.0 * above - two_above) / (12.0 * STEP)
        curvature = (above - 2.0 * at + below) / STEP**2
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(curvature > 0, slope / curvature, 0.0)  # not a number beyond what serving leaves
        centre = centre - np.clip(step, -10.0 * STEP, 10.0 * STEP)
    return centre


def _run(
    log_size: np.ndarray,
    C: float | np.ndarray,
    others: Mapping[str, float] | None,
    flops: float,
    served: float = 0.0,
) -> dict[str, np.ndarray]:
    size = np.exp(log_size)
    extra = {name: np.full_like(size, value) for name, value in (others or {}).items()}
    return {"N": size, "D": data_left(C, size, flops, served), **extra}


def _require_size_and_data(form: Form) -> None:
    if not {"N", "D"} <= set(form.inputs):
        raise ScalingError(
            f"{form.name} has no frontier: it is not a law in N and D", fix="fit chinchilla, for example"
        )
