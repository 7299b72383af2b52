"""Held-out runs of task laws inside their intervals: `python -m scaling.coverage.tasks [--draws 200]`.

The OLMo ladder's 20 tasks, each size left out in turn, predicted in two steps and directly; the losses on seven sets of
Gadre et al. 2024 from that on C4, the largest fifth left out; and simulated studies of a two-step law that is known.
Both published sets are shipped (`scaling.published`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import product

import numpy as np

from scaling.errors import ScalingError
from scaling.law.fit import Fit, fit
from scaling.law.forms import Form, named
from scaling.law.forms.composed import Composed
from scaling.law.held_out import judge
from scaling.law.points import Points
from scaling.law.predictions import Prediction, predict_runs
from scaling.law.two_step import TwoStep, fit_two_steps
from scaling.published import gadre2024, olmo_ladder
from scaling.published.credit import rows

LEVEL = 0.95
STARTS = 128
STEPS = ("chinchilla", "task_power"), ("chinchilla", "task_linear")
DIRECT = "direct_bits"
LOSS_TO_LOSS = "loss_to_loss"


@dataclass(frozen=True)
class Predicted:
    """A held-out run: what it was, and what was predicted."""

    observed: float
    prediction: Prediction

    @property
    def error(self) -> float:
        return abs(self.prediction.estimate / self.observed - 1.0)


def ladder_tasks() -> list[str]:
    """The tasks of the OLMo ladder."""
    before, after = olmo_ladder.TASK.split("{}")
    columns = rows("olmo_ladder_final_points.csv")[0]
    return [name.removeprefix(before).removesuffix(after) for name in columns if name.startswith(before)]


def ladder() -> dict[tuple[str, str], list[Predicted]]:
    """By law, and by whether the largest size is left out or another one: every run of that size, of every task."""
    tested: dict[tuple[str, str], list[Predicted]] = {}
    tables = {
        task: table.with_column("bits_per_byte", table["bits"], "bits per byte of the right answers")
        for task, table in ((task, olmo_ladder.points(task)) for task in ladder_tasks())
    }
    sizes = next(iter(tables.values()))["N"]
    for size in np.unique(sizes):
        mask = sizes == size
        part = "largest size" if size == sizes.max() else "another size"
        losses: dict[str, Fit] = {}
        for table in tables.values():
            rest, out = table.hold_out(mask)
            fits: dict[str, Fit | TwoStep] = {DIRECT: fit(DIRECT, rest, starts=STARTS)}
            for loss, task in STEPS:
                losses.setdefault(loss, fit(loss, rest, starts=STARTS))
                steps = losses[loss], fit(task, rest, starts=STARTS), np.arange(len(rest))
                fits[f"{loss},{task}"] = TwoStep(*steps)
            for name, law in fits.items():
                judged = judge(law, out, LEVEL, "t")
                pairs = zip(map(float, judged.observed), judged.predictions, strict=True)
                tested.setdefault((name, part), []).extend(Predicted(*pair) for pair in pairs)
    return tested


def loss_to_loss() -> dict[str, list[Predicted]]:
    """By training corpus: the losses on the other sets from that on C4, the largest fifth by compute left out."""
    sets = [name for name in rows("gadre2024_models.csv")[0] if name.startswith("loss_") and name != "loss_c4_val"]
    tested: dict[str, list[Predicted]] = {}
    for corpus in gadre2024.CORPORA:
        source = gadre2024.points(corpus)
        compute = source["N"] * source["D"]
        mask = compute >= np.sort(compute)[-len(compute) // 5]
        for name in sets:
            target = gadre2024.points(corpus, name)["loss"]
            table = Points({"loss_a": source["loss"], "loss_b": target})
            rest, out = table.hold_out(mask)
            with suppress(ScalingError):  # no start converges
                judged = judge(fit(LOSS_TO_LOSS, rest, fixed={"E_a": 0.0}, starts=STARTS), out, LEVEL, "t")
                pairs = zip(map(float, judged.observed), judged.predictions, strict=True)
                tested.setdefault(corpus, []).extend(Predicted(*pair) for pair in pairs)
    return tested


LOSS = {"E": 1.8, "A": 480.0, "B": 2000.0, "alpha": 0.34, "beta": 0.36}
SCORE = {"b": 0.25, "a": 0.7, "k": 4.0, "L_0": 2.9}
SIZES, RATIOS = np.geomspace(1e8, 2e9, 5), np.geomspace(10, 320, 6)
TARGET = {"N": 8e9, "D": 3.2e11}
"""0.6 decades above the largest of the sizes."""
CELLS = tuple(product((0.002, 0.01), (500, 5000), (True, False)))


@dataclass(frozen=True)
class Simulated:
    """Of simulated studies of a known two-step law, the fraction whose interval at the target holds the truth."""

    studies: int
    refused: int
    mean: float
    run: float
    width: float
    """The median width of a new run's interval."""


