"""Compute-optimal size, data and loss by a law in N and D and by competing laws, and the best mixture.

C = k N D, with k = 6 FLOPs per parameter and token (Kaplan et al. 2020, arXiv 2001.08361).
If the model serves T tokens after its training, each costs 2 FLOPs per parameter, and C = k N D + 2 N T includes both
(Sardana et al. 2024, arXiv 2401.00448): the best model is then smaller and trained on more data.

The best use of a budget depends on the law's form, which an interval does not hold. Each other law of N and D is fitted
to the same points, with their shared errors, under the same objective and equal weights; where the fitted law has other
weights, that law with equal ones too. Those whose residuals are about as small compete.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from scaling.base.errors import ScalingError
from scaling.laws.catalogue import laws
from scaling.laws.diagnostics import POINTS_A_PARAMETER
from scaling.laws.fit import FittedLaw, bounds_of, fit
from scaling.laws.intervals import Interval, Method, refits
from scaling.laws.law import FLOPS, Dual, Law, Seeds
from scaling.laws.problem import Quantity

SERVED = "served"  # the column of a target that names the tokens served after training
SERVING = 2.0  # FLOPs per parameter and token of a forward pass
STEP = 4e-3  # of log N, for derivatives along the budget by differences


@dataclass(frozen=True)
class Budget:
    """FLOPs `[batch, 1]` or a number, the tokens served of what they pay for, and further columns of the law."""

    C: float | np.ndarray
    served: float = 0.0
    others: Mapping[str, float] = field(default_factory=dict)

    def data(self, N: Any) -> Any:
        """The data that the budget pays for at a size, after what serving takes."""
        return self.C / (FLOPS * N) - SERVING / FLOPS * self.served

    def run(self, log_size: np.ndarray) -> dict[str, np.ndarray]:
        """The columns of runs of these sizes."""
        size = np.exp(log_size)
        return {"N": size, "D": self.data(size), **{name: np.full_like(size, v) for name, v in self.others.items()}}


@dataclass(frozen=True)
class Optimum:
    """The best use of a budget."""

    N: Interval
    D: Interval
    loss: Interval

    def to_json(self) -> dict[str, Any]:
        return {"N": self.N.to_json(), "D": self.D.to_json(), "loss": self.loss.to_json()}


def optimal(
    fit: FittedLaw, C: float, *, served: float = 0.0, method: Method = "profile", level: float = 0.95
) -> Optimum:
    """N, D and loss of the compute-optimal run at budget `C`, which includes the tokens `served` by the model."""
    budget = Budget(C, served)
    quantities = [optimal_size(fit.form, budget), optimal_loss(fit.form, budget)]
    size, loss = bounds_of(fit, quantities, method, level)
    low = -math.inf if size.open_above else budget.data(size.high)
    high = math.inf if size.open_below else budget.data(size.low)
    data = Interval(f"D_opt(C={C:g})", budget.data(size.estimate), low, high, level, method)
    return Optimum(size, data, loss)


def best_run(fit: FittedLaw, budget: Budget) -> dict[str, float]:
    """The columns of the compute-optimal run of a budget; of a law in C the budget itself."""
    return {name: float(column[0, 0]) for name, column in _best_runs(fit.form, fit.theta[None], budget).items()}


def optimal_size(form: Law, budget: Budget) -> Quantity:
    """N that minimises the law along C = k N D + 2 N T."""

    def formula(law: Law, theta: np.ndarray, seeds: Seeds) -> Dual:
        best = _log_best_size(law, theta, budget)
        # dx*/dθ = -L_xθ / L_xx by the implicit function theorem, x = log N; L_x by differences of exact derivatives.
        below, at, above = (law.evaluate(theta, budget.run(best + shift), seeds) for shift in (-STEP, 0.0, STEP))
        curvature = (above.value - 2.0 * at.value + below.value) / STEP**2
        mixed = (above - below) / (2.0 * STEP)
        return np.exp(Dual(best, {index: -part / curvature for index, part in mixed.gradient.items()}))

    return Quantity(f"N_opt(C={budget.C:g})", formula, "log")


def optimal_loss(form: Law, budget: Budget) -> Quantity:
    """The least loss along C = k N D + 2 N T, or the law itself where it is a law in C."""
    return Quantity(
        f"{form.target}_opt(C={budget.C:g})", lambda law, theta, seeds: best_loss(law, theta, seeds, budget), "log"
    )


def best_loss(form: Law, theta: np.ndarray, seeds: Seeds, budget: Budget) -> Dual:
    """The least loss of a budget. At the minimum the change of N* adds nothing to the derivative."""
    return form.evaluate(theta, _best_runs(form, theta, budget), seeds)


def _best_runs(form: Law, theta: np.ndarray, budget: Budget) -> dict[str, np.ndarray]:
    """The columns `[batch, 1]` of the compute-optimal runs under each θ."""
    if form.inputs[0] != "C":
        return budget.run(_log_best_size(form, theta, budget))
    C = np.broadcast_to(np.asarray(budget.C, float), (len(theta), 1))
    return {"C": C, **{name: np.full_like(C, value) for name, value in budget.others.items()}}


def _log_best_size(form: Law, theta: np.ndarray, budget: Budget) -> np.ndarray:
    """log N* `[batch, 1]`: ever finer grids around the best point of the one before, then Newton's method."""
    if set(form.inputs) != {"N", "D", *budget.others}:
        what = f"{form.name} has no frontier: it is not a law of N and D alone"
        raise ScalingError(what, fix="fit chinchilla, for example")
    budget = replace(budget, C=np.broadcast_to(np.asarray(budget.C, float), (len(theta), 1)))
    # log N is searched 26 decades on either side of √(C/k).
    centre, reach = 0.5 * np.log(budget.C / FLOPS), 60.0
    grid, rows = np.linspace(-1.0, 1.0, 81), np.arange(len(theta))

    def loss_at(log_size: np.ndarray) -> np.ndarray:
        return form.evaluate(theta, budget.run(log_size), {}).value

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


