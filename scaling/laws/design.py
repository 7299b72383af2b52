"""Design a study: the runs with the most information on a quantity for their cost, all at once or one after another.

A law is linearised at its assumed parameters. One more run changes the information that the runs carry about the
parameters, and with it the variance of the quantity (Fedorov 1972, Theory of Optimal Experiments); runs of one trunk
share errors, so a further branch of a trunk has less information than a separate run. The next run is always the run
that lowers the variance most for its FLOPs, in a plan and in an adaptive study (`next_run`).
Everything here is deterministic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scaling.base.errors import ScalingError, plural
from scaling.laws.intervals import LEVEL, Interval, student
from scaling.laws.law import Columns, Law
from scaling.laws.problem import OBJECTIVES, Problem, Quantity, SharedErrors

# Information known beforehand, as a fraction of that of a candidate, so that the first runs are comparable: under a
# law, and on a surface over the columns.
KNOWN, SPREAD = 1e-6, 1e-3


@dataclass(frozen=True)
class Candidates:
    """The runs that may be chosen: their columns, the trunk of each, and its FLOPs on that trunk and after it."""

    columns: Columns
    trunks: np.ndarray
    stem: np.ndarray
    own: np.ndarray

    def __len__(self) -> int:
        return len(self.own)

    def cost(self, taken: Sequence[int]) -> np.ndarray:
        """What each costs after those taken: a trunk goes on from where it is; a run that branches off before that
        is trained whole.
        """
        reached = np.zeros(int(self.trunks.max()) + 1)
        np.maximum.at(reached, self.trunks[list(taken)], self.stem[list(taken)])
        passed = reached[self.trunks]
        return self.own + np.where(self.stem >= passed, self.stem - passed, self.stem)

    def best_first(
        self, taken: Sequence[int], left: float, variances: tuple[float, np.ndarray], closed: Sequence[int] = ()
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Those that the FLOPs that are `left` pay for, neither taken nor `closed`, and the score and cost of each.

        Those are first that lower the variance most for their cost; `variances` are that after those taken, and after
        one more. Candidates whose scores differ by rounding alone, such as seeds of one run, keep their order.
        """
        (now, after), cost = variances, self.cost(taken)
        score = (now - after) / cost
        possible = (cost <= left) & np.isfinite(score)
        possible[[*taken, *closed]] = False
        rows = np.flatnonzero(possible)
        highest = score[rows].max(initial=-np.inf) or 1.0  # 0: no candidate lowers it
        return rows[np.argsort(-np.round(score[rows] / highest, 9), kind="stable")], score, cost

    def at(self, rows: Sequence[int]) -> dict[str, np.ndarray]:
        return {name: np.asarray(column)[list(rows)] for name, column in self.columns.items()}


class Linear:
    """A law near its parameters, or a surface: what runs at the candidates show of some quantities."""

    def __init__(
        self,
        rows: np.ndarray,
        slopes: np.ndarray,
        trunks: np.ndarray,
        correlation: float = 0.0,
        *,
        known: float = KNOWN,
        basis: np.ndarray | None = None,
    ):
        """`rows` `[candidates, p]` and `slopes` `[quantities, p]` are the derivatives by the parameters; `known` is
        meant in the coordinates of `basis`, by default the principal ones.
        """
        basis = principal(rows) if basis is None else basis
        self.rows, self.slopes = rows @ basis, slopes @ basis
        self.trunks, self.correlation, self.known = trunks, correlation, known

    def variances(self, taken: Sequence[int]) -> tuple[float, np.ndarray]:
        """The mean variance of the quantities over the squared noise, after runs at `taken` and one more at each row.

        Sherman and Morrison: one more run at x lowers g'Vg by (g'Vx)²/(1 + x'Vx). x is what the run adds to those of
        its trunk, its row less what they predict of it, over the root of the variance that is left.
        """
        rows = self.rows[list(taken)]
        trunks, count = self.trunks[list(taken)], int(self.trunks.max()) + 1
        information = self.known * np.eye(self.rows.shape[1])
        if len(rows):
            groups = np.unique(trunks, return_inverse=True)[1].reshape(-1)
            white = SharedErrors(groups, self.correlation).whiten(rows.T)
            information = information + white @ white.T
        total = np.zeros((count, self.rows.shape[1]))
        np.add.at(total, trunks, rows)
        members = np.bincount(trunks, minlength=count)[self.trunks]
        weight = self.correlation / (1.0 + (members - 1) * self.correlation)
        more = self.rows - weight[:, None] * total[self.trunks]
        more /= np.sqrt(1.0 - self.correlation * weight * members)[:, None]
        inverse = np.linalg.inv(information)
        reach = more @ inverse
        gain = np.mean((reach @ self.slopes.T) ** 2, axis=1) / (1.0 + np.einsum("ij,ij->i", reach, more))
        now = float(np.mean(np.einsum("ij,jk,ik->i", self.slopes, inverse, self.slopes)))
        return now, np.maximum(now - gain, 1e-12 * now)


def principal(rows: np.ndarray) -> np.ndarray:
    """Coordinates in which the candidates together have the information of that many runs on each."""
    _, size, right = np.linalg.svd(rows, full_matrices=False)
    return right.T / np.maximum(size, 1e-10 * size[0]) * np.sqrt(len(rows))


def scaled(rows: np.ndarray) -> np.ndarray:
    """Each parameter in the unit that makes its mean square over the candidates one: what is known beforehand then
    counts most along what the candidates hardly show, which a few runs are not spent on.
    """
    size = np.sqrt(np.mean(rows**2, axis=0))
    return np.diag(1.0 / np.where(size > 0, size, 1.0))