def simulate(noise: float, examples: int, chance: bool, draws: int, seed: int = 0) -> Simulated:
    """Studies of 30 runs of five sizes. A score is that of `examples` examples given the run's own loss."""
    rng = np.random.default_rng(seed)
    law = Composed(named("chinchilla"), named("task_sigmoid"))
    N = np.repeat(SIZES, len(RATIOS))
    grid = {"N": N, "D": N * np.tile(RATIOS, len(SIZES))}
    target = {name: np.array([value]) for name, value in TARGET.items()}
    truth = float(_truth(law.task, SCORE, {"loss": _truth(law.loss, LOSS, target)})[0])

    def runs(columns: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        mean = _truth(law.loss, LOSS, columns)
        loss = mean * np.exp(noise * rng.standard_normal(len(mean)))
        return loss, rng.binomial(examples, _truth(law.task, SCORE, {"loss": loss})) / examples

    holds, widths, refused = [], [], 0
    for _ in range(draws):
        loss, score = runs(grid)
        (new,) = runs(target)[1]
        columns = {**grid, "loss": loss, "accuracy": score, "examples": np.full(len(N), float(examples))}
        try:
            fit = fit_two_steps(law, columns, fixed={"task_b": SCORE["b"]} if chance else {}, starts=STARTS)
            (prediction,) = predict_runs(fit, [TARGET], LEVEL)
        except ScalingError:
            refused += 1
            continue
        assert prediction.mean is not None
        assert prediction.run is not None
        holds.append((prediction.mean.covers(truth), prediction.run.covers(float(new))))
        widths.append(prediction.run.high - prediction.run.low)
    mean, run = np.mean(holds, axis=0)
    return Simulated(len(holds), refused, float(mean), float(run), float(np.median(widths)))


def _truth(form: Form, values: Mapping[str, float], columns: Mapping[str, np.ndarray]) -> np.ndarray:
    return form.predict(np.array([values[name] for name in form.parameter_names]), columns)


def tables(draws: int) -> Iterator[str]:
    """The section of docs/coverage.md."""
    yield "| law | left out | predictions | in the mean's | in a new run's | mean error | half-width |"
    yield "| --- | --- | --: | --: | --: | --: | --: |"
    for (law, part), tests in sorted(ladder().items(), key=lambda item: item[0][::-1]):
        yield f"| {law} | {part} | {_counted(tests)} |"
    for corpus, tests in loss_to_loss().items():
        yield f"| loss_to_loss, {gadre2024.CORPORA[corpus]} | largest fifth | {_counted(tests)} |"
    yield ""
    yield "| noise of the loss | examples | chance | studies | refused | truth in the mean's | new run in its | width |"
    yield "| --: | --: | --- | --: | --: | --: | --: | --: |"
    for noise, examples, chance in CELLS:
        cell = simulate(noise, examples, chance, draws)
        floor = "known" if chance else "fitted"
        yield (
            f"| {noise:g} | {examples} | {floor} | {cell.studies} | {cell.refused} | {cell.mean:.1%} | {cell.run:.1%} "
            f"| {cell.width:.3f} |"
        )


def _counted(tests: Iterable[Predicted]) -> str:
    tests = [test for test in tests if test.prediction.mean is not None and test.prediction.run is not None]
    means, runs = (
        np.mean([getattr(test.prediction, name).covers(test.observed) for test in tests]) for name in ("mean", "run")
    )
    ends = ((test.prediction.run, test.prediction.estimate) for test in tests)
    half = np.median([(run.high - run.low) / (2.0 * estimate) for run, estimate in ends if run is not None])
    error = np.mean([test.error for test in tests])
    return f"{len(tests)} | {means:.1%} | {runs:.1%} | {error:.2%} | {half:.2%}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How often the intervals of task laws hold.")
    parser.add_argument("--draws", type=int, default=200, help="simulated studies a cell (default 200)")
    print("\n".join(tables(parser.parse_args().draws)))