@lru_cache(maxsize=1)  # which a fit and its optima ask for alike
def competitors(law: FittedLaw) -> dict[str, FittedLaw]:
    """The competing laws as fitted, by what they are called; none where the law is not one of N and D, or its points
    are few.
    """
    if set(law.form.inputs) != {"N", "D"} or law.form.target != "loss":
        return {}
    weighted, kind, others = not np.allclose(law.weights, 1.0), law.problem.objective, {}
    largest = len(law.problem.observed) / POINTS_A_PARAMETER
    for form in laws().values():
        is_same = set(form.inputs) == {"N", "D"} and form.target == law.form.target
        if is_same and len(form.parameters) <= largest and (form.name != law.form.name or weighted):
            with suppress(ScalingError):  # it need not converge on these points
                fitted = fit(form, law.points, objective=kind, group=law.groups, starts=64, seed=law.seed)
                others[f"{form.name} with equal weights" if weighted else form.name] = fitted
    smallest = min(map(residual_scale, (law, *others.values())))
    # The laws whose residuals are about as small.
    return {name: other for name, other in others.items() if residual_scale(other) <= 2.0 * smallest}


def residual_scale(law: FittedLaw) -> float:
    """The root mean square residual, without weights."""
    return float(np.sqrt(np.sum(law.residuals**2) / max(law.degrees_of_freedom, 1)))


# The proportions of data with the lowest loss, by a law of each domain's loss


def best_mixture(
    fits: Sequence[FittedLaw],
    weights: Sequence[float] | None = None,
    *,
    at: Mapping[str, float] = {},
    level: float = 0.95,
) -> dict[str, Interval]:
    """The proportions `p_i` that minimise Σ_i w_i L_i, L_i the fitted loss of a domain, the mean `loss` there, and the
    `gain`, by which that is below the even mixture's; `at` are other columns of the laws.

    The laws are fitted to the same runs, in the same order. An interval holds the middle `level` of what refits under
    random weights of the runs find best.
    """
    shares = [name for name in fits[0].form.inputs if name.startswith("p_")]
    share = np.full(len(fits), 1.0) if weights is None else np.asarray(weights, float)
    share = share / share.sum()
    even = np.full(len(shares), 1.0 / len(shares))

    def losses(thetas: Sequence[np.ndarray], mixtures: np.ndarray) -> np.ndarray:
        rows = dict(zip(shares, mixtures.T)) | {name: np.full(len(mixtures), value) for name, value in at.items()}
        each = [fit.form.predict(theta, rows) for fit, theta in zip(fits, thetas)]
        return share @ np.array(each)

    def answer(thetas: Sequence[np.ndarray], starts: np.ndarray) -> tuple[float, ...]:
        best = _lowest(lambda mixtures: losses(thetas, mixtures), starts)
        at_best, at_even = losses(thetas, np.array([best, even]))
        return *best, at_best, at_even - at_best

    estimates = answer([fit.theta for fit in fits], np.array([even, *(0.8 * np.eye(len(shares)) + 0.2 * even)]))
    start = np.array(estimates[: len(shares)])[None]
    draws = [answer(thetas, start) for thetas in zip(*_draws(fits, np.random.default_rng(0)))]
    table = np.array([estimates, *np.quantile(draws, (0.5 - 0.5 * level, 0.5 + 0.5 * level), axis=0)]).T
    names = (*shares, "loss", "gain")
    rows = zip(names, table.tolist(), strict=True)
    return {name: Interval(name, value, low, high, level, "draws") for name, (value, low, high) in rows}


def _draws(fits: Sequence[FittedLaw], rng: np.random.Generator) -> list[np.ndarray]:
    """Parameters `[draws, parameters]` of each law fitted again under random weights, a run's the same in every law.

    Newton and Raftery 1994, J. Royal Statist. Soc. B 56(1), section 2; spread by n / (n − p), as of residuals
    that were left out.
    """
    weights, thetas = rng.standard_exponential((200, len(fits[0].points))), []
    for each in fits:
        what = f"{len(each.points)} runs leave no degree of freedom"
        each.points.refuse(each.degrees_of_freedom < 1, what, "add runs, or fit fewer domains")
        ended = refits(each.problem, each.u, weights[:, each.order])
        moved = np.where(ended.converged[:, None], ended.u - each.u, 0.0)
        thetas.append(each.problem.theta(each.u + moved * len(each.points) / each.degrees_of_freedom))
    return thetas


def _lowest(losses: Callable[[np.ndarray], np.ndarray], starts: np.ndarray) -> np.ndarray:
    """The point of the simplex where `losses` of rows is lowest, by sequential quadratic programming."""
    from scipy.optimize import minimize  # a third of a second, of each fit of any law

    count = starts.shape[1]
    shifts = np.vstack([np.zeros(count), 1e-6 * np.eye(count)])

    def value_and_slope(mixture: np.ndarray) -> tuple[float, np.ndarray]:
        values = losses(np.maximum(mixture, 0.0) + shifts)
        return float(values[0]), (values[1:] - values[0]) / 1e-6

    one = {"type": "eq", "fun": lambda mixture: mixture.sum() - 1.0, "jac": lambda mixture: np.ones(count)}
    ends = [
        minimize(
            value_and_slope, start, jac=True, method="SLSQP", bounds=[(0.0, 1.0)] * count, constraints=one, tol=1e-10
        )
        for start in starts
    ]
    best = np.maximum(min(ends, key=lambda end: end.fun).x, 0.0)
    return best / best.sum()
