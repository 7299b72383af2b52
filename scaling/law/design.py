"""Design a study: the runs that inform a target most, and the interval they will give, before any is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scaling.errors import ScalingError, plural
from scaling.law.forms import Columns, Form
from scaling.law.multi_start import draw, search
from scaling.law.noise import Noise, measure, student
from scaling.law.objective import LogSquared, Objective
from scaling.law.problem import Problem
from scaling.law.profile import profile, standard_error
from scaling.law.quantity import Quantity
from scaling.law.shared_errors import SharedErrors

STARTS, REFINED = 128, 6


@dataclass(frozen=True)
class Planned:
    """The interval a plan is expected to give for a quantity, and how that was found."""

    name: str
    truth: float
    low: float
    high: float
    level: float
    coverage: float | None
    """Fraction of simulated studies whose interval held the truth; absent where none was simulated."""

    @property
    def width(self) -> float:
        """High over low: 1.1 is ten per cent."""
        return self.high / self.low


@dataclass(frozen=True)
class Plan:
    """Rows of the candidates to run, how often each, what they cost, and the interval they are expected to give."""

    repeats: np.ndarray
    """How many runs of each candidate."""
    cost: float
    expected: Planned

    def columns(self, candidates: Columns) -> dict[str, np.ndarray]:
        """The columns of the planned runs."""
        return {name: np.repeat(np.asarray(column), self.repeats) for name, column in candidates.items()}


def expected_interval(
    form: Form,
    truth: Mapping[str, float],
    columns: Columns,
    noise: float,
    target: Quantity,
    level: float = 0.95,
    shared: SharedErrors | None = None,
) -> Planned:
    """The t-interval of `target` from runs at `columns`, were the law `truth` and the errors of log loss `noise`.

    By expected (Fisher) information at the truth: good where the law is nearly linear, a lower bound elsewhere.
    `shared` are errors that runs share, of a correlation that is taken as known.
    """
    problem, u = study_without_noise(form, truth, columns)
    problem = replace(problem, shared=shared)
    freedom = len(problem.observed) - len(problem.free)
    if freedom < 1:
        raise ScalingError(
            f"{plural(len(problem.observed), 'run')} cannot bound {len(problem.free)} parameters",
            fix="plan more runs",
        )
    variance = np.array([noise**2])
    value, error, _ = standard_error(problem, target, u[None], Noise(np.array([noise]), variance, variance))
    width = student(level, freedom) * error[0]
    ends = target.unscale(value[0] + width * np.array([-1.0, 0.0, 1.0]))
    return Planned(target.name, float(ends[1]), float(ends[0]), float(ends[2]), level, None)


def simulated_intervals(
    form: Form,
    truth: Mapping[str, float],
    columns: Columns,
    noise: float,
    targets: Sequence[Quantity],
    *,
    studies: int = 200,
    level: float = 0.95,
    objective: Objective | None = None,
    seed: int = 0,
) -> dict[str, Planned]:
    """The median profile interval over simulated studies, fitted as real ones are, and how often it held the truth."""
    problem, u = study_without_noise(form, truth, columns, objective or LogSquared())
    rng = np.random.Generator(np.random.Philox(seed))
    mean = problem.form.predict(problem.theta(u), problem.columns)
    observed = problem.objective.transform(mean * np.exp(noise * rng.standard_normal((studies, len(mean)))))
    best, _ = search(problem, np.concatenate([u[None], draw(problem, STARTS, seed)]), REFINED, observed=observed)
    converged = best.converged
    measured = measure(problem.objective, best.cost, len(mean), len(problem.free))
    threshold = np.full(int(converged.sum()), student(level, len(mean) - len(problem.free)))
    planned = {}
    for target in targets:
        bounds = profile(
            problem,
            target,
            best.u[converged],
            best.cost[converged],
            measured.at(converged),
            threshold,
            observed=observed[converged],
        )
        low = np.where(bounds.open_below, -np.inf, bounds.low)
        high = np.where(bounds.open_above, np.inf, bounds.high)
        true = target.along(problem, u[None])[0][0]
        covered = float(np.mean((low <= true) & (true <= high)))
        middle, least, most = (float(target.unscale(np.median(end))) for end in (true, low, high))
        planned[target.name] = Planned(target.name, middle, least, most, level, covered)
    return planned


def design(
    form: Form,
    truth: Mapping[str, float],
    candidates: Columns,
    cost: np.ndarray,
    budget: float,
    noise: float,
    target: Quantity,
    *,
    seeds: int = 1,
    level: float = 0.95,
) -> Plan:
    """The runs among `candidates`, each at most `seeds` times, that bound `target` most tightly within `budget`.

    Always the run that lowers the target's variance most for its cost, then exchanges of one run for another while
    they help (Fedorov 1972, Theory of Optimal Experiments). Not proved best; never worse than what it starts from.
    """
    problem, u = study_without_noise(form, truth, candidates)
    _, jacobian = problem.linearise(u[None])
    _, slope = target.along(problem, u[None])
    chosen = _greedy(jacobian[0].T, slope[0], np.asarray(cost, float), budget, seeds)
    columns = {name: np.repeat(problem.columns[name], chosen) for name in form.inputs}
    expected = expected_interval(form, truth, columns, noise, target, level)
    return Plan(chosen, float(chosen @ np.asarray(cost, float)), expected)


def _greedy(rows: np.ndarray, slope: np.ndarray, cost: np.ndarray, budget: float, seeds: int) -> np.ndarray:
    """How often to run each candidate."""
    n, p = rows.shape
    # A little prior information makes the first p runs comparable: 10⁻⁶ of that of all candidates.
    prior = 1e-6 * (rows.T @ rows) / n + 1e-12 * np.eye(p)
    chosen = np.zeros(n, int)

    def variance(counts: np.ndarray) -> float:
        return float(slope @ np.linalg.solve(prior + (rows.T * counts) @ rows, slope))

    while True:
        affordable = (cost <= budget - chosen @ cost) & (chosen < seeds)
        if not affordable.any():
            break
        inverse = np.linalg.inv(prior + (rows.T * chosen) @ rows)
        reach = rows @ inverse
        # Sherman and Morrison: one more run at x lowers the variance by (g'Vx)²/(1 + x'Vx).
        gain = (reach @ slope) ** 2 / (1.0 + np.einsum("ij,ij->i", reach, rows))
        chosen[np.where(affordable, gain / cost, -1.0).argmax()] += 1
    if chosen.sum() <= p:
        raise ScalingError(
            f"the budget pays for {plural(int(chosen.sum()), 'run')}, and the law has {p} parameters",
            key="budget",
            value=budget,
            fix="raise the budget or add smaller candidates",
        )
    return _exchanged(chosen, cost, budget, seeds, variance)


def _exchanged(
    chosen: np.ndarray, cost: np.ndarray, budget: float, seeds: int, variance: Callable[[np.ndarray], float]
) -> np.ndarray:
    """Swap one run for another while the variance falls."""
    best, improved = variance(chosen), True
    while improved:
        improved = False
        for out in np.flatnonzero(chosen):
            spare = budget - chosen @ cost + cost[out]
            for into in np.flatnonzero((cost <= spare) & (chosen < seeds)):
                trial = chosen.copy()
                trial[out] -= 1
                trial[into] += 1
                value = variance(trial)
                if value < best * (1.0 - 1e-9):
                    chosen, best, improved = trial, value, True
                    break
            if improved:
                break
    return chosen


def study_without_noise(
    form: Form, truth: Mapping[str, float], columns: Columns, objective: Objective | None = None
) -> tuple[Problem, np.ndarray]:
    """The problem a study without noise would pose, and the truth in its coordinates."""
    theta = np.array([truth[name] for name in form.parameter_names], float)
    arrays = {name: np.asarray(columns[name], float) for name in form.inputs}
    objective = objective or LogSquared()
    observed = objective.transform(form.predict(theta, arrays))
    problem = Problem(form, arrays, observed, np.ones(len(observed)), objective, {})
    return problem, problem.coordinates.of(theta)
