"""Held-out runs of published studies inside their intervals: `python -m scaling.coverage.published FOLDER`.

FOLDER has a CSV for each study: N, D, loss, and 0/1 columns of hold-outs (random fifths `f0`…, the largest fifth
`bigN`, `bigD`, `bigC`). Each hold-out is predicted from the study's other runs. What is assumed of the form's error
beforehand comes from the other studies alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from scaling.errors import ScalingError
from scaling.law.discrepancy import discrepancy
from scaling.law.fit import Fit, fit
from scaling.law.interval import Interval
from scaling.law.noise import measure, student
from scaling.law.points import Points
from scaling.law.predictions import predict_runs, rows_of
from scaling.law.read_points import read_points_file

LEVEL = 0.95
KINDS = {"f": "random fifths", "bigN": "largest fifth by N", "bigD": "largest fifth by D", "bigC": "largest fifth by C"}
NOTHING_KNOWN = 100.0  # a standard deviation of log size that leaves all to the residuals
SHARES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
DECADES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
FEWEST = 12


@dataclass(frozen=True)
class Tested:
    """The runs of one hold-out. Errors and half-widths are of log loss."""

    study: str
    error: np.ndarray
    mean: np.ndarray
    noise: np.ndarray
    run: np.ndarray
    decades: np.ndarray
    """Outside the points, along the axis that chose the hold-out."""

    def inside(self, name: str) -> np.ndarray:
        return np.abs(self.error) <= getattr(self, name)

    @property
    def width(self) -> float:
        """The median of the new run's intervals over that which would have held exactly 95% of the hold-out."""
        return float(np.median(self.run) / np.quantile(np.abs(self.error), LEVEL))


def predict_from_others(study: str, points: Points, mask: np.ndarray, axis: str, size: float, spread: float) -> Tested:
    """Predict the runs of mask `held` from the others, given the size of the form's error in other studies."""
    rest, tested = points.hold_out(mask)
    law = fit("chinchilla", rest, starts=256)
    predictions = predict_runs(law, rows_of(tested, law), LEVEL, "t", form_error=discrepancy(law, size, spread))
    estimate = np.log([prediction.estimate for prediction in predictions])
    error = np.log(tested.numbers("loss")) - estimate
    mean, run = (
        _half(
            [interval for prediction in predictions if (interval := getattr(prediction, name)) is not None],
            estimate,
            error,
        )
        for name in ("mean", "run")
    )
    noise = np.hypot(mean, _noise(law))
    values = _axis(points, axis)
    return Tested(study, error, mean, noise, run, np.log10(values[mask] / values[~mask].max()))


def _half(intervals: Sequence[Interval], estimate: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Of each interval the half on whose side the loss lies."""
    low, high = np.log([(interval.low, interval.high) for interval in intervals]).T
    return np.where(error > 0, high - estimate, estimate - low)


def _noise(law: Fit) -> float:
    """Of one run, by the objective alone: what the interval of a run was made with before."""
    problem = law.problem
    scale = measure(problem.objective, np.array([law.objective]), len(problem.observed), len(problem.free)).scale[0]
    return float(scale) * student(LEVEL, law.degrees_of_freedom)


def _axis(points: Points, axis: str) -> np.ndarray:
    N, D = points.numbers("N"), points.numbers("D")
    return {"N": N, "D": D, "C": N * D}.get(axis, N * D)


def size_of(points: Points) -> float:
    """The size of the form's error that the residuals of a study show by themselves."""
    process = discrepancy(fit("chinchilla", points), spread=NOTHING_KNOWN)
    return float(np.exp(process.weights @ np.log(process.sizes)))


def priors(sizes: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """For each study the median over the others, and the standard deviation of their logarithms."""
    others = {study: [size for name, size in sizes.items() if name != study] for study in sizes}
    return {study: (float(np.median(own)), float(np.std(np.log(own), ddof=1))) for study, own in others.items()}


def largest_out(points: Points, axis: str) -> Iterator[np.ndarray]:
    """All runs above each quantile of the points, by one axis."""
    values = _axis(points, axis)
    for share in SHARES:
        mask = values > np.quantile(values, share) * (1.0 + 1e-9)
        if mask.any() and (~mask).sum() >= FEWEST and len(np.unique(points.numbers("N")[~mask])) > 2:
            yield mask


def tables(studies: Mapping[str, Points]) -> list[str]:
    """The section of docs/coverage.md."""
    sizes = {name: size_of(points) for name, points in studies.items()}
    other_sizes = priors(sizes)
    tested = {kind: [] for kind in KINDS}
    by_distance: dict[str, list[Tested]] = {axis: [] for axis in "NDC"}
    for name, points in studies.items():
        for kind in KINDS:
            for column in sorted(column for column in points.columns if column.rstrip("0123456789") == kind):
                mask = points.numbers(column) > 0
                tested[kind].append(predict_from_others(name, points, mask, kind[-1], *other_sizes[name]))
        for axis, tests in by_distance.items():
            for mask in largest_out(points, axis):
                with suppress(ScalingError):  # too few runs for a fit that converges
                    tests.append(predict_from_others(name, points, mask, axis, *other_sizes[name]))
        print(name, file=sys.stderr, flush=True)
    return [
        *_row("held out", "runs", "in the mean's", "noise added", "in a new run's", "width", "mean error"),
        *_rule(6),
        *(line for kind, tests in tested.items() for line in _row(KINDS[kind], *_counted(tests))),
        "",
        *_row("study", "size of u", *KINDS.values()),
        *_rule(1 + len(KINDS)),
        *(
            line
            for name in studies
            for line in _row(name, f"{sizes[name]:.2f}", *(_of_study(tests, name) for tests in tested.values()))
        ),
        "",
        *_row(
            "decades beyond",
            *(f"by {axis}: {measure}" for axis in by_distance for measure in ("noise added", "new run")),
        ),
        *_rule(2 * len(by_distance)),
        *(
            line
            for low, high in pairwise(DECADES)
            for line in _row(
                f"{low:g} to {high:g}", *(cell for tests in by_distance.values() for cell in _at(tests, low, high))
            )
        ),
    ]


def _counted(tests: Sequence[Tested]) -> list[str]:
    counts = [np.concatenate([test.inside(name) for test in tests]) for name in ("mean", "noise", "run")]
    error = np.concatenate([np.abs(test.error) for test in tests])
    width = float(np.median([test.width for test in tests]))
    return [
        str(len(error)),
        *(f"{100 * inside.mean():.1f}%" for inside in counts),
        f"{width:.2f}",
        f"{100 * error.mean():.2f}%",
    ]


def _of_study(tests: Sequence[Tested], study: str) -> str:
    inside = np.concatenate([test.inside("run") for test in tests if test.study == study])
    return f"{100 * inside.mean():.0f}%"


def _at(tests: Sequence[Tested], low: float, high: float) -> list[str]:
    masks = [(test, (test.decades > low) & (test.decades <= high)) for test in tests]
    noise, run = (np.concatenate([test.inside(name)[mask] for test, mask in masks]) for name in ("noise", "run"))
    return [f"{100 * noise.mean():.0f}%", f"{100 * run.mean():.0f}% of {len(run)}"] if len(run) else ["-", "-"]


def _row(*cells: str) -> list[str]:
    return [f"| {' | '.join(cells)} |"]


def _rule(numbers: int) -> list[str]:
    return _row("---", *["--:"] * numbers)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    print("\n".join(tables({path.stem: read_points_file(path) for path in sorted(folder.glob("*.csv"))})))
