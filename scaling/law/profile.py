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
from scaling.law.quantity import Each, Quantity
from scaling.law.solver import PROFILE, Tether, minimise

ROUNDS = 20
CLOSE = 2e-3  # of the signed root t: the bound is then right to about a thousandth of its distance
STIFF = 100.0  # the tether holds the quantity a hundred times more firmly than the points do
WIDEST = 3.0  # first step, in the quantity's scale relative to its size, where the points carry no information
NARROW = 1e-2  # of the way to a bracket's outer end
LAGGING, UNMOVED = (
    0.5,
    1e-4,
)  # fractions of the requested way: below the first the tether is stiffened, below the second
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
    quantity: Quantity | Each,
    u: np.ndarray,
    cost: np.ndarray,
    noise: Noise,
    threshold: np.ndarray,
    observed: np.ndarray | None = None,
) -> Bounds:
    """The profile interval of `quantity` for each optimum `u` `[rows, parameters]` with its objective `cost`.

    `threshold` is the largest signed root z = √(2 rise/κ) that is kept; `observed` may differ by row.
    """
    ends, rows = np.tile(np.arange(len(u)), 2), len(u)
    observed = np.broadcast_to(problem.observed if observed is None else observed, (rows, len(problem.observed)))
    side = np.repeat((-1.0, 1.0), rows)
    bound, is_open = _ends(
        problem, quantity.at(ends), u[ends], cost[ends], noise.at(ends), threshold[ends], observed[ends], side
    )
    return Bounds(bound[:rows], bound[rows:], is_open[:rows], is_open[rows:])


