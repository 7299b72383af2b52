"""Levenberg-Marquardt over many starts at once, for least squares and for Huber's penalty, within bounds.

Each row of the batch is its own problem with its own damping λ; rows that have converged leave the batch. For Huber's
penalty the curvature matrix moves from that of reweighted least squares (which always descends) at λ ≥ 1 to Newton's
(which ends in finitely many steps where the law is linear; Madsen and Nielsen 1990, BIT 30) as λ → 0. A search begins
from random starts, their linear parameters eliminated, all screened at once and the best refined together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from scaling.laws.problem import Expanded, Problem

FIRST_DAMPING, SMALLEST_DAMPING, LARGEST_DAMPING = 1e-2, 1e-13, 1e13
BATCH = 32_768  # starts × points in one batch: a batch and its temporaries fit a core's cache
SMALLEST_FRACTION = 1e-3  # of the prediction, which a term keeps that least squares would make negative


class Effort(NamedTuple):
    """When to stop: a Newton step would remove less than this fraction of the objective, or after so many steps."""

    tolerance: float
    iterations: int


EXACT, PATIENT = Effort(1e-13, 400), Effort(1e-13, 4000)
PROFILE = Effort(1e-8, 400)  # its height is needed to a thousandth of its rise
COMPARED = Effort(1e-7, 100)  # the errors by which laws are compared are needed to three digits


class Solution(NamedTuple):
    """The end of each start: coordinates, objective, and whether a Newton step would remove next to nothing of it."""

    u: np.ndarray
    cost: np.ndarray
    converged: np.ndarray


# The local model of each row: cost, gradient, Newton's matrix and the reweighted one.
Quadratic: TypeAlias = Sequence[np.ndarray]


class Tether(NamedTuple):
    """A pull of ½ stiffness (quantity - centre)², by row. Where it comes to rest, the rest of the objective is the
    least possible at that value of the quantity: a point of its profile."""

    quantities: Any  # An array of `Quantity`
    centre: np.ndarray
    stiffness: np.ndarray

    def at(self, rows: np.ndarray | slice) -> Tether:
        return Tether(*(part[rows] for part in self))

    def along(self, problem: Problem, u: np.ndarray, expanded: Expanded) -> tuple[np.ndarray, np.ndarray]:
        """The quantity of each row, in its scale, and its derivative by the coordinates: `Quantity.along` by row."""
        theta, seeds = expanded
        value, slope = np.empty(len(u)), np.empty(u.shape)
        which = np.fromiter(map(id, self.quantities), int, len(u))
        for one in np.unique(which):
            rows = np.flatnonzero(which == one)
            part = {index: {k: each[rows] for k, each in seed.items()} for index, seed in seeds.items()}
            value[rows], slope[rows] = self.quantities[rows[0]].along(problem, u[rows], (theta[rows], part))
        return value, slope

    def cost(self, value: np.ndarray) -> np.ndarray:
        return 0.5 * self.stiffness * (value - self.centre) ** 2


@np.errstate(all="ignore")
def minimise(
    problem: Problem,
    starts: np.ndarray,
    weights: np.ndarray | None = None,
    tether: Tether | None = None,
    effort: Effort = EXACT,
) -> Solution:
    """Refine every start `[starts, parameters]`; `weights` may differ by start (`[starts, points]`)."""
    weight = np.broadcast_to(problem.weights if weights is None else weights, (len(starts), len(problem.observed)))
    size = max(1, BATCH // len(problem.observed))
    if len(starts) > size:
        parts = [slice(first, first + size) for first in range(0, len(starts), size)]
        pieces = (minimise(problem, starts[p], weight[p], tether and tether.at(p), effort) for p in parts)
        return Solution(*map(np.concatenate, zip(*pieces)))
    (lower, upper), u, rows = problem.bounds, starts, np.arange(len(starts))
    longest = np.where(problem.in_log, 60.0, np.inf)
    damping = np.full(len(u), FIRST_DAMPING if np.isinf(problem.objective.delta) else 1.0)
    # A cost below rounding: the points lie on the law.
    exact = 1e-29 * np.maximum(weight.sum(-1), 1.0) * max(1.0, float(np.mean(problem.observed**2)))
    final = Solution(u.copy(), np.full(len(u), np.inf), np.zeros(len(u), bool))
    current = _quadratic(problem, u, weight, tether)
    for iteration in range(effort.iterations + 1):
        step, promised, remaining = _step(current, u, damping, lower, upper, longest)
        remaining = np.where(current[0] <= exact, 0.0, remaining)
        # At the end rounding decides: no damping is strong enough to find a lower cost.
        done = (remaining <= effort.tolerance) | (damping >= LARGEST_DAMPING) | (iteration == effort.iterations)
        if done.any():
            for whole, part in zip(final, (u, current[0], np.isfinite(current[0]) & (remaining <= 1e-7))):
                whole[rows[done]] = part[done]
            if done.all():
                break
            left = ~done
            rows, u, damping, exact, weight, step, promised, *current = (
                part[left] for part in (rows, u, damping, exact, weight, step, promised, *current)
            )
            tether = tether and tether.at(left)
        trial = np.minimum(np.maximum(u + step, lower), upper)
        tried = _quadratic(problem, trial, weight, tether)
        gained = current[0] - tried[0]
        better = gained > 0
        u = np.where(better[:, None], trial, u)
        for part, new in zip(current, tried):
            part[better] = new[better]
        eased = np.where(gained > 0.25 * promised, damping * 0.1, damping)
        # On a tether a step that gains little of what it promised is too long as well: across a kink of Huber's penalty
        # such steps go back and forth until the iterations are over. Without one, they are the rounding near a minimum,
        # and more damping would hide that it is reached.
        if tether is not None:
            better &= gained > 1e-2 * promised
        damping = np.clip(np.where(better, eased, damping * 5.0), SMALLEST_DAMPING, LARGEST_DAMPING)
    return final


def _quadratic(problem: Problem, u: np.ndarray, weights: np.ndarray, tether: Tether | None) -> Quadratic:
    """The model at `u`."""
    objective, expanded = problem.objective, problem.expand(u)
    residual, jacobian = problem.linearise(u, expanded)
    cost, transposed = problem.cost(residual, weights), jacobian.swapaxes(1, 2)
    gradient = (jacobian @ (weights * objective.influence(residual))[:, :, None])[:, :, 0]
    reweighted = newton = (jacobian * (weights * objective.weight(residual))[:, None, :]) @ transposed
    if np.isfinite(objective.delta):
        newton = (jacobian * (weights * objective.curvature(residual))[:, None, :]) @ transposed
    if tether is not None:
        value, slope = tether.along(problem, u, expanded)
        pull = tether.stiffness[:, None, None] * (slope[:, :, None] * slope[:, None, :])
        cost = cost + tether.cost(value)
        gradient = gradient + (tether.stiffness * (value - tether.centre))[:, None] * slope
        reweighted, newton = reweighted + pull, newton + pull
    broken = ~(np.isfinite(cost) & np.isfinite(gradient).all(-1) & np.isfinite(reweighted).all((-1, -2)))
    return np.where(broken, np.inf, cost), gradient, newton, reweighted


def _step(
    current: Quadratic, u: np.ndarray, damping: np.ndarray, lower: np.ndarray, upper: np.ndarray, longest: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The damped step, what it promises to gain, and the fraction of the cost that an undamped one promises."""
    cost, gradient, newton, reweighted = current
    mix = np.minimum(damping, 1.0)[:, None, None]
    matrix = (1.0 - mix) * newton + mix * reweighted
    at_bound = ((u <= lower) & (gradient > 0)) | ((u >= upper) & (gradient < 0))
    size = np.sqrt(np.diagonal(reweighted, axis1=1, axis2=2))
    size = np.where(at_bound | ~(size > 0), 1.0, size)
    scaled = matrix / (size[:, :, None] * size[:, None, :])
    scaled[~np.isfinite(scaled) | at_bound[:, :, None] | at_bound[:, None, :]] = 0.0
    diagonal = np.arange(u.shape[1])
    scaled[:, diagonal, diagonal] += damping[:, None] + at_bound
    slope = np.where(np.isfinite(gradient) & ~at_bound, gradient / size, 0.0)
    step = -np.linalg.solve(scaled, slope[:, :, None])[:, :, 0]
    promised = -(slope * step).sum(-1) / 2
    step = step / size
    too_long = (np.abs(step) / longest).max(1)
    step = step / np.maximum(too_long, 1.0)[:, None]
    fraction = np.abs(promised / np.maximum(cost, 1e-300))
    # Under strong damping a small promised gain is no sign of a minimum.
    return step, promised, np.where(damping <= 1.0, fraction, np.inf)


