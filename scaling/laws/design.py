"""Design a study: the runs that inform a quantity most for their cost, all at once or one after another.

A law is linearised where it is taken to be. One more run changes the information that the runs carry about the
parameters, and with it the variance of the quantity (Fedorov 1972, Theory of Optimal Experiments); runs of one trunk
share errors, so a further branch of a trunk carries less than a run of its own. The next run is always the one that
lowers the variance most for its FLOPs: in a plan, among the rows of a table, and in an adaptive study (`next_run`).
Everything here is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scaling.errors import ScalingError, plural
from scaling.laws.fit import fit
from scaling.laws.held_out import tolerant_objective
from scaling.laws.intervals import Interval, measure, profile, student
from scaling.laws.law import Columns, Law
from scaling.laws.points import Points
from scaling.laws.problem import OBJECTIVES, Objective, Problem, Quantity, SharedErrors
from scaling.laws.solver import draw, search

LEVEL = 0.95
KNOWN, SPREAD = 1e-6, 1e-3
"""Information known beforehand, as a fraction of that of a candidate, so that the first runs are comparable: under a
law, and on a surface over the columns."""
SIMULATED_STARTS, SIMULATED_REFINED = 128, 6
PILOT = 0.3
"""The fraction of a budget for runs that are spread before anything is known."""
BATCHES, BATCH_STARTS = 4, 48


@dataclass(frozen=True)
class Candidates:
    """The runs that may be chosen: their columns, the trunk of each, and its FLOPs on that trunk and after it."""

    columns: Columns
    trunks: np.ndarray
    stem: np.ndarray
    own: np.ndarray

    @classmethod
    def independent(cls, columns: Columns, cost: np.ndarray) -> Candidates:
        """Candidates without trunks."""
        cost = np.asarray(cost, float)
        return cls(columns, np.arange(len(cost)), np.zeros(len(cost)), cost)

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

    def at(self, rows: Sequence[int]) -> dict[str, np.ndarray]:
        return {name: np.asarray(column)[list(rows)] for name, column in self.columns.items()}

    def group(self, rows: Sequence[int]) -> np.ndarray | None:
        """The trunk of each row, where one repeats."""
        groups = self.trunks[list(rows)]
        return groups if len(np.unique(groups)) < len(groups) else None


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


def best_first(
    variances: tuple[float, np.ndarray], cost: np.ndarray, affordable: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The affordable candidates, those first that lower the variance most for their cost, and the score of each.

    Candidates whose scores differ by rounding alone, such as seeds of one run, keep their order.
    """
    now, after = variances
    score = (now - after) / cost
    rows = np.flatnonzero(affordable & np.isfinite(score))
    return rows[np.argsort(-np.round(score[rows] / score[rows].max(), 9), kind="stable")], score


def _greedy(
    linear: Linear, candidates: Candidates, budget: float, taken: Sequence[int] = (), fewest: int = 0, most: float = 0.0
) -> list[int]:
    """The rows to run after those taken, within a budget; within `most` until they are the `fewest`."""
    chosen: list[int] = []
    spent = 0.0
    while True:
        rows = [*taken, *chosen]
        cost = candidates.cost(rows)
        affordable = cost <= (budget if len(chosen) >= fewest else max(budget, most)) - spent
        affordable[rows] = False
        if not affordable.any():
            return chosen
        row = int(best_first(linear.variances(rows), cost, affordable)[0][0])
        spent += float(cost[row])
        chosen.append(row)


# A plan: all runs at once.


@dataclass(frozen=True)
class Plan:
    """How many runs of each candidate, what they cost, and the interval that they are expected to give."""

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
    level: float = LEVEL,
) -> Plan:
    """The runs among `candidates`, each at most `seeds` times, that bound `target` most tightly within `budget`.

    Always the run that informs most for its cost, then exchanges of one run for another while they help. Not proved
    best; never worse than what it starts from.
    """
    problem, u = study_without_noise(form, truth, candidates)
    copies = Candidates.independent({}, np.tile(np.asarray(cost, float), seeds))
    rows = np.tile(problem.linearise(u[None])[1][0].T, (seeds, 1))
    linear = Linear(rows, target.along(problem, u[None])[1], copies.trunks)
    chosen = _greedy(linear, copies, budget)
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
    expected = expected_interval(form, truth, columns, noise, target, level)
    return Plan(repeats, float(copies.own[chosen].sum()), expected)


