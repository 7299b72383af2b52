"""Profile intervals, for many studies at once.

The profile of a quantity g is the least objective among parameters at which g has a given value. The interval holds
the values whose profile rises over the minimum by no more than κ t²/2, with t Student's quantile at n - p degrees of
freedom (for least squares: the F(1, n - p) bound, exact where the law is linear in the right coordinates;
Bates and Watts 1988, Nonlinear Regression Analysis, section 6.1). It follows the law's curvature, knows bounds, and
is open where the objective never rises that far.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaling.law.noise import Noise
from scaling.law.problem import Problem
from scaling.law.quantity import Quantity
from scaling.law.solver import PROFILE, Tether, minimise

ROUNDS = 20
CLOSE = 2e-3  # of the signed root t: the bound is then right to about a thousandth of its distance
STIFF = 100.0  # the tether holds the quantity a hundred times more firmly than the points do
WIDEST = 3.0  # first step, in the quantity's scale relative to its size, where the points say nothing
LAGGING = 0.5
STIFFER, STIFFEST = 1e3, 1e9
UNMOVED = 1e-4


@dataclass(frozen=True)
class Bounds:
    """Both ends of each row's interval in the quantity's scale, and whether the points leave that end open."""

    low: np.ndarray
    high: np.ndarray
    open_below: np.ndarray
    open_above: np.ndarray


def profile(
    problem: Problem,
    quantity: Quantity,
    u: np.ndarray,
    cost: np.ndarray,
    noise: Noise,
    threshold: np.ndarray,
    observed: np.ndarray | None = None,
) -> Bounds:
    """The profile interval of `quantity` for each optimum `u` `[rows, parameters]` with its objective `cost`.

    `threshold` is the largest signed root z = √(2 rise/κ) that is kept; `observed` may differ by row.
    """
    low, open_below = _end(problem, quantity, u, cost, noise, threshold, observed, side=-1.0)
    high, open_above = _end(problem, quantity, u, cost, noise, threshold, observed, side=1.0)
    return Bounds(low, high, open_below, open_above)


def standard_error(
    problem: Problem, quantity: Quantity, u: np.ndarray, noise: Noise, observed: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The quantity, its linearised standard error, and the direction dU/dg in which the other parameters follow it."""
    value, slope = quantity.along(problem, u)
    _, jacobian = problem.linearise(u, observed)
    information = (jacobian * problem.weights) @ jacobian.swapaxes(1, 2)
    inverse = np.linalg.pinv(information, rcond=1e-13, hermitian=True)
    follow = (inverse @ slope[:, :, None])[:, :, 0]
    variance = (slope * follow).sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        direction = np.where(variance[:, None] > 0, follow / variance[:, None], 0.0)
    return value, np.sqrt(np.maximum(noise.variance * variance, 0.0)), direction


def _end(
    problem: Problem,
    quantity: Quantity,
    u: np.ndarray,
    cost: np.ndarray,
    noise: Noise,
    threshold: np.ndarray,
    observed: np.ndarray | None,
    side: float,
) -> tuple[np.ndarray, np.ndarray]:
    """One end of the interval, by regula falsi on the signed root, which is nearly linear in the quantity."""
    centre, error, direction = standard_error(problem, quantity, u, noise, observed)
    kappa = noise.kappa
    widest = WIDEST * np.maximum(np.abs(centre), 0.1) if quantity.scale == "linear" else np.full(len(u), WIDEST)
    error = np.where(error > 0, np.minimum(error, widest), widest)
    lower, upper = problem.bounds
    inner, inner_z = np.zeros(len(u)), np.zeros(len(u))
    outer, outer_z = np.full(len(u), np.inf), np.full(len(u), np.inf)
    reach = threshold * error
    slack = STIFF * kappa / error**2
    stiffness = slack.copy()
    place, is_open = u.copy(), np.zeros(len(u), bool)
    rows = np.arange(len(u))
    for _ in range(ROUNDS):
        goal = centre[rows] + side * reach[rows]
        begin = place[rows] + direction[rows] * (goal - quantity.along(problem, place[rows])[0])[:, None]
        tether = Tether(quantity, goal, stiffness[rows])
        seen = None if observed is None else (observed[rows] if observed.ndim == 2 else observed)
        ended = minimise(problem, np.clip(begin, lower, upper), observed=seen, tether=tether, effort=PROFILE)
        value = quantity.along(problem, ended.u)[0]
        moved = side * (value - centre[rows])
        rise = ended.cost - tether.cost(value) - cost[rows]
        z = np.sqrt(np.maximum(2.0 * rise / kappa[rows], 0.0))
        failed = ~np.isfinite(z)
        z, moved = np.where(failed, 2.0 * threshold[rows], z), np.where(failed, reach[rows], moved)
        inside = z < threshold[rows]
        # A tether that stretches has met a steep rise or a bound; only a bound withstands a stiffer one.
        lagging = inside & (moved < inner[rows] + LAGGING * (reach[rows] - inner[rows]))
        unmoved = moved < inner[rows] + UNMOVED * (reach[rows] - inner[rows])
        stuck = lagging & ((unmoved & (stiffness[rows] > slack[rows])) | (stiffness[rows] >= STIFFEST * slack[rows]))
        stuck &= z < 0.98 * threshold[rows]
        stiffness[rows[lagging]] *= STIFFER
        is_open[rows[stuck]] = True
        kept, past = rows[inside], rows[~inside]
        inner[kept], inner_z[kept], place[kept] = moved[inside], z[inside], ended.u[inside]
        outer[past], outer_z[past] = moved[~inside], z[~inside]
        close = np.abs(z - threshold[rows]) <= CLOSE * threshold[rows]
        inner[rows[close]] = moved[close]
        rows = rows[~(close | stuck)]
        if not len(rows):
            break
        share = (threshold - inner_z) / np.maximum(outer_z - inner_z, 1e-300)
        between = inner + np.clip(share, 0.1, 0.9) * (outer - inner)
        growth = np.clip(threshold / np.maximum(inner_z, 1e-300), 1.1, 4.0)
        beyond = np.maximum(inner, reach) * growth
        reach = np.where(np.isfinite(outer), between, beyond)
    # Rows left over were still walking outwards: the objective has not risen far enough anywhere tried.
    left = rows[~np.isfinite(outer[rows])]
    is_open[left] = True
    return centre + side * inner, is_open
