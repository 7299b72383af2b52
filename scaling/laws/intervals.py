"""Intervals of a fit: by the profile of the objective, by Student's t (which takes it as a parabola), or by refits.

The profile of a quantity g is the least objective among parameters at which g has a stated value. The interval holds
the values whose profile rises over the minimum by no more than κ t²/2, with t Student's quantile at n - p degrees of
freedom (for least squares: the F(1, n - p) bound, exact where the law is linear in the right coordinates;
Bates and Watts 1988, Nonlinear Regression Analysis, section 6.1). It follows the law's curvature, knows bounds, and
is open where the objective never rises that far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from scaling.laws.problem import Objective, Problem, Quantity, SharedErrors
from scaling.laws.solver import PROFILE, Solution, Tether, minimise

Method = Literal["profile", "t", "bootstrap"]
METHODS = ("profile", "t", "bootstrap")
LEVEL = 0.95
SIDES = np.array([[-1.0], [1.0]])  # of an estimate: the two ends of its interval
EXACT = 1e-12  # errors below this are rounding: the points lie on the law


@dataclass(frozen=True)
class Interval:
    """The interval of a quantity. An end that the points leave open is infinite."""

    name: str
    estimate: float
    low: float
    high: float
    level: float
    method: str

    @property
    def open_below(self) -> bool:
        return self.low == -math.inf

    @property
    def open_above(self) -> bool:
        return self.high == math.inf

    def covers(self, value: float) -> bool:
        return self.low <= value <= self.high

    def to_json(self) -> dict[str, Any]:
        """The estimate, both ends (null where open), level and method."""
        numbers = {"estimate": self.estimate, "low": self.low, "high": self.high}
        finite = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        return {**finite, "level": self.level, "method": self.method}

    def __str__(self) -> str:
        low, high = (f"{end:.4g}" if math.isfinite(end) else "open" for end in (self.low, self.high))
        return f"{self.name} {self.estimate:.5g} ({100 * self.level:g}% {low} to {high})"


def is_wide(interval: Interval) -> bool:
    """Whether the interval of an exponent or a loss is open or too wide for an answer.

    At this limit an exponent is known to within a half of itself: where a reducible loss is seen to fall by 10^-0.5
    over a decade, it may as well fall by 10^-0.25 or by 10^-0.75.
    """
    return not interval.high - interval.low <= abs(interval.estimate)


def is_wide_size(interval: Interval) -> bool:
    """Whether the interval of a size is open or too wide for an answer."""
    # As wide as a sweep of sizes.
    return not 0.0 < interval.high <= 100.0 * interval.low


class Noise(NamedTuple):
    """The scale s of the errors of a fit, and what it means under the fit's objective."""

    scale: float
    # E[ψ²]/E[ψ']: twice the objective's rise, over κ, is χ² with one degree of freedom where the null holds.
    kappa: float
    variance: float  # E[ψ²]/E[ψ']²: times the inverse of J'WJ it is the covariance of the estimates


def measure(objective: Objective, cost: float, points: int, parameters: int) -> Noise:
    """The standard deviation s of normal errors that explains an objective of `cost` after fitting.

    Fitting p parameters lowers the expected objective of n errors, n E[ρ], by p κ/2, so s solves cost = n E[ρ] - p κ/2.
    For squared errors this is s² = Σ r²/(n - p); for absolute errors s is in proportion to Σ |r|, so that a few wild
    points count little. Hampel, Ronchetti, Rousseeuw and Stahel 1986, Robust Statistics, section 7.2.
    """
    from scipy.special import erf, erfc

    delta = objective.delta
    if np.isinf(delta):
        square = 2.0 * cost / (points - parameters)
        return Noise(math.sqrt(square), square, square)

    def moments(scale: Any) -> tuple[Any, Any, Any]:
        """E[ρ], E[ψ²]/E[ψ'] and E[ψ'] of normal errors."""
        ratio = delta / scale
        density, tail = np.exp(-0.5 * ratio**2) / math.sqrt(2.0 * math.pi), erfc(ratio / math.sqrt(2.0))
        # E[(r/s)²; |r| ≤ δ]. For a narrow δ the difference cancels; its series is 2φ(0) a³/3.
        inside = erf(ratio / math.sqrt(2.0)) - 2.0 * ratio * density
        inside = np.where(ratio < 1e-3, 2.0 / math.sqrt(2.0 * math.pi) * ratio**3 / 3.0, inside)
        penalty = 0.5 * scale**2 * inside + delta * (2.0 * scale * density - 0.5 * delta * tail)
        return penalty, (scale**2 * inside + delta**2 * tail) / (1.0 - tail), 1.0 - tail

    # The expected objective grows with s: a table of it is read the other way.
    table = delta * np.exp(np.linspace(-25.0, 25.0, 4001))
    penalty, kappa, _ = moments(table)
    expected = points * penalty - 0.5 * parameters * kappa
    scale = np.exp(np.interp(np.log(max(cost, 1e-300)), np.log(np.maximum(expected, 1e-300)), np.log(table)))
    _, kappa, inside = moments(scale)
    return Noise(float(scale), float(kappa), float(kappa / inside))