def expected_interval(
    form: Law,
    truth: Mapping[str, float],
    columns: Columns,
    noise: float,
    target: Quantity,
    level: float = LEVEL,
    shared: SharedErrors | None = None,
) -> Interval:
    """The t-interval of `target` from runs at `columns`, were the law `truth` and the errors of log loss `noise`.

    By expected (Fisher) information at the truth: good where the law is nearly linear, a lower bound elsewhere.
    `shared` are errors that runs share, of a correlation that is taken as known.
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
    ends = value[0] + student(level, runs - parameters) * error * np.array([0.0, -1.0, 1.0])
    estimate, low, high = map(float, target.unscale(ends))
    return Interval(target.name, estimate, low, high, level, "expected")


def simulated_intervals(
    form: Law,
    truth: Mapping[str, float],
    columns: Columns,
    noise: float,
    targets: Sequence[Quantity],
    *,
    studies: int = 200,
    level: float = LEVEL,
    objective: Objective | None = None,
    seed: int = 0,
) -> dict[str, tuple[Interval, float]]:
    """The median profile interval over simulated studies, fitted as real ones are, and how often it held the truth."""
    problem, u = study_without_noise(form, truth, columns, objective)
    rng = np.random.Generator(np.random.Philox(seed))
    mean = problem.form.predict(problem.theta(u), problem.columns)
    observed = problem.objective.transform(mean * np.exp(noise * rng.standard_normal((studies, len(mean)))))
    starts = np.concatenate([u[None], draw(problem, SIMULATED_STARTS, seed)])
    best, _ = search(problem, starts, SIMULATED_REFINED, observed=observed)
    converged = best.converged
    places, costs, observed = best.u[converged], best.cost[converged], observed[converged]
    measured = measure(problem.objective, costs, len(mean), len(problem.free))
    threshold = np.full(len(places), student(level, len(mean) - len(problem.free)))
    found = {}
    for target in targets:
        low, high = profile(problem, [target] * len(places), places, costs, measured, threshold, observed)
        true = float(target.along(problem, u[None])[0][0])
        middle, least, most = (float(target.unscale(np.median(end))) for end in (true, low, high))
        coverage = float(np.mean((low <= true) & (true <= high)))
        found[target.name] = Interval(target.name, middle, least, most, level, "simulated"), coverage
    return found


def study_without_noise(
    form: Law, truth: Mapping[str, float], columns: Columns, objective: Objective | None = None
) -> tuple[Problem, np.ndarray]:
    """The problem a study without noise would pose, and the truth in its coordinates."""
    theta = np.array([truth[name] for name in form.parameter_names], float)
    arrays = {name: np.asarray(columns[name], float) for name in form.inputs}
    objective = objective or OBJECTIVES["log_squared"]
    observed = objective.transform(form.predict(theta, arrays))
    problem = Problem(form, arrays, observed, np.ones(len(observed)), objective, {})
    return problem, problem.coordinates(theta)


# Rows of a table, a batch after another.


def choose_runs(
    forms: Sequence[Law],
    table: Columns,
    observe: Callable[[np.ndarray], np.ndarray],
    cost: np.ndarray,
    budget: float,
    targets: Columns,
    *,
    seed: int = 0,
) -> np.ndarray:
    """Rows of `table` to run within `budget`; `observe(rows)` runs them. `targets` are the rows to predict.

    The first runs are spread over the columns for little cost. Then the law is fitted to what is known, and runs are
    added that lower the mean variance of the law at the targets (I-optimality); the law is fitted again after each
    batch. The batches take turns in the laws, so that the runs inform each of them.
    """
    if cost.min() <= 0:
        raise ScalingError("must be positive", key="cost", value=float(cost.min()), fix="give each run its cost")
    candidates = Candidates.independent({name: np.asarray(column, float) for name, column in table.items()}, cost)
    spread = surface(candidates.columns, candidates.trunks)
    fewest = max(len(form.parameters) for form in forms) + 3
    chosen = _greedy(spread, candidates, PILOT * budget, fewest=fewest, most=budget)
    losses = observe(np.array(chosen, int))
    for batch in range(BATCHES):
        form = forms[batch % len(forms)]
        allowed = (budget - float(candidates.own[chosen].sum())) / (BATCHES - batch)
        known = Points({name: candidates.at(chosen)[name] for name in form.inputs} | {form.target: losses})
        try:
            fitted = fit(form, known, objective=tolerant_objective(form), starts=BATCH_STARTS, seed=seed)
            # Of the loss itself, whichever space it is fitted in: what counts is the square error there.
            law = replace(fitted.problem, objective=OBJECTIVES["squared"])
            rows, wanted = (
                law.derivative(fitted.u[None], {name: np.asarray(at[name], float) for name in form.inputs})[0, 1:].T
                for at in (table, targets)
            )
            units = scaled(np.delete(rows, chosen, axis=0))
            linear = Linear(rows, wanted, candidates.trunks, known=SPREAD, basis=units)
        except ScalingError:
            linear = spread
        more = _greedy(linear, candidates, allowed, taken=chosen)
        if more:
            losses, chosen = np.concatenate([losses, observe(np.array(more))]), [*chosen, *more]
    return np.array(chosen, int)
