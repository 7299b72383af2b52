"""Coverage and width of the interval of E from whole curves, next to final losses: `python -m scaling.coverage.curves`.

A study has the quickstart's design: six sizes, each a trunk and branches of three or four budgets under WSD. Its losses
follow the multi-power law, with errors of the trunk, along the run and of each evaluation. It is fitted twice: to the
final losses of its runs, whose trunks share errors, and to all evaluations.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scaling.coverage.shared import BUDGETS, DEVIATIONS
from scaling.errors import ScalingError
from scaling.laws.curves import Curve, Sizes, covariance, fit_curves, places_of, stacked
from scaling.laws.fit import fit, intervals
from scaling.laws.intervals import Interval
from scaling.laws.special_laws import MULTI_POWER

TRUTH = {
    "E": 2.184,
    "A": 26.3,
    "B": 36000.0,
    "C": 0.035,
    "c": 2e-5,
    "alpha": 0.605,
    "beta": 0.945,
    "gamma": 0.3,
    "kappa": 2.0,
}
PER_STEP, WARMUP, RATE, DECAY = 1024.0, 97, 3.5e-3, 0.2
EVALUATIONS = {"trunk": 25, "branch": 8}
KINDS = {
    "trunks differ most": Sizes(trunk=0.003, run=0.001, length=0.3, evaluation=0.0005, training=0.02),
    "runs wander most": Sizes(trunk=0.001, run=0.003, length=0.3, evaluation=0.0005, training=0.02),
    "as in the quickstart": Sizes(
        trunk=0.003, run=0.001, length=0.3, evaluation=0.0005, training=0.02, by_size=0.5, by_tokens=0.4, N=4e4, D=1e6
    ),
}
NAMES = ("E", "alpha", "beta")


@dataclass(frozen=True)
class Result:
    """Of one kind of study: how many were fitted, the intervals that held the truth, and their median widths."""

    fitted: int
    covered: Mapping[str, int]
    widths: Mapping[str, float]


def design() -> list[Curve]:
    """The trunks and branches of the quickstart with no losses yet."""
    curves = []
    for size, deviations in DEVIATIONS.items():
        budgets = [round(tokens / PER_STEP) for tokens in BUDGETS[: len(deviations)]]
        last = budgets[-1] - round(DECAY * budgets[-1])
        curves.append(_curve(f"{size}", size, _rates(last, 0), 1, EVALUATIONS["trunk"]))
        for steps in budgets:
            cooldown = round(DECAY * steps)
            rates = _rates(steps, cooldown)
            curves.append(_curve(f"{size}-{steps}", size, rates, steps - cooldown + 1, EVALUATIONS["branch"]))
    return curves


def _rates(steps: int, cooldown: int) -> np.ndarray:
    left = (steps - np.arange(steps)) / (cooldown + 1)
    return RATE * np.minimum(1.0, (np.arange(steps) + 1) / WARMUP) * np.minimum(1.0, left if cooldown else 1.0)


def _curve(name: str, size: int, rates: np.ndarray, first: int, count: int) -> Curve:
    steps = np.unique(np.geomspace(first, len(rates), count).round().astype(int))
    return Curve(name, size, steps, np.ones(len(steps)), np.ones(len(steps), int), rates, PER_STEP, trunk=str(size))


def drawn(curves: Sequence[Curve], sizes: Sizes, rng: np.random.Generator) -> list[Curve]:
    """The curves with losses around the law."""
    mean = MULTI_POWER.predict(np.array(list(TRUTH.values())), stacked(curves, RATE, 0.999))
    places, errors = places_of(curves), np.empty(len(mean))
    for group in np.unique(places["group"]):
        rows = np.flatnonzero(places["group"] == group)
        errors[rows] = np.linalg.cholesky(covariance(sizes, places[rows])) @ rng.standard_normal(len(rows))
    ends = np.cumsum([len(curve.steps) for curve in curves])
    losses = np.split(mean * np.exp(errors), ends[:-1])
    return [replace(curve, losses=loss) for curve, loss in zip(curves, losses, strict=True)]


def final_losses(curves: Sequence[Curve]) -> dict[str, Interval]:
    """What the last losses of the branches show, as the runs of a study."""
    runs = [curve for curve in curves if "-" in curve.run]
    columns = {
        "N": np.array([run.N for run in runs]),
        "D": np.array([run.D for run in runs]),
        "loss": np.array([run.losses[-1] for run in runs]),
    }
    trunk = np.unique([run.group for run in runs], return_inverse=True)[1]
    return intervals(
        fit("chinchilla", columns, group=trunk, objective="log_squared", starts=64), quantities=list(NAMES)
    )


def whole_curves(curves: Sequence[Curve]) -> dict[str, Interval]:
    """What all evaluations show."""
    return fit_curves(curves, "multi_power", starts=96).intervals(NAMES)


def simulate(sizes: Sizes, studies: int, seed: int = 0) -> dict[str, Result]:
    """Both fits of studies of one kind. E and the exponents of final losses are judged by the same truth."""
    rng = np.random.Generator(np.random.Philox(key=[seed, 5]))
    curves, found = design(), {"final losses": [], "whole curves": []}
    for _ in range(studies):
        study = drawn(curves, sizes, rng)
        for name, bounded in (("final losses", final_losses), ("whole curves", whole_curves)):
            try:
                found[name].append(bounded(study))
            except ScalingError:
                continue
    return {name: _result(each) for name, each in found.items()}


def _result(bounds: Sequence[Mapping[str, Interval]]) -> Result:
    covered = {name: sum(each[name].covers(TRUTH[name]) for each in bounds) for name in NAMES}
    widths = {
        name: float(
            np.median(
                [np.inf if b[name].open_below or b[name].open_above else b[name].high - b[name].low for b in bounds]
            )
        )
        for name in NAMES
    }
    return Result(len(bounds), covered, widths)


def table(studies: int) -> Iterator[str]:
    """One line a kind of error and a fit."""
    yield f"| errors | fitted to | fitted | {' | '.join(NAMES)} |"
    yield "| --- | --- | --: |" + " --: |" * len(NAMES)
    for kind, sizes in KINDS.items():
        for name, result in simulate(sizes, studies).items():
            print(kind, name, result, file=sys.stderr, flush=True)
            parts = [f"{100 * result.covered[key] / result.fitted:.1f} ({result.widths[key]:.3g})" for key in NAMES]
            yield f"| {kind} | {name} | {result.fitted} | {' | '.join(parts)} |"


def document(studies: int) -> str:
    """The part of the page on whole curves."""
    return "\n".join(["## Whole curves", "", MADE_BY.format(studies=studies), "", *table(studies)]) + "\n"


MADE_BY = """Made by `python -m scaling.coverage.curves --studies {studies}`: simulated studies of the quickstart's
design (six trunks, 21 branches under WSD), whose losses follow the multi-power law. Errors are of the trunk (0.003 or
0.001 of log loss), along the run (0.001 or 0.003, changing over 0.3 of log steps) and of each evaluation (0.0005); as
in the quickstart, those of trunk and run shrink as N^-0.5 D^-0.4 (and are these at 40,000 and 1M). A figure is the
percentage of 95% intervals that held the truth, in brackets their median width. Final losses are fitted by Chinchilla's
law with the errors that trunks share; its B D^-β stands for the cool-down too, so that its β and E are those of another
law by a little."""


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=100, help="simulated studies of a kind")
    print(document(parser.parse_args(words).studies), end="")


if __name__ == "__main__":
    main()