def _eliminate(problem: Problem, theta: np.ndarray) -> np.ndarray:
    """The same starts with the linear parameters at their weighted least-squares values.

    Variable projection (Golub and Pereyra 1973, SIAM J. Numer. Anal. 10) is exact for squared errors of the loss. For
    errors of log loss the parameters are not linear; least squares weighted by 1/loss² agrees to first order in the
    residual, so it is where the search starts, never where it ends.
    """
    linear = [index for index in problem.free if index in problem.form.linear]
    if not linear:
        return theta
    with_ones, eliminated = theta.copy(), theta.copy()
    with_ones[:, linear], eliminated[:, linear] = 1.0, 0.0
    root = np.sqrt(problem.weights) / (problem.loss if problem.objective.space == "log" else 1.0)
    terms = problem.form.jacobian(with_ones, problem.columns)[:, :, linear] * root[:, None]
    rest = (problem.loss - problem.form.predict(eliminated, problem.columns)) * root
    size = np.sqrt(np.mean(terms**2, axis=1))
    size = np.where(size > 0, size, 1.0)
    scaled = terms / size[:, None, :]
    square = scaled.swapaxes(1, 2) @ scaled + 1e-10 * len(root) * np.eye(len(linear))
    solution = np.linalg.solve(square, (scaled * rest[:, :, None]).sum(1)[:, :, None])[:, :, 0]
    # A term that least squares would make negative keeps a small fraction instead.
    total = np.abs(solution).sum(1, keepdims=True)
    bounded = np.array([problem.form.parameters[index].lower >= 0 for index in linear])
    small = bounded & (solution / np.maximum(total, 1e-300) < SMALLEST_FRACTION)
    eliminated[:, linear] = np.where(small, SMALLEST_FRACTION * total, solution) / size
    return eliminated


