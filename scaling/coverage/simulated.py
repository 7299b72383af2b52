"""Coverage of the intervals over simulated studies of known truth: `python -m scaling.coverage.simulated`.

A study draws errors around a known law, is fitted from its own multi-start and bounded by profile, as a real one is;
studies of one cell differ in their errors alone and are fitted as one batch. A cell counts how often the 95% interval
of the exponent, of E and of the loss at ten times the largest compute holds the truth.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from scaling.law.diagnostics import unreliable
from scaling.law.forms import Form, named
from scaling.law.multi_start import draw, search
from scaling.law.noise import measure, student
from scaling.law.objective import LogHuber, LogSquared, Objective
from scaling.law.problem import Problem
from scaling.law.profile import profile
from scaling.law.quantity import Quantity, parameter, prediction
from scaling.law.robust import inflation, reweighted, widening

Errors = Literal["normal", "heavy", "unequal", "pairs", "clusters", "missing"]
LEVEL = 0.95
STARTS, REFINED = 128, 6
CLUSTERS = 8
E = 1.7
TOKENS_A_PARAMETER = 20.0
SMALLEST_COMPUTE = 1e18


@dataclass(frozen=True)
class Cell:
    """One kind of study."""

    law: str
    points: int
    noise: float
    decades: float
    exponent: float
    errors: Errors = "normal"
    objective: Objective = field(default_factory=LogSquared)


@dataclass(frozen=True)
class Counts:
    """Of `studies`: how many fits converged, and for each quantity how many intervals held the truth or were open."""

    studies: int
    fitted: int
    covered: dict[str, int]
    opened: dict[str, int]
    trusted: int
    """Fits that call themselves reliable."""
    trusted_covered: dict[str, int]

    def share(self, name: str) -> float:
        return self.covered[name] / max(self.fitted, 1)


def simulate(cell: Cell, studies: int, seed: int = 0) -> Counts:
    """Fit and bound `studies` studies of one kind."""
    rng = np.random.Generator(np.random.Philox(key=[seed, _number(cell)]))
    form, columns, theta, far = _setting(cell, rng)
    mean = form.predict(theta, columns)
    objective = cell.objective
    errors, clusters = _errors(cell, rng, studies, mean)
    observed = objective.transform(mean * np.exp(cell.noise * errors))
    problem = Problem(form, columns, objective.transform(mean), np.ones(len(mean)), objective, {})
    best, _ = search(problem, draw(problem, STARTS, seed), REFINED, observed=observed)
    converged = best.converged
    u, cost, observed = best.u[converged], best.cost[converged], observed[converged]
    noise = measure(objective, cost, len(mean), len(problem.free))
    doubts = [bool(unreliable(replace(problem, observed=row), at, clusters)) for row, at in zip(observed, u)]
    trusted = ~np.array(doubts, bool)
    refits = reweighted(problem, u, clusters, observed)
    covered, opened, trusted_covered = {}, {}, {}
    for name, quantity in _quantities(form, far).items():
        factor, freedom = inflation(problem, quantity, u, noise, clusters, observed)
        bounds = profile(problem, quantity, u, cost, noise, student(LEVEL, freedom) * np.sqrt(factor), observed)
        truth = quantity.along(problem, problem.coordinates.of(theta)[None])[0][0]
        estimate = quantity.along(problem, u)[0]
        below, above = estimate - bounds.low, bounds.high - estimate
        if refits.size:
            spread = quantity.along(problem, refits.reshape(-1, u.shape[1]))[0].reshape(len(u), -1)
            outwards = widening(spread, estimate, below, above, student(LEVEL, freedom), len(mean))
            below, above = outwards[0] * below, outwards[1] * above
        covers = (bounds.open_below | (estimate - below <= truth)) & (bounds.open_above | (truth <= estimate + above))
        covered[name] = int(covers.sum())
        opened[name] = int((bounds.open_below | bounds.open_above).sum())
        trusted_covered[name] = int(covers[trusted].sum())
    return Counts(studies, len(u), covered, opened, int(trusted.sum()), trusted_covered)


def _number(cell: Cell) -> int:
    """A seed that depends on the kind of study alone."""
    import zlib

    return zlib.crc32(repr(cell).encode())


def _setting(cell: Cell, rng: np.random.Generator) -> tuple[Form, dict[str, np.ndarray], np.ndarray, dict[str, float]]:
    """The law, its columns, the truth, and the run at ten times the largest compute.

    Terms are of size one nat (a half each of two terms) in the middle of the points, next to E = 1.7.
    """
    form, n = named(cell.law), cell.points
    top = SMALLEST_COMPUTE * 10**cell.decades
    if "N" not in form.inputs:
        columns = {"C": np.geomspace(SMALLEST_COMPUTE, top, n)}
        far = {"C": 10 * top}
    else:
        # A grid of budgets, and sizes from a fifth to five times the balanced one at each.
        budgets = max(3, round(n**0.5))
        sizes = -(-n // budgets)
        compute = np.repeat(np.geomspace(SMALLEST_COMPUTE, top, budgets), sizes)[:n]
        tilt = np.tile(np.geomspace(0.2, 5.0, sizes), budgets)[:n]
        size = np.sqrt(compute / (6 * TOKENS_A_PARAMETER)) * tilt
        columns = {"N": size, "D": compute / (6 * size)}
        balanced = float(np.sqrt(10 * top / (6 * TOKENS_A_PARAMETER)))
        far = {"N": balanced, "D": TOKENS_A_PARAMETER * balanced}
    if cell.errors == "missing":
        present = np.sort(rng.choice(n, n - round(0.1 * n), replace=False))
        columns = {name: column[present] for name, column in columns.items()}
    height = 1.0 / len(columns)
    coefficients = [height * np.exp(cell.exponent * np.log(column).mean()) for column in columns.values()]
    theta = np.array([E, *coefficients, *(cell.exponent for _ in columns)])
    return form, columns, theta, far


def _quantities(form: Form, far: dict[str, float]) -> dict[str, Quantity]:
    return {"exponent": parameter(form, "alpha"), "E": parameter(form, "E"), "10 × compute": prediction(form, far)}


def _errors(
    cell: Cell, rng: np.random.Generator, studies: int, mean: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """Errors of size about one `[studies, points]`, and the clusters where there are any."""
    shape = (studies, len(mean))
    if cell.errors == "heavy":
        return rng.standard_t(3, shape) / np.sqrt(3.0), None
    if cell.errors == "unequal":
        # Three times as large at the largest loss as at the smallest.
        height = (np.log(mean) - np.log(mean).min()) / np.ptp(np.log(mean))
        return rng.standard_normal(shape) * 3.0 ** (height - 0.5), None
    if cell.errors in ("pairs", "clusters"):
        # Neighbouring runs share a seed, and half of their variance.
        groups = len(mean) // 2 if cell.errors == "pairs" else CLUSTERS
        clusters = np.arange(len(mean)) * groups // len(mean)
        shared = rng.standard_normal((studies, groups))[:, clusters]
        return (shared + rng.standard_normal(shape)) / np.sqrt(2.0), clusters
    return rng.standard_normal(shape), None


def grid(objective: Objective, noises: Sequence[float]) -> list[Cell]:
    """Two laws at their smallest study and at 40 points, one to three decades, three exponents."""
    return [
        Cell(law, points, noise, decades, exponent, objective=objective)
        for law, counts in (("power_law_floor_c", (9, 40)), ("chinchilla", (15, 40)))
        for points in counts
        for noise in noises
        for decades in (1.0, 2.0, 3.0)
        for exponent in (0.1, 0.3, 0.5)
    ]


def stress(objective: Objective) -> list[Cell]:
    """Errors that break the assumptions."""
    return [
        Cell(law, points, 0.005, 2.0, 0.3, errors, objective)
        for errors in ("normal", "heavy", "unequal", "pairs", "clusters", "missing")
        for law, points in (("power_law_floor_c", 20), ("chinchilla", 40))
    ]


NAMES = ("exponent", "E", "10 × compute")


def table(cells: Sequence[Cell], counts: Sequence[Counts]) -> list[str]:
    """One line a cell."""
    lines = _head(["law"], ["n", "noise", "decades", "exponent", "fitted", *(f"{name} (open)" for name in NAMES)])
    for cell, count in zip(cells, counts):
        percentages = [
            f"{_percent(count.covered[n], count.fitted)} ({_percent(count.opened[n], count.fitted)})" for n in NAMES
        ]
        kind = [cell.law, cell.points, f"{cell.noise:g}", f"{cell.decades:g}", f"{cell.exponent:g}", count.fitted]
        lines.append(_line([*kind, *percentages]))
    return lines


def stress_table(cells: Sequence[Cell], counts: Sequence[Counts]) -> list[str]:
    """One line a kind of error: coverage, the fraction of fits that call themselves reliable, and their coverage."""
    lines = _head(["errors", "law"], ["n", *NAMES, "reliable", *(f"{name} of these" for name in NAMES)])
    for cell, count in zip(cells, counts):
        percentages = [_percent(count.covered[name], count.fitted) for name in NAMES]
        trusted = [_percent(count.trusted_covered[name], count.trusted) for name in NAMES]
        reliable = _percent(count.trusted, count.fitted)
        lines.append(_line([cell.errors, cell.law, cell.points, *percentages, reliable, *trusted]))
    return lines


def _head(left: Sequence[str], right: Sequence[str]) -> list[str]:
    return [_line([*left, *right]), _line(["---"] * len(left) + ["--:"] * len(right))]


def _line(parts: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, parts))} |"


def _percent(part: int, total: int) -> str:
    return f"{100 * part / total:.1f}" if total else "-"


def pooled(counts: Iterable[Counts]) -> str:
    """Coverage over all cells, and the minimum of any cell."""
    counts = list(counts)
    fitted = sum(count.fitted for count in counts)
    parts = []
    for name in NAMES:
        share = 100 * sum(count.covered[name] for count in counts) / fitted
        parts.append(f"{name} {share:.1f}% (lowest {100 * min(count.share(name) for count in counts):.1f}%)")
    studies = sum(count.studies for count in counts)
    return f"{studies} studies, {fitted} fitted, {studies - fitted} that did not converge refused: {', '.join(parts)}."


def document(studies: int) -> str:
    """The simulated part of the page."""
    lines = ["## Simulated studies", "", MADE_BY.format(studies=studies)]
    for objective, noises, share in ((LogSquared(), (0.002, 0.005, 0.02), 1), (LogHuber(), (0.005,), 4)):
        cells = grid(objective, noises)
        counts = [_reported(cell, simulate(cell, studies // share)) for cell in cells]
        lines += ["", f"### {objective.name}, normal errors", "", f"Pooled: {pooled(counts)}", ""]
        lines += table(cells, counts)
        cells = stress(objective)
        counts = [_reported(cell, simulate(cell, studies // share)) for cell in cells]
        lines += ["", f"### {objective.name}, other errors", "", STRESS, "", *stress_table(cells, counts)]
    return "\n".join(lines) + "\n"


MADE_BY = """Made by `python -m scaling.coverage.simulated --studies {studies}`: this number of simulated studies a
cell, and a quarter of it under Huber's penalty, where each is refitted 200 times for its intervals. Noise is the
standard deviation of log loss. A figure is the percentage of 95% profile intervals that held the truth; in brackets the
percentage that were open at an end (the fit then names the parameter that is not identified). Open intervals count as
they are: an open end is never on the wrong side of the truth."""

STRESS = """Noise 0.005, two decades, exponent 0.3. `heavy` is Student's t with 3 degrees of freedom; `unequal` three
times as large at the largest loss as at the smallest; `pairs` neighbours that share a seed and half of their variance,
given to the fit as clusters; `clusters` likewise 8 blocks of neighbours, too few to be trusted; `missing` a tenth of
the runs left out. `reliable` is the fraction of fits without a warning."""


def _reported(cell: Cell, counts: Counts) -> Counts:
    print(f"{cell} {counts.fitted} {counts.covered}", file=sys.stderr, flush=True)
    return counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=1000, help="simulated studies a cell")
    print(document(parser.parse_args().studies), end="")
