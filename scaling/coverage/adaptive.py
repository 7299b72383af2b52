"""How an adaptive study does where the truth is known: its cost next to a fixed grid's, and how often it holds E.

    python -m scaling.coverage.adaptive [--studies 40]

Simulated studies of the quickstart's sizes and budgets, each candidate with three seeds. The goal of the adaptive ones
is the median half-width of the fixed grid's interval of E.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scaling.errors import ScalingError
from scaling.laws.catalogue import named
from scaling.laws.design import Candidates
from scaling.laws.intervals import Interval
from scaling.laws.law import Form
from scaling.laws.next_run import Belief, Goal, choose, confirmed, look

TRUTH = {"E": 2.184, "A": 26.3, "B": 36000.0, "alpha": 0.605, "beta": 0.945}
OFF = {"E": 1.9, "A": 8.0, "B": 3000.0, "alpha": 0.4, "beta": 0.7}
"""What a person might have supposed instead."""
NOISE, CORRELATION = 0.0024, 0.85
WIDTHS = {16: 5888, 24: 13824, 32: 25088, 48: 55296, 64: 97280, 96: 221184}
BUDGETS = (700416, 1200128, 2000896)
LONG = {16, 24, 32}  # widths with a fourth budget
LONGEST = 4000768
SEEDS = 3
ANY_WIDTH = Goal("E", "E", 1.0)


def candidates() -> Candidates:
    """Those of the quickstart; the fixed grid is the first third, which is of the first seed."""
    rows = [
        (width, size, tokens, seed)
        for seed in range(SEEDS)
        for width, size in WIDTHS.items()
        for tokens in (*BUDGETS, *((LONGEST,) if width in LONG else ()))
    ]
    width, size, tokens, seed = np.array(rows, float).T
    cost = (6.0 * size + 1900.0 * width) * tokens
    trunks = np.unique(size * SEEDS + seed, return_inverse=True)[1].reshape(-1)
    return Candidates({"N": size, "D": tokens}, trunks, 0.8 * cost, 0.2 * cost)


def drawn(field: Candidates, truth: Mapping[str, float], rng: np.random.Generator) -> np.ndarray:
    """The losses of every candidate: runs of a trunk share a part of their noise."""
    form = named("chinchilla")
    theta = np.array([truth[name] for name in form.parameter_names])
    shared = rng.standard_normal(int(field.trunks.max()) + 1)[field.trunks]
    own = rng.standard_normal(len(field))
    error = NOISE * (np.sqrt(CORRELATION) * shared + np.sqrt(1.0 - CORRELATION) * own)
    return form.predict(theta, dict(field.columns)) * np.exp(error)


@dataclass(frozen=True)
class Outcome:
    """One study: what it spent, its runs, and its interval."""

    spent: float
    runs: int
    interval: Interval | None
    reached: bool


def fixed(goal: Goal, forms: Sequence[Form], field: Candidates, losses: np.ndarray) -> Outcome:
    """The grid of the first seed."""
    rows = sorted(range(len(field) // SEEDS), key=lambda row: field.stem[row])
    spent = sum(float(field.cost(rows[:place])[row]) for place, row in enumerate(rows))
    return Outcome(spent, len(rows), look(goal, forms, field, rows, losses[rows]).interval, True)


def adaptive(
    goal: Goal,
    forms: Sequence[Form],
    field: Candidates,
    losses: np.ndarray,
    budget: float,
    supposed: Mapping[str, float] | None = None,
) -> Outcome:
    """A study that chooses its runs, as `scaling study --adaptive` does with one worker."""
    beliefs = () if supposed is None else (Belief(forms[0], supposed),)
    taken: list[int] = []
    widths: list[float] = []
    spent = 0.0
    while True:
        seen = look(goal, forms, field, taken, losses[taken], beliefs)
        widths.append(goal.width_of(seen.interval))
        if confirmed(widths, goal.half_width):
            return Outcome(spent, len(taken), seen.interval, True)
        choice = choose(goal, field, taken, seen, budget - spent)
        if choice is None:
            return Outcome(spent, len(taken), seen.interval, False)
        taken.append(choice.row)
        spent += choice.cost


def studies(count: int, seed: int = 0) -> Iterator[tuple[str, list[Outcome], float]]:
    """Each kind of study with its outcomes, and the goal's half-width."""
    field, forms = candidates(), [named("chinchilla")]
    draws = [drawn(field, TRUTH, np.random.Generator(np.random.Philox([seed, each]))) for each in range(count)]
    grids = [fixed(ANY_WIDTH, forms, field, losses) for losses in draws]
    goal = Goal("E", "E", float(np.median([ANY_WIDTH.width_of(outcome.interval) for outcome in grids])))
    yield "the fixed grid", grids, goal.half_width
    for name, supposed in {"the truth is supposed": TRUTH, "other constants are": OFF, "nothing is": None}.items():
        outcomes = []
        for losses in draws:
            try:
                outcomes.append(adaptive(goal, forms, field, losses, 2.0 * grids[0].spent, supposed))
            except ScalingError:
                continue
        yield name, outcomes, goal.half_width


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=40)
    count = parser.parse_args().studies
    print("| study | studies | reached | FLOPs over the grid's, median | middle half | runs | half-width | E inside |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    grid = 0.0
    for name, outcomes, _ in studies(count):
        grid = grid or outcomes[0].spent
        cost = np.array([outcome.spent for outcome in outcomes]) / grid
        low, middle, high = np.quantile(cost, (0.25, 0.5, 0.75))
        half_width = np.median([ANY_WIDTH.width_of(o.interval) for o in outcomes])
        inside = np.mean([o.interval is not None and o.interval.covers(TRUTH["E"]) for o in outcomes])
        print(
            f"| {name} | {len(outcomes)} | {sum(o.reached for o in outcomes)} | {middle:.2f} | {low:.2f} to {high:.2f} "
            f"| {np.median([o.runs for o in outcomes]):.0f} | {half_width:.4f} "
            f"| {inside:.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