def standard_error(
    problem: Problem, quantity: Quantity | Each, u: np.ndarray, noise: Noise, observed: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The quantity, its linearised standard error, and the direction dU/dg in which the other parameters follow it."""
    expanded = problem.coordinates.expand(u)
    value, slope = quantity.along(problem, u, expanded)
    _, jacobian = problem.linearise(u, observed, expanded)
    information = (jacobian * problem.weights) @ jacobian.swapaxes(1, 2)
    inverse = np.linalg.pinv(information, rcond=1e-13, hermitian=True)
    follow = (inverse @ slope[:, :, None])[:, :, 0]
    variance = (slope * follow).sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        direction = np.where(variance[:, None] > 0, follow / variance[:, None], 0.0)
    return value, np.sqrt(np.maximum(noise.variance * variance, 0.0)), direction


@dataclass
class _Bracket:
    """How far from the estimate each row's end lies at least and at most, and the signed root z at both.

    `before` is the place inside the one that lies furthest. Where two minima lie at one distance the higher may have
    been found: an outer end that nothing inside leads up to is doubted, once.
    """

    inner: np.ndarray
    inner_z: np.ndarray
    before: np.ndarray
    before_z: np.ndarray
    outer: np.ndarray
    outer_z: np.ndarray
    doubted: np.ndarray

    @classmethod
    def around(cls, rows: int) -> _Bracket:
        inner, inner_z, before, before_z = np.zeros((4, rows))
        outer, outer_z = np.full((2, rows), np.inf)
        return cls(inner, inner_z, before, before_z, outer, outer_z, np.zeros(rows, bool))

    def learn(self, rows: np.ndarray, distance: np.ndarray, z: np.ndarray, inside: np.ndarray) -> None:
        further = rows[inside & (distance > self.inner[rows])]
        self.before[further], self.before_z[further] = self.inner[further], self.inner_z[further]
        self.inner[rows[inside]], self.inner_z[rows[inside]] = distance[inside], z[inside]
        self.outer[rows[~inside]], self.outer_z[rows[~inside]] = distance[~inside], z[~inside]

    def doubt(self, rows: np.ndarray) -> None:
        """Forget outer ends that have come close and are still far above what is inside."""
        with np.errstate(invalid="ignore"):
            far = rows[(self.outer[rows] - self.inner[rows] < NARROW * self.outer[rows]) & ~self.doubted[rows]]
        self.outer[far], self.outer_z[far], self.doubted[far] = np.inf, np.inf, True

    def guess(self, rows: np.ndarray, threshold: np.ndarray, reach: np.ndarray) -> np.ndarray:
        """Where to look next: between the two by regula falsi on z, or further out where no outer one is known."""
        inner, missing = self.inner[rows], threshold[rows] - self.inner_z[rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = missing / np.maximum(self.outer_z[rows] - self.inner_z[rows], 1e-300)
            between = inner + np.clip(share, 0.1, 0.9) * (self.outer[rows] - inner)
            slope = (self.inner_z[rows] - self.before_z[rows]) / (inner - self.before[rows])
            further = np.nan_to_num(missing / slope, nan=np.inf, posinf=np.inf)
        outside = np.where(inner > 0, inner + np.clip(further, 0.1 * inner, 3.0 * inner), 1.1 * reach[rows])
        return np.where(np.isfinite(self.outer[rows]), between, outside)


def _ends(
    problem: Problem,
    quantity: Quantity | Each,
    u: np.ndarray,
    cost: np.ndarray,
    noise: Noise,
    threshold: np.ndarray,
    observed: np.ndarray,
    side: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """An end of each row's interval: walk outwards until z passes the threshold, then close in. z is nearly linear."""
    centre, error, _ = standard_error(problem, quantity, u, noise, observed)
    widest = WIDEST * np.where(quantity.in_log, 1.0, np.maximum(np.abs(centre), 0.1))
    error = np.where(error > 0, np.minimum(error, widest), widest)
    limit = np.where(side < 0, *np.broadcast_arrays(*quantity.limits, centre)[:2])
    slack = STIFF * noise.kappa / error**2
    stiffness, reach = slack.copy(), threshold * error
    bracket, place, is_open = _Bracket.around(len(u)), u.copy(), np.zeros(len(u), bool)
    rows = np.arange(len(u))
    for _ in range(ROUNDS):
        local = quantity.at(rows)
        # The way from the last place inside along which the other parameters follow, as far as it goes.
        value, _, direction = standard_error(problem, local, place[rows], noise.at(rows), observed[rows])
        goal = centre[rows] + side[rows] * reach[rows]
        goal = np.where(side[rows] < 0, np.maximum(goal, limit[rows]), np.minimum(goal, limit[rows]))
        tether = Tether(local, goal, stiffness[rows])
        begin = np.clip(place[rows] + direction * (goal - value)[:, None], *problem.bounds)
        ended = minimise(problem, begin, observed=observed[rows], tether=tether, effort=PROFILE)
        value = local.along(problem, ended.u)[0]
        rise = ended.cost - tether.cost(value) - cost[rows]
        z = np.sqrt(np.maximum(2.0 * rise / noise.kappa[rows], 0.0))
        failed = ~np.isfinite(z)
        distance = np.where(failed, reach[rows], side[rows] * (value - centre[rows]))
        z = np.where(failed, 2.0 * threshold[rows], z)
        inside, close = z < threshold[rows], np.abs(z - threshold[rows]) <= CLOSE * threshold[rows]
        # A tether that stretches has met a steep rise or a bound; only a bound withstands a stiffer one.
        step = np.abs(goal - centre[rows]) - bracket.inner[rows]
        last = goal == limit[rows]
        short = distance < np.where(
            last, (1.0 - CLOSE) * np.abs(goal - centre[rows]), bracket.inner[rows] + LAGGING * step
        )
        lagging = inside & ~close & short
        unmoved = (distance < bracket.inner[rows] + UNMOVED * step) & (stiffness[rows] > slack[rows])
        stuck = lagging & (unmoved | (stiffness[rows] >= STIFFEST * slack[rows])) & ~np.isfinite(bracket.outer[rows])
        stuck |= inside & ~close & ~short & last
        stiffness[rows[lagging]] *= STIFFER
        is_open[rows[stuck]] = True
        place[rows[inside]] = ended.u[inside]
        bracket.learn(rows, distance, z, inside)
        bracket.inner[rows[close]] = distance[close]
        rows = rows[~(close | stuck)]
        if not len(rows):
            break
        bracket.doubt(rows)
        reach[rows] = bracket.guess(rows, threshold, reach)
    # Rows that are still walking: the objective has not risen far enough anywhere tried.
    is_open[rows[~np.isfinite(bracket.outer[rows])]] = True
    # A place inside on the other side of the estimate: the quantity jumps there, and no end was found.
    is_open |= bracket.inner < 0
    return centre + side * bracket.inner, is_open