def draw(problem: Problem, count: int, seed: int) -> np.ndarray:
    """`count` random starts of the form, as coordinates, with the linear parameters eliminated from half of them."""
    rng = np.random.Generator(np.random.Philox(seed))
    return prepare(problem, problem.form.start(rng, count, problem.columns, problem.loss))


@np.errstate(all="ignore")
def prepare(problem: Problem, theta: np.ndarray) -> np.ndarray:
    """Starts as coordinates: each as it is, and once more with its linear parameters eliminated."""
    plain = problem.theta(problem.coordinates(theta))
    eliminated = _eliminate(problem, plain)
    return problem.coordinates(np.concatenate([np.where(np.isfinite(eliminated), eliminated, plain), plain]))


def choose(problem: Problem, starts: np.ndarray, keep: int) -> np.ndarray:
    """The best start of each of `keep` random groups of the starts: the best of all, and others far from it."""
    keep = min(keep, len(starts))
    with np.errstate(all="ignore"):
        cost = problem.cost(problem.whitened(problem.errors(starts)))
    # The starts are already random, so the group of a start is its place modulo `keep`.
    cost = np.pad(cost, (0, -len(starts) % keep), constant_values=np.inf)
    return starts[cost.reshape(-1, keep).argmin(0) * keep + np.arange(keep)]


def search(problem: Problem, starts: np.ndarray, keep: int, effort: Effort = EXACT) -> tuple[Solution, float]:
    """The best optimum from many starts, and the fraction of the refined starts that reach it."""
    begin = choose(problem, starts, keep)
    if np.isfinite(problem.objective.delta):
        # Huber's penalty with a small δ has more local optima than least squares. Half of the starts pass by the
        # least-squares optimum, which is near the best one for most laws; the other half keep their variety.
        smooth = replace(problem, objective=replace(problem.objective, delta=np.inf))
        begin[::2] = minimise(smooth, begin[::2], effort=effort).u
    ended = minimise(problem, begin, effort=effort)
    best = Solution(*(part[[ended.cost.argmin()]] for part in ended))
    if np.isfinite(best.cost[0]) and not best.converged[0]:
        # The lowest start must not lose to a higher one for having a longer way to go.
        best = minimise(problem, best.u, effort=PATIENT)
    return best, float((ended.cost <= best.cost * (1 + 1e-6) + 1e-25).mean())
