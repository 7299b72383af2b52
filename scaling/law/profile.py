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
LAGGING, UNMOVED = 0.5, 1e-4  # shares of the way asked for: below the first the tether is stiffened, below the second
STIFFER, STIFFEST = 1e3, 1e9  # and stiff already, the quantity has met its bound


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


@dataclass
class _Bracket:
    """How far from the estimate each row's end lies at least and at most, and the signed root z at both."""

    inner: np.ndarray
    inner_z: np.ndarray
    outer: np.ndarray
    outer_z: np.ndarray

    @classmethod
    def around(cls, rows: int) -> _Bracket:
        return cls(np.zeros(rows), np.zeros(rows), np.full(rows, np.inf), np.full(rows, np.inf))

    def learn(self, rows: np.ndarray, distance: np.ndarray, z: np.ndarray, inside: np.ndarray) -> None:
        self.inner[rows[inside]], self.inner_z[rows[inside]] = distance[inside], z[inside]
        self.outer[rows[~inside]], self.outer_z[rows[~inside]] = distance[~inside], z[~inside]

    def guess(self, threshold: np.ndarray, reach: np.ndarray) -> np.ndarray:
        """Where to look next: between the two by regula falsi on z, or further out where no outer one is known."""
        with np.errstate(invalid="ignore"):
            share = (threshold - self.inner_z) / np.maximum(self.outer_z - self.inner_z, 1e-300)
            between = self.inner + np.clip(share, 0.1, 0.9) * (self.outer - self.inner)
        growth = np.clip(threshold / np.maximum(self.inner_z, 1e-300), 1.1, 4.0)
        return np.where(np.isfinite(self.outer), between, np.maximum(self.inner, reach) * growth)


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
    """One end of the interval: walk outwards until z passes the threshold, then close in. z is nearly linear there."""
    centre, error, direction = standard_error(problem, quantity, u, noise, observed)
    widest = WIDEST * np.maximum(np.abs(centre), 0.1) if quantity.scale == "linear" else np.full(len(u), WIDEST)
    error = np.where(error > 0, np.minimum(error, widest), widest)
    observed = np.broadcast_to(problem.observed if observed is None else observed, (len(u), len(problem.observed)))
    slack = STIFF * noise.kappa / error**2
    stiffness, reach = slack.copy(), threshold * error
    bracket, place, is_open = _Bracket.around(len(u)), u.copy(), np.zeros(len(u), bool)
    rows = np.arange(len(u))
    for _ in range(ROUNDS):
        limit = threshold[rows]
        goal = centre[rows] + side * reach[rows]
        begin = place[rows] + direction[rows] * (goal - quantity.along(problem, place[rows])[0])[:, None]
        tether = Tether(quantity, goal, stiffness[rows])
        ended = minimise(
            problem, np.clip(begin, *problem.bounds), observed=observed[rows], tether=tether, effort=PROFILE
        )
        value = quantity.along(problem, ended.u)[0]
        rise = ended.cost - tether.cost(value) - cost[rows]
        z = np.sqrt(np.maximum(2.0 * rise / noise.kappa[rows], 0.0))
        failed = ~np.isfinite(z)
        distance = np.where(failed, reach[rows], side * (value - centre[rows]))
        z = np.where(failed, 2.0 * limit, z)
        inside, close = z < limit, np.abs(z - limit) <= CLOSE * limit
        # A tether that stretches has met a steep rise or a bound; only a bound withstands a stiffer one.
        asked = reach[rows] - bracket.inner[rows]
        lagging = inside & ~close & (distance < bracket.inner[rows] + LAGGING * asked)
        unmoved = (distance < bracket.inner[rows] + UNMOVED * asked) & (stiffness[rows] > slack[rows])
        stuck = lagging & (unmoved | (stiffness[rows] >= STIFFEST * slack[rows])) & ~np.isfinite(bracket.outer[rows])
        stiffness[rows[lagging]] *= STIFFER
        is_open[rows[stuck]] = True
        place[rows[inside]] = ended.u[inside]
        bracket.learn(rows, distance, z, inside)
        bracket.inner[rows[close]] = distance[close]
        rows = rows[~(close | stuck)]
        if not len(rows):
            break
        reach = bracket.guess(threshold, reach)
    # Rows that are still walking: the objective has not risen far enough anywhere tried.
    is_open[rows[~np.isfinite(bracket.outer[rows])]] = True
    return centre + side * bracket.inner, is_open