def surface(columns: Columns, trunks: np.ndarray) -> Linear:
    """A quadratic surface in the logarithms of the columns, which spreads runs before any law is known."""
    logs = []
    for column in columns.values():
        values = np.log(column) if column.min() > 0 else np.asarray(column, float)
        span = np.ptp(values)
        logs.append((values - values.min()) / span * 2.0 - 1.0 if span > 0 else np.zeros_like(values))
    rows = np.column_stack([np.ones(len(logs[0])), *logs, *(value**2 for value in logs)])
    return Linear(rows, rows, trunks, known=SPREAD, basis=scaled(rows))


def greedy(
    linear: Linear, candidates: Candidates, budget: float, taken: Sequence[int] = (), fewest: int = 0, most: float = 0.0
) -> list[int]:
    """The rows to run after those taken, within a budget; within `most` until they are the `fewest`."""
    chosen, spent = list[int](), 0.0
    while True:
        rows, allowed = [*taken, *chosen], budget if len(chosen) >= fewest else max(budget, most)
        order, _, cost = candidates.best_first(rows, allowed - spent, linear.variances(rows))
        if not len(order):
            return chosen
        chosen.append(int(order[0]))
        spent += float(cost[order[0]])


# A plan: all runs at once.


@dataclass(frozen=True)
class Plan:
    """The number of runs of each candidate, their cost, and the expected interval."""

    repeats: np.ndarray
    cost: float
    expected: Interval

    def columns(self, candidates: Columns) -> dict[str, np.ndarray]:
        """The columns of the planned runs."""
        return {name: np.repeat(np.asarray(column), self.repeats) for name, column in candidates.items()}


def design(
    form: Law,
    truth: Mapping[str, float],
    candidates: Columns,
    cost: np.ndarray,
    budget: float,
    noise: float,
    target: Quantity,
    *,
    seeds: int = 1,
) -> Plan:
    """The runs among `candidates`, each at most `seeds` times, that bound `target` most tightly within `budget`.

    It adds the run with the most information for its cost, then exchanges runs while this helps. The result is never
    worse than the start, but it is not proved to be the best.
    """
    problem, u = study_without_noise(form, truth, candidates)
    costs = np.tile(np.asarray(cost, float), seeds)
    copies = Candidates({}, np.arange(len(costs)), np.zeros(len(costs)), costs)
    rows = np.tile(problem.linearise(u[None])[1][0].T, (seeds, 1))
    linear = Linear(rows, target.along(problem, u[None])[1], copies.trunks)
    chosen = greedy(linear, copies, budget)
    if len(chosen) <= rows.shape[1]:
        what = f"the budget pays for {plural(len(chosen), 'run')}, and the law has {rows.shape[1]} parameters"
        raise ScalingError(what, key="budget", value=budget, fix="raise the budget or add smaller candidates")
    best, place = linear.variances(chosen)[0], 0
    while place < len(chosen):
        rest = chosen[:place] + chosen[place + 1 :]
        affordable = copies.own <= budget - copies.own[rest].sum()
        affordable[chosen] = False
        after = np.where(affordable, linear.variances(rest)[1], np.inf)
        place += 1
        if after.min() < best * (1.0 - 1e-9):
            chosen, best, place = [*rest, int(after.argmin())], float(after.min()), 0
    repeats = np.bincount(np.array(chosen) % len(cost), minlength=len(cost))
    columns = {name: np.repeat(problem.columns[name], repeats) for name in form.inputs}
    expected = expected_interval(form, truth, columns, noise, target)
    return Plan(repeats, float(copies.own[chosen].sum()), expected)


def expected_interval(
    form: Law,
    truth: Mapping[str, float],
    columns: Columns,
    noise: float,
    target: Quantity,
    shared: SharedErrors | None = None,
) -> Interval:
    """The 95% t-interval of `target` from runs at `columns`, for the law `truth` and errors `noise` of log loss.

    By expected (Fisher) information at the truth: good if the law is nearly linear, else a lower bound.
    `shared` are errors that runs share, with a known correlation.
    """
    problem, u = study_without_noise(form, truth, columns)
    runs, parameters = len(problem.observed), len(problem.free)
    if runs <= parameters:
        raise ScalingError(f"{plural(runs, 'run')} cannot bound {parameters} parameters", fix="plan more runs")
    value, slope = target.along(problem, u[None])
    trunks = np.arange(runs) if shared is None else shared.groups
    correlation = 0.0 if shared is None else shared.correlation
    linear = Linear(problem.linearise(u[None])[1][0].T, slope, trunks, correlation, known=0.0)
    error = noise * float(np.sqrt(linear.variances(range(runs))[0]))
    ends = value[0] + student(LEVEL, runs - parameters) * error * np.array([0.0, -1.0, 1.0])
    estimate, low, high = map(float, target.unscale(ends))
    return Interval(target.name, estimate, low, high, LEVEL, "expected")


def study_without_noise(form: Law, truth: Mapping[str, float], columns: Columns) -> tuple[Problem, np.ndarray]:
    """The problem a study without noise would pose, and the truth in its coordinates."""
    theta = np.array([truth[name] for name in form.parameter_names], float)
    arrays = {name: np.asarray(columns[name], float) for name in form.inputs}
    objective = OBJECTIVES["log_squared"]
    observed = objective.transform(form.predict(theta, arrays))
    problem = Problem(form, arrays, observed, np.ones(len(observed)), objective, {})
    return problem, problem.coordinates(theta)
