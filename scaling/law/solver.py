"""Levenberg-Marquardt over many starts at once, for least squares and for Huber's penalty, within bounds.

Each row of the batch is its own problem with its own damping λ; rows that have converged leave the batch. For Huber's
penalty the curvature matrix moves from that of reweighted least squares (which always descends) at λ ≥ 1 to Newton's
(which ends in finitely many steps where the law is linear; Madsen and Nielsen 1990, BIT 30) as λ → 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from scaling.law.problem import Problem

SMALLEST_DAMPING, LARGEST_DAMPING = 1e-13, 1e13
LONGEST_LOG_STEP = 60.0
ACCEPTABLE = 1e-7  # share of the objective that a Newton step may still remove from an optimum
CELLS = 32_768  # starts × points in one batch: a batch and its temporaries fit a core's cache


@dataclass(frozen=True)
class Effort:
    """When to stop: a Newton step would remove less than `tolerance` of the objective, or so many steps are made."""

    tolerance: float
    iterations: int


EXACT = Effort(1e-13, 400)
PROFILE = Effort(1e-8, 120)
"""Enough for the height of a profile, which is needed to a thousandth of its rise."""


@dataclass(frozen=True)
class Solution:
    """Where each start ended: coordinates, objective, and the share of it that a Newton step would still remove."""

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

    def along(self, problem: Problem, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...


@dataclass(frozen=True)
class Tether:
    """A pull of ½ stiffness (quantity - centre)², by row. Where it comes to rest, the rest of the objective is the
    least possible at that value of the quantity: a point of its profile."""

    quantity: Quantity
    centre: np.ndarray
    stiffness: np.ndarray

    def at(self, rows: np.ndarray | slice) -> Tether:
        return Tether(self.quantity, self.centre[rows], self.stiffness[rows])

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
    weights = problem.weights if weights is None else weights
    observed = problem.observed if observed is None else observed
    for delta in problem.objective.path:
        wider = replace(problem, objective=replace(problem.objective, delta=delta, path=()))
        starts = minimise(wider, starts, weights, observed, tether, effort).u
    size = max(1, CELLS // len(problem.observed))
    pieces = [
        _minimise_batch(
            problem,
            starts[i : i + size],
            _rows(weights, i, size),
            _rows(observed, i, size),
            tether and tether.at(slice(i, i + size)),
            effort,
        )
        for i in range(0, len(starts), size)
    ]
    return Solution(
        np.concatenate([piece.u for piece in pieces]),
        np.concatenate([piece.cost for piece in pieces]),
        np.concatenate([piece.remaining for piece in pieces]),
    )


def _rows(values: np.ndarray, first: int, size: int) -> np.ndarray:
    return values[first : first + size] if values.ndim == 2 else values


def _minimise_batch(
    problem: Problem,
    starts: np.ndarray,
    weights: np.ndarray,
    observed: np.ndarray,
    tether: Tether | None,
    effort: Effort,
) -> Solution:
    lower, upper = problem.bounds
    longest = np.where(problem.coordinates.in_log, LONGEST_LOG_STEP, np.inf)
    # A cost below rounding: the points lie on the law.
    exact = 1e-29 * np.maximum(weights.sum(-1), 1.0) * max(1.0, float(np.mean(observed**2)))
    final = Solution(starts.copy(), np.full(len(starts), np.inf), np.full(len(starts), np.inf))
    rows = np.arange(len(starts))
    u, damping = starts.copy(), np.full(len(starts), 1.0 if np.isfinite(problem.objective.delta) else 1e-2)
    with np.errstate(all="ignore"):
        here = _quadratic(problem, u, weights, observed, tether)
        for _ in range(effort.iterations):
            step, gain, remaining = _step(here, u, damping, lower, upper, longest)
            trial = np.clip(u + step, lower, upper)
            there = _quadratic(problem, trial, _pick(weights, rows), _pick(observed, rows), tether and tether.at(rows))
            better = there.cost < here.cost
            true_gain = here.cost - there.cost
            faithful = true_gain > 0.25 * gain
            # At the end rounding decides: a step that promises nothing measurable ends the search.
            done = (
                (remaining <= effort.tolerance) | (here.cost <= _pick_each(exact, rows)) | (damping >= LARGEST_DAMPING)
            )
            u = np.where((better & ~done)[:, None], trial, u)
            here.put(better & ~done, there)
            damping = np.where(better, np.where(faithful, damping * 0.1, damping), damping * 5.0)
            damping = np.clip(damping, SMALLEST_DAMPING, LARGEST_DAMPING)
            if done.any():
                ended = rows[done]
                final.u[ended], final.cost[ended] = u[done], here.cost[done]
                final.remaining[ended] = np.where(here.cost <= _pick_each(exact, rows), 0.0, remaining)[done]
                rows, u, damping, here = rows[~done], u[~done], damping[~done], here.at(~done)
                if not len(rows):
                    break
        else:
            _, _, remaining = _step(here, u, damping, lower, upper, longest)
            final.u[rows], final.cost[rows], final.remaining[rows] = u, here.cost, remaining
    return final


def _pick(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return values[rows] if values.ndim == 2 else values


def _pick_each(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return values[rows] if np.ndim(values) == 1 else values


def _quadratic(
    problem: Problem, u: np.ndarray, weights: np.ndarray, observed: np.ndarray, tether: Tether | None
) -> _Quadratic:
    objective = problem.objective
    residual, jacobian = problem.linearise(u, observed)
    transposed = jacobian.swapaxes(1, 2)
    gradient = (jacobian @ (weights * objective.influence(residual))[:, :, None])[:, :, 0]
    reweighted = (jacobian * (weights * objective.weight(residual))[:, None, :]) @ transposed
    newton = reweighted
    if np.isfinite(objective.delta):
        newton = (jacobian * (weights * objective.curvature(residual))[:, None, :]) @ transposed
    cost = problem.cost(residual, weights)
    if tether is not None:
        value, slope = tether.quantity.along(problem, u)
        pull = tether.stiffness[:, None, None] * (slope[:, :, None] * slope[:, None, :])
        cost = cost + tether.cost(value)
        gradient = gradient + (tether.stiffness * (value - tether.centre))[:, None] * slope
        reweighted, newton = reweighted + pull, newton + pull
    broken = ~(np.isfinite(cost) & np.isfinite(gradient).all(-1) & np.isfinite(reweighted).all((-1, -2)))
    return _Quadratic(np.where(broken, np.inf, cost), gradient, newton, reweighted)


def _step(
    here: _Quadratic, u: np.ndarray, damping: np.ndarray, lower: np.ndarray, upper: np.ndarray, longest: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The damped step, what it promises to gain, and the share of the cost an undamped one promises."""
    mix = np.minimum(damping, 1.0)[:, None, None]
    matrix = (1.0 - mix) * here.newton + mix * here.reweighted
    held = ((u <= lower) & (here.gradient > 0)) | ((u >= upper) & (here.gradient < 0))
    gradient = np.where(held, 0.0, here.gradient)
    size = np.sqrt(np.einsum("bii->bi", here.reweighted))
    size = np.where(held | ~(size > 0), 1.0, size)
    open_ = (~held).astype(float)
    scaled = matrix / (size[:, :, None] * size[:, None, :]) * (open_[:, :, None] * open_[:, None, :])
    scaled = np.where(np.isfinite(scaled), scaled, 0.0)
    diagonal = np.arange(u.shape[1])
    scaled[:, diagonal, diagonal] += damping[:, None] + (1.0 - open_)
    slope = np.where(np.isfinite(gradient), gradient / size, 0.0)
    step = -np.linalg.solve(scaled, slope[:, :, None])[:, :, 0]
    promised = -(slope * step).sum(-1) / 2
    step = step / size
    too_long = np.max(np.abs(step) / longest, axis=1)
    step = step / np.maximum(too_long, 1.0)[:, None]
    share = promised / np.maximum(here.cost, 1e-300)
    # Under strong damping a small promise says nothing about the minimum.
    return step, promised, np.where(damping <= 1.0, np.abs(share), np.inf)
