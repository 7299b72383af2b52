"""Where a search begins: random starts, their linear parameters eliminated, all screened at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scaling.law.problem import Problem
from scaling.law.solver import PATIENT, Solution, minimise

SMALLEST_SHARE = 1e-3
AGREEING = 1e-6  # optima whose objectives differ by less than this fraction are the same
CELLS = 4_000_000  # cost evaluations held at once while screening


def eliminate(problem: Problem, theta: np.ndarray) -> np.ndarray:
    """The same starts with the linear parameters at their weighted least-squares values.

    Variable projection (Golub and Pereyra 1973, SIAM J. Numer. Anal. 10) is exact for squared errors of the loss. For
    errors of log loss the parameters are not linear; least squares weighted by 1/loss² agrees to first order in the
    residual, so it is where the search starts, never where it ends.
    """
    linear = [index for index in problem.free if problem.form.parameters[index].linear]
    if not linear:
        return theta
    with_ones, with_zeros = theta.copy(), theta.copy()
    with_ones[:, linear], with_zeros[:, linear] = 1.0, 0.0
    terms = problem.form.jacobian(with_ones, problem.columns)[:, :, linear]
    rest = problem.form.predict(with_zeros, problem.columns)
    loss = problem.loss
    root = np.sqrt(problem.weights) / (loss if problem.objective.space == "log" else 1.0)
    size = np.sqrt(np.mean((terms * root[:, None]) ** 2, axis=1))
    size = np.where(size > 0, size, 1.0)
    scaled = terms * root[:, None] / size[:, None, :]
    square = scaled.swapaxes(1, 2) @ scaled + 1e-10 * len(loss) * np.eye(len(linear))
    right = (scaled * (root * (loss - rest))[:, :, None]).sum(1)
    solution = np.linalg.solve(square, right[:, :, None])[:, :, 0]
    # A term that least squares would make negative keeps a small fraction instead.
    share = solution / np.maximum(np.abs(solution).sum(1, keepdims=True), 1e-300)
    floor = SMALLEST_SHARE * np.abs(solution).sum(1, keepdims=True)
    bounded = np.array([problem.form.parameters[index].lower >= 0 for index in linear])
    eliminated = theta.copy()
    eliminated[:, linear] = np.where(bounded & (share < SMALLEST_SHARE), floor, solution) / size
    return eliminated


def draw(problem: Problem, count: int, seed: int) -> np.ndarray:
    """`count` random starts of the form, as coordinates, with the linear parameters eliminated from half of them."""
    rng = np.random.Generator(np.random.Philox(seed))
    with np.errstate(all="ignore"):
        theta = problem.form.start(rng, count, problem.columns, problem.loss)
    return prepare(problem, theta)


def prepare(problem: Problem, theta: np.ndarray) -> np.ndarray:
    """Starts as coordinates: each as given, and once more with its linear parameters eliminated."""
    with np.errstate(all="ignore"):
        filled = problem.theta(problem.coordinates.of(theta))
        both = np.concatenate([eliminate(problem, filled), filled])
    return problem.coordinates.of(np.where(np.isfinite(both), both, np.concatenate([filled, filled])))


def choose(
    problem: Problem,
    starts: np.ndarray,
    keep: int,
    weights: np.ndarray | None = None,
    observed: np.ndarray | None = None,
) -> np.ndarray:
    """For each of R problems the best start of each of `keep` random groups of all the starts: `[R, keep, parameters]`.

    The problems share the law and the columns and differ in `weights` or `observed` (`[R, points]`). Groups keep the
    chosen starts apart; the best of all the starts is always among them.
    """
    weights = np.atleast_2d(problem.weights if weights is None else weights)
    observed = np.atleast_2d(problem.observed if observed is None else observed)
    keep = min(keep, len(starts))
    usable = len(starts) // keep * keep
    with np.errstate(all="ignore"):
        cost = _screen(problem, starts, weights, observed)
    cost = np.where(np.isfinite(cost), cost, np.inf)
    # The starts are already random, so the group of a start is its place modulo `keep`.
    best = cost[:usable].reshape(usable // keep, keep, -1).argmin(0) * keep + np.arange(keep)[:, None]
    if usable < len(starts):
        tail = usable + cost[usable:].argmin(0)
        columns = np.arange(cost.shape[1])
        best[0] = np.where(cost[tail, columns] < cost[best[0], columns], tail, best[0])
    return starts[best.T]


def _screen(problem: Problem, starts: np.ndarray, weights: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """The objective of every start for every problem, `[starts, R]`."""
    if len(observed) == 1:
        # One table of penalties serves all weightings: the screen of a case bootstrap is a matrix product.
        return problem.objective.penalty(problem.residuals(starts, observed[0])) @ weights.T
    predicted = problem.residuals(starts, np.zeros_like(observed[0]))
    cost = np.empty((len(starts), len(observed)))
    step = max(1, CELLS // predicted.size)
    for first in range(0, len(observed), step):
        residual = predicted[:, None, :] - problem.whitened(observed[first : first + step])
        block = weights if len(weights) == 1 else weights[first : first + step]
        cost[:, first : first + step] = problem.cost(residual, block)
    return cost


def search(
    problem: Problem,
    starts: np.ndarray,
    keep: int,
    weights: np.ndarray | None = None,
    observed: np.ndarray | None = None,
) -> tuple[Solution, np.ndarray]:
    """The best optimum of each of R problems from its own multi-start, and the fraction of its starts that reach it."""
    chosen = choose(problem, starts, keep, weights, observed)
    problems, per_problem, size = chosen.shape
    begin = chosen.reshape(-1, size)
    shape = (problems, per_problem, len(problem.observed))
    weights, observed = (
        np.broadcast_to(np.atleast_2d(own)[:, None, :], shape).reshape(len(begin), -1)
        for own in (
            problem.weights if weights is None else weights,
            problem.observed if observed is None else observed,
        )
    )
    if np.isfinite(problem.objective.delta):
        # Huber's penalty with a small δ has more local optima than least squares. Half of the starts pass by the
        # least-squares optimum, which is near the best one for most laws; the other half keep their variety.
        smooth = replace(problem, objective=replace(problem.objective, delta=np.inf, path=()))
        half = np.arange(len(begin)) % per_problem % 2 == 0
        begin[half] = minimise(smooth, begin[half], weights[half], observed[half]).u
    ended = minimise(problem, begin, weights, observed)
    cost = ended.cost.reshape(problems, per_problem)
    rows = np.arange(problems) * per_problem + cost.argmin(1)
    best = Solution(ended.u[rows], ended.cost[rows], ended.remaining[rows])
    slow = ~best.converged & np.isfinite(best.cost)
    if slow.any():
        # The lowest start must not lose to a higher one for having a longer way to go.
        late = minimise(problem, best.u[slow], weights[rows][slow], observed[rows][slow], effort=PATIENT)
        best.u[slow], best.cost[slow], best.remaining[slow] = late.u, late.cost, late.remaining
    agreeing = (cost <= best.cost[:, None] * (1 + AGREEING) + 1e-25).mean(1)
    return best, agreeing
