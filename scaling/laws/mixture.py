"""Mixture: the proportions of data with the lowest loss, by a law of each domain's loss, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from scaling.base.errors import ScalingError
from scaling.laws.fit import FittedLaw
from scaling.laws.intervals import Interval, refits

STEP = 1e-6  # of a proportion, for derivatives by differences


def best_mixture(
    fits: Sequence[FittedLaw],
    weights: Sequence[float] | None = None,
    *,
    at: Mapping[str, float] = {},
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """The proportions `p_i` that minimise Σ_i w_i L_i, L_i the fitted loss of a domain, the mean `loss` there, and the
    `gain`, by which that is below the even mixture's; `at` are other columns of the laws.

    The laws are fitted to the same runs, in the same order. An interval holds the middle `level` of what refits under
    random weights of the runs find best.
    """
    shares = [name for name in fits[0].form.inputs if name.startswith("p_")]
    others = [name for name in fits[0].form.inputs if name not in shares]
    if len(shares) < 2 or set(others) != set(at):
        what = f"{fits[0].form.name} has the columns {', '.join(fits[0].form.inputs)}"
        raise ScalingError(what, key="at", value=dict(at), fix="fit mixture_exponential_m, or say --at N=1e9")
    share = np.full(len(fits), 1.0) if weights is None else np.asarray(weights, float)
    share = share / share.sum()
    even = np.full(len(shares), 1.0 / len(shares))

    def losses(thetas: Sequence[np.ndarray], mixtures: np.ndarray) -> np.ndarray:
        rows = dict(zip(shares, mixtures.T)) | {name: np.full(len(mixtures), value) for name, value in at.items()}
        each = [fit.form.predict(theta, rows) for fit, theta in zip(fits, thetas)]
        return share @ np.array(each)

    def answer(thetas: Sequence[np.ndarray], starts: np.ndarray) -> tuple[float, ...]:
        best = _minimum(lambda mixtures: losses(thetas, mixtures), starts)
        at_best, at_even = losses(thetas, np.array([best, even]))
        return *best, at_best, at_even - at_best

    estimates = answer([fit.theta for fit in fits], np.array([even, *(0.8 * np.eye(len(shares)) + 0.2 * even)]))
    start = np.array(estimates[: len(shares)])[None]
    drawn = [answer(thetas, start) for thetas in zip(*_draws(fits, np.random.default_rng(seed)))]
    table = np.array([estimates, *np.quantile(drawn, (0.5 - 0.5 * level, 0.5 + 0.5 * level), axis=0)]).T
    names = (*shares, "loss", "gain")
    rows = zip(names, table.tolist(), strict=True)
    return {name: Interval(name, value, low, high, level, "draws") for name, (value, low, high) in rows}


def _draws(fits: Sequence[FittedLaw], rng: np.random.Generator) -> list[np.ndarray]:
    """Parameters `[draws, parameters]` of each law fitted again under random weights, a run's the same in every law.

    Newton and Raftery 1994, J. Royal Statist. Soc. B 56(1), section 2; spread by n / (n − p), as of residuals
    that were left out.
    """
    weights, drawn = rng.standard_exponential((200, len(fits[0].points))), []
    for fit in fits:
        what = f"{len(fit.points)} runs leave no degree of freedom"
        fit.points.refuse(fit.degrees_of_freedom < 1, what, "add runs, or fit fewer domains")
        ended = refits(fit.problem, fit.u, weights[:, fit.order])
        moved = np.where(ended.converged[:, None], ended.u - fit.u, 0.0)
        drawn.append(fit.problem.theta(fit.u + moved * len(fit.points) / fit.degrees_of_freedom))
    return drawn


def _minimum(losses: Callable[[np.ndarray], np.ndarray], starts: np.ndarray) -> np.ndarray:
    """The point of the simplex where `losses` of rows is lowest, by sequential quadratic programming."""
    from scipy.optimize import minimize  # a third of a second, of each fit of any law

    count = starts.shape[1]
    shifts = np.vstack([np.zeros(count), STEP * np.eye(count)])

    def value_and_slope(mixture: np.ndarray) -> tuple[float, np.ndarray]:
        values = losses(np.maximum(mixture, 0.0) + shifts)
        return float(values[0]), (values[1:] - values[0]) / STEP

    one = {"type": "eq", "fun": lambda mixture: mixture.sum() - 1.0, "jac": lambda mixture: np.ones(count)}
    ends = [
        minimize(
            value_and_slope, start, jac=True, method="SLSQP", bounds=[(0.0, 1.0)] * count, constraints=one, tol=1e-10
        )
        for start in starts
    ]
    best = np.maximum(min(ends, key=lambda end: end.fun).x, 0.0)
    return best / best.sum()
