"""Coverage over published studies: held-out runs inside their intervals."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from scaling.base.errors import ScalingError
from scaling.laws.fit import FittedLaw, fit
from scaling.laws.intervals import Interval, measure, student
from scaling.laws.points import Points, load_points
from scaling.laws.predict import Discrepancy, Prediction, TwoStep, predict_runs, rows_of

LEVEL = 0.95
KINDS = {"f": "random fifths", "bigN": "largest fifth by N", "bigD": "largest fifth by D", "bigC": "largest fifth by C"}
AXES: dict[str, Callable[[Points], np.ndarray]] = {
    "N": lambda points: points.numbers("N"),
    "D": lambda points: points.numbers("D"),
    "C": lambda points: points.numbers("N") * points.numbers("D"),
}
NOTHING_KNOWN = 100.0  # a standard deviation of log size that leaves all to the residuals
FRACTIONS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
DECADES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
FEWEST = 12


@dataclass(frozen=True)
class Tested:
    """The runs of one hold-out. `error` is of the logarithm; `half` are half-widths of intervals on its side.

    The keys of `half` are the interval of the `mean`, that with the `noise` of the fitted runs added, and that of a new
    `run`. `decades` are distances outside the points, along the axis that chose the hold-out.
    """

    study: str
    error: np.ndarray
    half: Mapping[str, np.ndarray]
    decades: np.ndarray

    def inside(self, name: str) -> np.ndarray:
        """Return whether each run lies inside its interval."""
        return np.abs(self.error) <= self.half[name]

    @property
    def width(self) -> float:
        """The median width of a new run's interval over the width that would have held exactly 95% of the hold-out."""
        return float(np.median(self.half["run"]) / np.quantile(np.abs(self.error), LEVEL))


def judge(
    study: str, law: FittedLaw | TwoStep, held_out: Points, decades: np.ndarray | None = None, **choices: Any
) -> Tested:
    """Predict the held-out runs and compare each with its intervals."""
    predictions = predict_runs(law, rows_of(held_out, law), LEVEL, "t", **choices)
    estimate = np.log([prediction.estimate for prediction in predictions])
    error = np.log(held_out.numbers(law.form.target)) - estimate
    mean, run = (_half(predictions, name, estimate, error) for name in ("mean", "run"))
    half = {"mean": mean, "run": run}
    if isinstance(law, FittedLaw):
        problem = law.problem
        scale = measure(problem.objective, law.objective, len(problem.observed), len(problem.free)).scale
        half["noise"] = np.hypot(mean, scale * student(LEVEL, law.degrees_of_freedom))
    return Tested(study, error, half, np.zeros(len(error)) if decades is None else decades)


def _half(predictions: Sequence[Prediction], name: str, estimate: np.ndarray, error: np.ndarray) -> np.ndarray:
    intervals: list[Interval] = [getattr(prediction, name) for prediction in predictions]
    low, high = np.array([(max(interval.low, 1e-300), interval.high) for interval in intervals]).T
    return np.where(error > 0, np.log(high) - estimate, estimate - np.log(low))


def by_form_error(folder: Path) -> Iterator[str]:
    """Predict each hold-out of each CSV by Chinchilla's law: N, D, loss, and 0/1 columns `f0`…, `bigN`, `bigD`, `bigC`.

    What is assumed of the form's error beforehand comes from the other studies alone.
    """
    studies = {path.stem: load_points(path) for path in sorted(folder.glob("*.csv"))}
    sizes = {}
    for name, points in studies.items():
        process = Discrepancy(fit("chinchilla", points), spread=NOTHING_KNOWN)
        sizes[name] = float(np.exp(process.weights @ np.log(process.sizes)))
    tested: dict[str, list[Tested]] = {kind: [] for kind in KINDS}
    distances: dict[str, list[Tested]] = {axis: [] for axis in AXES}
    for name, points in studies.items():
        others = [size for other, size in sizes.items() if other != name]
        prior = float(np.median(others)), float(np.std(np.log(others), ddof=1))
        for kind in KINDS:
            for column in sorted(column for column in points.columns if column.rstrip("0123456789") == kind):
                mask = points.numbers(column) > 0
                tested[kind].append(_predicted(name, points, mask, AXES.get(kind[-1], AXES["C"]), prior))
        for axis, along in AXES.items():
            for fraction in FRACTIONS:
                mask = along(points) > np.quantile(along(points), fraction) * (1.0 + 1e-9)
                kept = points.numbers("N")[~mask]
                if mask.any() and len(kept) >= FEWEST and len(np.unique(kept)) > 2:
                    with suppress(ScalingError):  # too few runs for a fit that converges
                        distances[axis].append(_predicted(name, points, mask, along, prior))
        print(name, file=sys.stderr, flush=True)
    yield from head(("held out",), ("runs", "in the mean's", "noise added", "in a new run's", "width", "mean error"))
    for kind, tests in tested.items():
        inside = (_percent(tests, name) for name in ("mean", "noise", "run"))
        width, error = np.median([test.width for test in tests]), _error(tests)
        yield row(KINDS[kind], _count(tests), *(f"{each:.1f}%" for each in inside), f"{width:.2f}", error)
    yield from ("", *head(("study",), ("size of u", *KINDS.values())))
    for name, size in sizes.items():
        mine = ([test for test in tests if test.study == name] for tests in tested.values())
        yield row(name, f"{size:.2f}", *(f"{_percent(tests, 'run'):.0f}%" for tests in mine))
    yield from ("", *head(("decades beyond",), [f"by {a}: {b}" for a in AXES for b in ("noise added", "new run")]))
    for low, high in pairwise(DECADES):
        cells = []
        for tests in distances.values():
            noise, run = (
                np.concatenate([test.inside(name)[(test.decades > low) & (test.decades <= high)] for test in tests])
                for name in ("noise", "run")
            )
            cells += [f"{100 * noise.mean():.0f}%", f"{100 * run.mean():.0f}% of {len(run)}"] if len(run) else "--"
        yield row(f"{low:g} to {high:g}", *cells)


