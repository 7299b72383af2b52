"""Levenberg-Marquardt over many starts at once, for least squares and for Huber's penalty, within bounds.

Each row of the batch is its own problem with its own damping λ; rows that have converged leave the batch. For Huber's
penalty the curvature matrix moves from that of reweighted least squares (which always descends) at λ ≥ 1 to Newton's
(which ends in finitely many steps where the law is linear; Madsen and Nielsen 1990, BIT 30) as λ → 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from scaling.law.coordinates import Expanded
from scaling.law.problem import Problem

FIRST_DAMPING, SMALLEST_DAMPING, LARGEST_DAMPING = 1e-2, 1e-13, 1e13
LONGEST_LOG_STEP = 60.0
POOR = 1e-2  # of what a step promised
ACCEPTABLE = 1e-7  # fraction of the objective that a Newton step may still remove from an optimum
CELLS = 32_768  # starts × points in one batch: a batch and its temporaries fit a core's cache


@dataclass(frozen=True)
class Effort:
    """When to stop: a Newton step would remove less than `tolerance` of the objective, or after `iterations` steps."""

    tolerance: float
    iterations: int


EXACT = Effort(1e-13, 400)
PATIENT = Effort(1e-13, 4000)
PROFILE = Effort(1e-8, 400)
"""Enough for the height of a profile, which is needed to a thousandth of its rise."""


@dataclass(frozen=True)
class Solution:
    """Where each start ended: coordinates, objective, and the fraction of it that a Newton step would still remove."""

    u: np.ndarray
    cost: np.ndarray
    remaining: np.ndarray

    @property
    def converged(self) -> np.ndarray:
        return np.isfinite(self.cost) & (self.remaining <= ACCEPTABLE)


@dataclass
class _Quadratic:
    """The local model of each row: cost, gradient, Newton's matrix and the reweighted one."""

    cost: np.ndarray
    gradient: np.ndarray
    newton: np.ndarray
    reweighted: np.ndarray

    def at(self, rows: np.ndarray) -> _Quadratic:
        return _Quadratic(self.cost[rows], self.gradient[rows], self.newton[rows], self.reweighted[rows])

    def put(self, rows: np.ndarray, other: _Quadratic) -> None:
        self.cost[rows], self.gradient[rows] = other.cost[rows], other.gradient[rows]
        self.newton[rows], self.reweighted[rows] = other.newton[rows], other.reweighted[rows]


class Quantity(Protocol):
    """A number that the parameters decide, and its derivative by the solver's coordinates."""

    def along(
        self, problem: Problem, u: np.ndarray, expanded: Expanded | None = None
    ) -> tuple[np.ndarray, np.ndarray]: ...

    def at(self, rows: np.ndarray | slice) -> Quantity: ...


@dataclass(frozen=True)
class Tether:
    """A pull of ½ stiffness (quantity - centre)², by row. Where it comes to rest, the rest of the objective is the
    least possible at that value of the quantity: a point of its profile."""

    quantity: Quantity
    centre: np.ndarray
    stiffness: np.ndarray

    def at(self, rows: np.ndarray | slice) -> Tether:
        return Tether(self.quantity.at(rows), self.centre[rows], self.stiffness[rows])

    def cost(self, value: np.ndarray) -> np.ndarray:
        return 0.5 * self.stiffness * (value - self.centre) ** 2