def student(level: float, freedom: float) -> float:
    """The two-sided quantile of Student's t: its square is that of F(1, freedom)."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + 0.5 * level))


def standard_error(
    problem: Problem, slope: np.ndarray, jacobian: np.ndarray, noise: Noise
) -> tuple[np.ndarray, np.ndarray]:
    """The linearised standard error of quantities, and the direction du/dg in which the parameters follow them.

    `slope` `[rows, parameters]` is their derivative by u, `jacobian` `[rows or 1, parameters, points]` that of the law.
    """
    information = (jacobian * problem.weights) @ jacobian.swapaxes(1, 2)
    follow = (np.linalg.pinv(information, rcond=1e-13, hermitian=True) @ slope[:, :, None])[:, :, 0]
    variance = (slope * follow).sum(1)
    direction = np.where(variance[:, None] > 0, follow / variance[:, None], 0.0)
    return np.sqrt(np.maximum(noise.variance * variance, 0.0)), direction


# What unequal errors, and errors that belong together, add.

REFITS, FEWER_REFITS = 200, 50
DEVIATION = 0.3413  # of normal estimates, between their middle and one standard deviation above it


def inflation(
    problem: Problem,
    linear: tuple[np.ndarray, np.ndarray],
    noise: Noise,
    error: np.ndarray,
    direction: np.ndarray,
    groups: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    """The factor on the variance of quantities, at least 1, and the degrees of freedom.

    The variance from the scores of the points themselves over that of equal, independent errors. Alone, points count
    by their leverage (HC2 of MacKinnon and White 1985, Journal of Econometrics 29) with n - p degrees of freedom; in
    G groups their scores add up first, with G - 1 (Cameron and Miller 2015, Journal of Human Resources 50(2)).
    `linear` are the residuals and the Jacobian at the optimum, `error` and `direction` those of `standard_error`.
    """
    residual, jacobian = linear
    scores = jacobian * (problem.weights * problem.objective.influence(residual))[:, None, :]
    n, p = len(problem.observed), len(problem.free)
    freedom = float(n - p)
    if groups is not None:
        count = int(groups.max()) + 1
        freedom = float(max(count - 1, 1))
        members = (groups[:, None] == np.arange(count)).astype(float)
        scores = scores @ members * np.sqrt(count / freedom * (n - 1) / max(n - p, 1))
    elif np.isinf(problem.objective.delta):
        # Squared errors shrink the residual of a point that holds the law; a bounded influence does not feel it. How
        # much each holds it, 0 to 1, is the diagonal of the hat matrix.
        rows = (jacobian * np.sqrt(problem.weights)).swapaxes(1, 2)
        length = np.linalg.norm(rows, axis=1, keepdims=True)
        leverage = (np.linalg.qr(rows / np.where(length > 0, length, 1.0)).Q ** 2).sum(-1)
        scores = scores / np.sqrt(np.maximum(1.0 - leverage, 0.05))[:, None, :]
    # `direction` is the change of the coordinates per unit of the quantity, so this is the quantity's own score.
    along = (scores.swapaxes(1, 2) @ direction[:, :, None])[:, :, 0]
    variance = np.maximum(error**2, 1e-300)
    curvature = np.maximum(noise.kappa / variance, 1e-300)
    return np.maximum(1.0, (along**2).sum(1) / curvature**2 / variance), freedom


def refits(problem: Problem, u: np.ndarray, weights: np.ndarray) -> Solution:
    """Optima from the optimum `u` under other relative weights of the points, `[refits, points]`."""
    weights = weights * problem.weights
    return minimise(problem, np.tile(u, (len(weights), 1)), weights / weights.mean(1, keepdims=True), effort=PROFILE)


def reweighted(problem: Problem, u: np.ndarray) -> np.ndarray:
    """Optima `[refits, parameters]` under random weights of the points, from the optimum `u`.

    Newton and Raftery 1994, J. Royal Statist. Soc. B 56(1), section 2. A bounded influence gives a wild point and a
    tame one the same score, so that scores alone do not show that errors are unequal; these refits do. Under squared
    errors scores do, and there are none.
    """
    if np.isinf(problem.objective.delta):
        return np.empty((0, len(u)))
    n = len(problem.observed)
    count = REFITS if n < 1000 else FEWER_REFITS
    ended = refits(problem, u, np.random.Generator(np.random.Philox(key=[0, 2])).standard_exponential((count, n)))
    # A refit that did not converge counts as one that did not move.
    return np.where(ended.converged[:, None], ended.u, u)


def widening(values: np.ndarray, estimate: np.ndarray, reach: np.ndarray, quantile: float, points: int) -> np.ndarray:
    """The factors, at least 1, by which the ends at a distance of `reach` `[2, rows]` from each estimate move outwards.

    `values` `[rows, refits]` are the quantity's, in its scale; `quantile` is Student's. With few points their spread
    is itself uncertain, and counts little.
    """
    spread = np.quantile(values, (0.5 - DEVIATION, 0.5 + DEVIATION), axis=1) - estimate
    ratios = quantile * spread * SIDES / reach
    # At 20 points the spread counts by half where it exceeds the profile's.
    return np.where(np.isfinite(ratios), np.maximum(ratios, 1.0), 1.0) ** (points / (points + 20.0))


@np.errstate(all="ignore")  # what is not finite is open
def bound(
    problem: Problem,
    u: np.ndarray,
    cost: float,
    quantities: Sequence[Quantity],
    reweighted: np.ndarray,
    groups: np.ndarray | None = None,
    *,
    level: float = LEVEL,
    method: str = "profile",
) -> list[Interval]:
    """The interval of each quantity at the optimum `u`, all at once, by "profile" or "t".

    They widen by what the scores of points, or of `groups` of them, show, by what is not known of the correlation of
    shared errors, and by the spread of `reweighted` optima under random weights. There has to be a degree of freedom.
    """
    if not quantities:
        return []
    place = problem.expand(u[None])  # most of what a quantity costs
    value, slope = (np.concatenate(part) for part in zip(*(one.along(problem, u[None], place) for one in quantities)))
    noise = measure(problem.objective, cost, len(problem.observed), len(problem.free))
    ends = np.array([value, value])
    if noise.scale >= EXACT * max(1.0, abs(float(np.mean(problem.observed)))):
        linear = problem.linearise(u[None])
        error, direction = standard_error(problem, slope, linear[1], noise)
        factor, freedom = inflation(problem, linear, noise, error, direction, groups)
        quantile = student(level, freedom)
        threshold = quantile * np.sqrt(factor)
        ends = value + SIDES * threshold * error
        if method == "profile":
            ends = profile(problem, quantities, u, cost, noise, threshold, value, error)
        reach = SIDES * (ends - value)
        if (correlation := problem.correlation(u)) is not None:
            reach *= correlation.widening(slope, level)
        if len(reweighted):
            places = problem.expand(reweighted)
            values = np.array([quantity.along(problem, reweighted, places)[0] for quantity in quantities])
            reach *= widening(values, value, reach, quantile, len(problem.observed))
        limits = np.transpose([quantity.limits for quantity in quantities])
        ends = np.where(np.isinf(reach), ends, np.clip(value + SIDES * reach, *limits))
    theta = problem.theta(u)
    return [
        Interval(
            quantity.name,
            float(quantity.of(problem.form, theta)),
            *(float(end if np.isinf(end) else quantity.unscale(end)) for end in both),
            level=level,
            method=method,
        )
        for quantity, both in zip(quantities, ends.T, strict=True)
    ]


# Profiles.

CLOSE = 2e-3  # of the signed root t: the bound is then right to about a thousandth of its distance
STIFFER, STIFFEST = 1e3, 1e9  # a tether that stretches is stiffened
LAGGING, UNMOVED = 0.5, 1e-4  # fractions of the requested way: below the first a tether stretches, below the second


def profile(
    problem: Problem,
    quantities: Sequence[Quantity],
    u: np.ndarray,
    cost: float,
    noise: Noise,
    threshold: np.ndarray,
    value: np.ndarray,
    error: np.ndarray,
) -> np.ndarray:
    """Both ends `[2, quantities]` of the profile interval of each quantity, at the optimum `u` of objective `cost`.

    `threshold` is the largest signed root z = √(2 rise/κ) that is kept, `value` the estimate in the quantity's scale
    and `error` its linearised standard error, by quantity. Each end walks outwards until z passes the threshold, then
    closes in by regula falsi: z is nearly linear. An open end is infinite.
    """
    side, both = np.repeat(SIDES, len(quantities)), np.tile(np.array(quantities, object), 2)
    centre, error, threshold = (np.tile(part, 2) for part in (value, error, threshold))
    rows, place = np.arange(len(side)), np.tile(u, (len(side), 1))
    in_log = np.array([quantity.scale == "log" for quantity in both])
    # The first step where the points carry no information, relative to the size of the quantity.
    farthest = 3.0 * np.where(in_log, 1.0, np.maximum(np.abs(centre), 0.1))
    error = np.where(error > 0, np.minimum(error, farthest), farthest)
    room = np.abs([quantity.limits[int(end > 0)] for quantity, end in zip(both, side)] - centre)
    # The tether holds the quantity a hundred times more firmly than the points do.
    slack = 100.0 * noise.kappa / error**2
    stiffness, reach = slack.copy(), threshold * error
    inner, inner_z = np.zeros((2, len(side)))  # the farthest place inside, and that nearest outside
    outer, outer_z = np.full((2, len(side)), np.inf)
    is_open, doubted = np.zeros((2, len(side)), bool)
    for _ in range(20):
        # From the last place inside along the way on which the other parameters follow.
        target = np.minimum(reach[rows], room[rows])
        tether = Tether(both[rows], centre[rows] + side[rows] * target, stiffness[rows])
        expanded = problem.expand(place[rows])
        value, slope = tether.along(problem, place[rows], expanded)
        _, direction = standard_error(problem, slope, problem.linearise(place[rows], expanded)[1], noise)
        begin = np.clip(place[rows] + direction * (tether.centre - value)[:, None], *problem.bounds)
        ended = minimise(problem, begin, tether=tether, effort=PROFILE)
        value, _ = tether.along(problem, ended.u, problem.expand(ended.u))
        z = np.sqrt(np.maximum(2.0 * (ended.cost - tether.cost(value) - cost) / noise.kappa, 0.0))
        distance = np.where(np.isfinite(z), side[rows] * (value - centre[rows]), target)
        z = np.where(np.isfinite(z), z, 2.0 * threshold[rows])
        close, inside = np.abs(z - threshold[rows]) <= CLOSE * threshold[rows], z < threshold[rows]
        # Where the way is short, the objective rises steeply or the quantity is at a bound: only that withstands.
        at_limit = target == room[rows]
        short = distance < np.where(at_limit, (1.0 - CLOSE) * target, inner[rows] + LAGGING * (target - inner[rows]))
        lagging = inside & ~close & short
        unmoved = (distance < inner[rows] + UNMOVED * (target - inner[rows])) & (stiffness[rows] > slack[rows])
        stuck = lagging & (unmoved | (stiffness[rows] >= STIFFEST * slack[rows])) & np.isinf(outer[rows])
        stuck |= inside & ~close & ~short & at_limit
        stiffness[rows[lagging]] *= STIFFER
        is_open[rows[stuck]] = True
        place[rows[inside]] = ended.u[inside]
        inner[rows[inside]], inner_z[rows[inside]] = distance[inside], z[inside]
        outer[rows[~inside]], outer_z[rows[~inside]] = distance[~inside], z[~inside]
        inner[rows[close]] = distance[close]
        rows = rows[~(close | stuck)]
        if not len(rows):
            break
        # Where two minima lie at one distance the higher may have been found: a place outside that nothing inside
        # leads up to is doubted, once.
        far = rows[(outer[rows] - inner[rows] < 1e-2 * outer[rows]) & ~doubted[rows]]
        outer[far], outer_z[far], doubted[far] = np.inf, np.inf, True
        fraction = (threshold - inner_z) / np.maximum(outer_z - inner_z, 1e-300)
        further = inner * np.clip(np.nan_to_num(threshold / inner_z, nan=np.inf), 1.1, 4.0)
        between = inner + np.clip(fraction, 0.1, 0.9) * np.where(np.isinf(outer), 0.0, outer - inner)
        reach = np.where(np.isfinite(outer), between, np.where(inner > 0, further, 1.1 * reach))
    # Rows that still walk found no rise; a place inside on the other side of the estimate: the quantity jumps there.
    is_open[rows[np.isinf(outer[rows])]] = True
    return np.where(is_open | (inner < 0), side * np.inf, centre + side * inner).reshape(2, -1)


def bootstrap(problem: Problem, u: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, int]:
    """Optima `[refits, parameters]` of resampled points, each from the optimum `u`; how many did not converge.

    Points are drawn with replacement, in whole groups where these share errors. Efron and Tibshirani 1993, An
    Introduction to the Bootstrap, sections 9.4 and 9.5.
    """
    groups = problem.shared.groups if isinstance(problem.shared, SharedErrors) else np.arange(len(problem.observed))
    group_count = int(groups.max()) + 1
    rng = np.random.Generator(np.random.Philox(key=[seed, 1]))
    ended = refits(problem, u, rng.multinomial(group_count, np.full(group_count, 1.0 / group_count), count)[:, groups])
    return ended.u[ended.converged], int((~ended.converged).sum())
