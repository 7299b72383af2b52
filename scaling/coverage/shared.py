"""Coverage where runs of a trunk share errors, at the quickstart's design: `python -m scaling.coverage.shared`.

A study has the 21 fitted runs of the quickstart, six sizes of three or four budgets that branch off one trunk each. Its
errors are drawn with a stated correlation within a trunk, then it is fitted with each way to treat them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from scaling.errors import ScalingError
from scaling.law import Interval, Quantity, fit, intervals, named, prediction
from scaling.law.objective import LogSquared

Errors = Literal["equal", "measured"]
Treatment = Literal["independent", "clusters", "shared"]
TREATMENTS: tuple[Treatment, ...] = ("independent", "clusters", "shared")
STARTS = 64
NOISE = 0.0024
TRUTH = {"E": 2.184, "A": 26.3, "B": 36000.0, "alpha": 0.605, "beta": 0.945}
"""The law of the quickstart, as its study supposes it."""
LARGEST = {"N": 395264.0, "D": 1.5e6}
BUDGETS = (700416, 1200128, 2000896, 4000768)
DEVIATIONS = {
    5888: (0.0117, 0.0087, 0.0059, 0.0052),
    13824: (0.0141, 0.0073, 0.0046, 0.0032),
    25088: (0.0114, 0.0052, 0.0033, 0.0027),
    55296: (0.0058, 0.0027, 0.0013),
    97280: (0.0050, 0.0024, 0.0015),
    221184: (0.0029, 0.0014, 0.0009),
}
"""Of the loss over twenty seeds, by size and budget (docs/results/quickstart.md)."""
CORRELATIONS = (0.68, 0.9, 0.97)
"""Losses of neighbouring budgets correlate by 0.68 to 0.97 over those seeds."""


@dataclass(frozen=True)
class Cell:
    """One kind of study. Errors `equal`: one size of log loss, and one correlation between all runs of a trunk;
    `measured`: the sizes over twenty seeds, and ρ to the power of the number of budgets between two runs."""

    errors: Errors
    correlation: float


@dataclass(frozen=True)
class Counts:
    """Of the studies that were fitted: how many intervals held the truth, and the median width, by quantity."""

    fitted: int
    covered: Mapping[str, int]
    widths: Mapping[str, float]


def design() -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Columns of the 21 runs, their trunk, and the deviation of each loss."""
    rows = [
        (size, budget, trunk, deviation)
        for trunk, (size, deviations) in enumerate(DEVIATIONS.items())
        for budget, deviation in zip(BUDGETS, deviations)
    ]
    size, budget, trunk, deviation = map(np.array, zip(*rows, strict=True))
    return {"N": size.astype(float), "D": budget.astype(float)}, trunk, deviation


def losses(cell: Cell, studies: int, seed: int = 0) -> np.ndarray:
    """`[studies, runs]`, drawn around the law."""
    columns, trunk, deviation = design()
    mean = named("chinchilla").predict(np.array(list(TRUTH.values())), columns)
    apart = np.abs(np.subtract.outer(np.arange(len(trunk)), np.arange(len(trunk))))
    power = np.minimum(apart, 1) if cell.errors == "equal" else apart
    same = trunk[:, None] == trunk
    covariance = np.where(same, np.where(power == 0, 1.0, cell.correlation ** np.maximum(power, 1)), 0.0)
    size = np.full(len(trunk), NOISE) if cell.errors == "equal" else deviation / mean
    rng = np.random.Generator(np.random.Philox(key=[seed, int(1000 * cell.correlation)]))
    return mean * np.exp(rng.standard_normal((studies, len(trunk))) @ np.linalg.cholesky(covariance).T * size)


def quantities() -> dict[str, str | Quantity]:
    """What is bounded, by its name in the table."""
    return {
        "E": "E",
        "alpha": "alpha",
        "beta": "beta",
        "held-out mean": prediction(named("chinchilla"), LARGEST, "held-out mean"),
    }


def truth() -> dict[str, float]:
    """The true value of each quantity."""
    mean = named("chinchilla").predict(np.array(list(TRUTH.values())), {k: np.array([v]) for k, v in LARGEST.items()})
    return {"E": TRUTH["E"], "alpha": TRUTH["alpha"], "beta": TRUTH["beta"], "held-out mean": float(mean[0])}


def simulate(cell: Cell, studies: int, treatment: Treatment, seed: int = 0) -> Counts:
    """Fit and bound `studies` studies of one kind in one way; a fit that does not converge counts as none."""
    columns, trunk, _ = design()
    how: dict[str, Any] = {"independent": {}, "clusters": {"clusters": trunk}, "shared": {"shared": trunk}}[treatment]
    bounds: list[dict[str, Interval]] = []
    for loss in losses(cell, studies, seed):
        try:
            found = fit("chinchilla", {**columns, "loss": loss}, objective=LogSquared(), starts=STARTS, **how)
        except ScalingError:
            continue
        bounds.append(intervals(found, quantities=list(quantities().values())))
    known = truth()
    covered = {name: sum(each[name].covers(value) for each in bounds) for name, value in known.items()}
    widths = {name: float(np.median([_width(each[name]) for each in bounds])) for name in known}
    return Counts(len(bounds), covered, widths)


def _width(interval: Interval) -> float:
    return np.inf if interval.open_below or interval.open_above else interval.high - interval.low


def cells() -> list[Cell]:
    """The correlations that the quickstart shows, and none."""
    return [Cell("equal", 0.0), *(Cell(errors, rho) for errors in ("equal", "measured") for rho in CORRELATIONS)]


def table(studies: int) -> Iterator[str]:
    """One line a kind of study and a treatment."""
    names = list(truth())
    yield f"| errors | correlation | treated as | fitted | {' | '.join(names)} |"
    yield "| --- | --: | --- | --: |" + " --: |" * len(names)
    for cell in cells():
        for treatment in TREATMENTS:
            counts = simulate(cell, studies, treatment)
            print(cell, treatment, counts.covered, file=sys.stderr, flush=True)
            parts = [f"{100 * counts.covered[name] / counts.fitted:.1f} ({counts.widths[name]:.3g})" for name in names]
            yield f"| {cell.errors} | {cell.correlation:g} | {treatment} | {counts.fitted} | {' | '.join(parts)} |"


def document(studies: int) -> str:
    """The part of the page on shared errors."""
    return "\n".join(["## Runs that share a trunk", "", MADE_BY.format(studies=studies), "", *table(studies)]) + "\n"


MADE_BY = """Made by `python -m scaling.coverage.shared --studies {studies}`: simulated studies of the quickstart's
design (21 runs that branch off six trunks), least squares on log loss, profile intervals at 95%. Errors `equal` have
one size (0.0024) and one correlation within a trunk; `measured` have the sizes of twenty seeds
([quickstart](results/quickstart.md)), and correlate by ρ between neighbouring budgets, ρ² at two, ρ³ at three. A figure
is the percentage of intervals that held the truth, in brackets their median width."""


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=200, help="simulated studies a line")
    print(document(parser.parse_args(words).studies), end="")


if __name__ == "__main__":
    main()