def _predicted(
    study: str, points: Points, mask: np.ndarray, along: Callable[[Points], np.ndarray], prior: tuple[float, float]
) -> Tested:
    rest, held_out = points.hold_out(mask)
    law = fit("chinchilla", rest, starts=256)
    decades = np.log10(along(points)[mask] / along(points)[~mask].max())
    return judge(study, law, held_out, decades, form_error=Discrepancy(law, *prior))


SIZE_OF_3B = 3_169_537_280
"""N of the OLMo ladder's largest size, which its table leaves empty."""
LOSS, TASK = "eval/c4_en-validation/CrossEntropyLoss", "eval/downstream_bpb/{}_rc_5shot_bpb"


def by_task(folder: Path) -> Iterator[str]:
    """Predict scores of the OLMo ladder's sizes, each left out in turn, and losses of Gadre et al. from C4's."""
    tested = {**ladder(folder / "olmo_ladder_final_points.csv"), **loss_to_loss(folder / "gadre2024_models.csv")}
    numbers = ("predictions", "in the mean's", "in a new run's", "mean error", "half-width")
    yield from head(("law", "left out"), numbers)
    for (law, part), tests in tested.items():
        inside = (f"{_percent(tests, name):.1f}%" for name in ("mean", "run"))
        half = np.median(np.concatenate([test.half["run"] for test in tests]))
        yield row(law, part, _count(tests), *inside, _error(tests), f"{100 * half:.2f}%")


def ladder(path: Path) -> dict[tuple[str, str], list[Tested]]:
    """Return the held-out runs of every task, by law and by which size was left out."""
    frame = pandas.read_csv(path).fillna({"N": SIZE_OF_3B})
    before, after = TASK.split("{}")
    tasks = [name for name in frame.columns if name.startswith(before) and name.endswith(after)]
    tables = [load_points(frame, rename={"loss": LOSS, "bits_per_byte": task}) for task in tasks]
    sizes = tables[0].numbers("N")
    tested: dict[tuple[str, str], list[Tested]] = {}
    for size in np.unique(sizes):
        mask, part = sizes == size, "largest size" if size == sizes.max() else "another size"
        loss = fit("chinchilla", tables[0].hold_out(mask)[0], starts=128)
        for table in tables:
            rest, held_out = table.hold_out(mask)
            laws: dict[str, FittedLaw | TwoStep] = {"direct_bits": fit("direct_bits", rest, starts=128)}
            for task in ("task_power", "task_linear"):
                laws[f"chinchilla,{task}"] = TwoStep(loss, fit(task, rest, starts=128), np.arange(len(rest)))
            for name, law in laws.items():
                tested.setdefault((name, part), []).append(judge(name, law, held_out))
    return tested


def loss_to_loss(path: Path) -> dict[tuple[str, str], list[Tested]]:
    """Return the largest fifth by compute: losses on seven sets from that on C4, by training corpus."""
    frame = pandas.read_csv(path)
    sets = [name for name in frame.columns if name.startswith("loss_") and name != "loss_c4_val"]
    tested: dict[tuple[str, str], list[Tested]] = {}
    for corpus, runs in frame.groupby("dataset"):
        compute = (runs["N"].astype(float) * runs["D"]).to_numpy()  # beyond the integers of 64 bits
        mask = compute >= np.sort(compute)[-len(compute) // 5]
        for name in sets:
            table = Points({"loss_a": runs["loss_c4_val"].to_numpy(), "loss_b": runs[name].to_numpy()})
            rest, held_out = table.hold_out(mask)
            with suppress(ScalingError):  # no start converges
                law = fit("loss_to_loss", rest, fixed={"E_a": 0.0}, starts=128)
                tested.setdefault((f"loss_to_loss, {corpus}", "largest fifth"), []).append(judge(name, law, held_out))
    return tested


def _percent(tests: Iterable[Tested], name: str) -> float:
    return 100 * float(np.concatenate([test.inside(name) for test in tests]).mean())


def _count(tests: Iterable[Tested]) -> str:
    return str(sum(len(test.error) for test in tests))


def _error(tests: Iterable[Tested]) -> str:
    return f"{100 * np.concatenate([np.abs(test.error) for test in tests]).mean():.2f}%"


def head(words: Sequence[str], numbers: Sequence[str]) -> list[str]:
    """Return the two first lines of a table."""
    return [row(*words, *numbers), row(*["---"] * len(words), *["--:"] * len(numbers))]


def row(*cells: object) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(map(str, cells))} |"