def minimise(
    problem: Problem,
    starts: np.ndarray,
    weights: np.ndarray | None = None,
    observed: np.ndarray | None = None,
    tether: Tether | None = None,
    effort: Effort = EXACT,
) -> Solution:
    """Refine every start `[starts, parameters]`; `weights` and `observed` may differ by start (`[starts, points]`)."""
    for delta in problem.objective.path:
        wider = replace(problem, objective=replace(problem.objective, delta=delta, path=()))
        starts = minimise(wider, starts, weights, observed, tether, effort).u
    shape = (len(starts), len(problem.observed))
    weights = np.broadcast_to(problem.weights if weights is None else weights, shape)
    observed = np.broadcast_to(problem.observed if observed is None else observed, shape)
    size = max(1, CELLS // shape[1])
    pieces = []
    for first in range(0, len(starts), size):
        part = slice(first, first + size)
        pull = tether and tether.at(part)
        pieces.append(_minimise_batch(problem, starts[part], weights[part], observed[part], pull, effort))
    return Solution(
        np.concatenate([piece.u for piece in pieces]),
        np.concatenate([piece.cost for piece in pieces]),
        np.concatenate([piece.remaining for piece in pieces]),
    )


def _minimise_batch(
    problem: Problem,
    u: np.ndarray,
    weights: np.ndarray,
    observed: np.ndarray,
    tether: Tether | None,
    effort: Effort,
) -> Solution:
    lower, upper = problem.bounds
    longest = np.where(problem.coordinates.in_log, LONGEST_LOG_STEP, np.inf)
    damping = np.full(len(u), FIRST_DAMPING if np.isinf(problem.objective.delta) else 1.0)
    # A cost below rounding: the points lie on the law.
    exact = 1e-29 * np.maximum(weights.sum(-1), 1.0) * max(1.0, float(np.mean(observed**2)))
    final = Solution(u.copy(), np.full(len(u), np.inf), np.full(len(u), np.inf))
    rows = np.arange(len(u))
    with np.errstate(all="ignore"):
        current = _quadratic(problem, u, weights, observed, tether)
        assert current is not None
        for iteration in range(effort.iterations + 1):
            step, promised, remaining = _step(current, u, damping, lower, upper, longest)
            remaining = np.where(current.cost <= exact, 0.0, remaining)
            # At the end rounding decides: no damping is strong enough to find a lower cost.
            done = (remaining <= effort.tolerance) | (damping >= LARGEST_DAMPING) | (iteration == effort.iterations)
            if done.any():
                ended, left = rows[done], ~done
                final.u[ended], final.cost[ended], final.remaining[ended] = u[done], current.cost[done], remaining[done]
                if done.all():
                    break
                rows, u, damping, exact, current = rows[left], u[left], damping[left], exact[left], current.at(left)
                weights, observed, tether = weights[left], observed[left], tether and tether.at(left)
                step, promised = step[left], promised[left]
            trial = np.minimum(np.maximum(u + step, lower), upper)
            tried = _quadratic(problem, trial, weights, observed, tether, current.cost)
            if tried is None:
                damping = np.minimum(damping * 5.0, LARGEST_DAMPING)
                continue
            gained = current.cost - tried.cost
            better = gained > 0
            if better.all():
                u, current = trial, tried
            else:
                u = np.where(better[:, None], trial, u)
                current.put(better, tried)
            eased = np.where(gained > 0.25 * promised, damping * 0.1, damping)
            # On a tether a step that gains little of what it promised is too long as well: across a kink of Huber's
            # penalty such steps go back and forth until the iterations are over. Without one, they are the rounding
            # near a minimum, and more damping would hide that it is reached.
            if tether is not None:
                better &= gained > POOR * promised
            damping = np.clip(np.where(better, eased, damping * 5.0), SMALLEST_DAMPING, LARGEST_DAMPING)
    return final


def _quadratic(
    problem: Problem,
    u: np.ndarray,
    weights: np.ndarray,
    observed: np.ndarray,
    tether: Tether | None,
    highest: np.ndarray | None = None,
) -> _Quadratic | None:
    """The model at `u`; None where no row costs less than `highest`, as after most steps along a curved valley."""
    objective = problem.objective
    expanded = problem.coordinates.expand(u)  # half of what an evaluation costs: the tether's quantity shares it
    residual, jacobian = problem.linearise(u, observed, expanded)
    cost = problem.cost(residual, weights)
    pulled = tether and tether.quantity.along(problem, u, expanded)
    if tether and pulled:
        cost = cost + tether.cost(pulled[0])
    if highest is not None and not (cost < highest).any():
        return None
    transposed = jacobian.swapaxes(1, 2)
    gradient = (jacobian @ (weights * objective.influence(residual))[:, :, None])[:, :, 0]
    reweighted = (jacobian * (weights * objective.weight(residual))[:, None, :]) @ transposed
    newton = reweighted
    if np.isfinite(objective.delta):
        newton = (jacobian * (weights * objective.curvature(residual))[:, None, :]) @ transposed
    if tether and pulled:
        value, slope = pulled
        pull = tether.stiffness[:, None, None] * (slope[:, :, None] * slope[:, None, :])
        gradient = gradient + (tether.stiffness * (value - tether.centre))[:, None] * slope
        reweighted, newton = reweighted + pull, newton + pull
    broken = ~(np.isfinite(cost) & np.isfinite(gradient).all(-1) & np.isfinite(reweighted).all((-1, -2)))
    return _Quadratic(np.where(broken, np.inf, cost), gradient, newton, reweighted)


def _step(
    current: _Quadratic, u: np.ndarray, damping: np.ndarray, lower: np.ndarray, upper: np.ndarray, longest: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The damped step, what it promises to gain, and the fraction of the cost that an undamped one promises."""
    mix = np.minimum(damping, 1.0)[:, None, None]
    matrix = (1.0 - mix) * current.newton + mix * current.reweighted
    at_bound = ((u <= lower) & (current.gradient > 0)) | ((u >= upper) & (current.gradient < 0))
    size = np.sqrt(np.diagonal(current.reweighted, axis1=1, axis2=2))
    size = np.where(at_bound | ~(size > 0), 1.0, size)
    scaled = matrix / (size[:, :, None] * size[:, None, :])
    scaled[~np.isfinite(scaled) | at_bound[:, :, None] | at_bound[:, None, :]] = 0.0
    diagonal = np.arange(u.shape[1])
    scaled[:, diagonal, diagonal] += damping[:, None] + at_bound
    slope = np.where(np.isfinite(current.gradient) & ~at_bound, current.gradient / size, 0.0)
    step = -np.linalg.solve(scaled, slope[:, :, None])[:, :, 0]
    promised = -(slope * step).sum(-1) / 2
    step = step / size
    too_long = (np.abs(step) / longest).max(1)
    step = step / np.maximum(too_long, 1.0)[:, None]
    share = promised / np.maximum(current.cost, 1e-300)
    # Under strong damping a small promised gain is no sign of a minimum.
    return step, promised, np.where(damping <= 1.0, np.abs(share), np.inf)
