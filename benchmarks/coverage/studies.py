"""Simulated studies whose truth is known: grids of runs, trunks with branches, whole curves, two steps, candidates.

Those of trunks, curves and candidates have the quickstart's design: six sizes, each a trunk from which runs of three or
four budgets branch off (docs/results/quickstart.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from scaling.laws.catalogue import CURVE_LAWS, named
from scaling.laws.curves import Curve, Sizes, covariance, places_of, stacked
from scaling.laws.design import Candidates
from scaling.laws.law import Law

Draw = Callable[[np.random.Generator], tuple[Any, dict[str, float]]]
"""Draws the data of one study, and the true values of what is bounded."""
CHINCHILLA = named("chinchilla")
TRUTH = {"E": 2.184, "A": 26.3, "B": 36000.0, "alpha": 0.605, "beta": 0.945}
"""The law of the quickstart, as its study supposes it."""
NOISE = 0.0024
WIDTHS = {5888: 16, 13824: 24, 25088: 32, 55296: 48, 97280: 64, 221184: 96}
BUDGETS = (700416, 1200128, 2000896, 4000768)
DEVIATIONS = {
    5888: (0.0117, 0.0087, 0.0059, 0.0052),
    13824: (0.0141, 0.0073, 0.0046, 0.0032),
    25088: (0.0114, 0.0052, 0.0033, 0.0027),
    55296: (0.0058, 0.0027, 0.0013),
    97280: (0.0050, 0.0024, 0.0015),
    221184: (0.0029, 0.0014, 0.0009),
}
"""Standard deviations of the loss over twenty seeds, by size and budget."""
LARGEST = {"N": 395264.0, "D": 1.5e6}


def value(form: Law, truth: Mapping[str, float], columns: Mapping[str, Any]) -> np.ndarray:
    """Return the law at these columns."""
    columns = {name: np.atleast_1d(np.asarray(column, float)) for name, column in columns.items()}
    return form.predict(np.array([truth[name] for name in form.parameter_names]), columns)


def quickstart() -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Return N and D of the 21 runs, their trunk, and the deviation of each loss."""
    rows = [
        (size, budget, trunk, deviation)
        for trunk, (size, deviations) in enumerate(DEVIATIONS.items())
        for budget, deviation in zip(BUDGETS, deviations)
    ]
    size, budget, trunk, deviation = map(np.array, zip(*rows, strict=True))
    return {"N": size.astype(float), "D": budget.astype(float)}, trunk, deviation


def trunks(errors: Literal["equal", "measured"], correlation: float) -> Draw:
    """Return studies whose errors correlate within a trunk.

    `equal` errors have one size of log loss and one correlation; `measured` ones have the sizes over twenty seeds, and
    correlate by ρ to the power of the number of budgets between two runs.
    """
    columns, trunk, deviation = quickstart()
    mean = value(CHINCHILLA, TRUTH, columns)
    distance = np.abs(np.subtract.outer(np.arange(len(trunk)), np.arange(len(trunk))))
    power = np.minimum(distance, 1) if errors == "equal" else distance
    same = trunk[:, None] == trunk
    root = np.linalg.cholesky(np.where(same, np.where(distance == 0, 1.0, correlation**power), 0.0))
    size = NOISE if errors == "equal" else deviation / mean
    truth = {**TRUTH, "held-out mean": float(value(CHINCHILLA, TRUTH, LARGEST)[0])}

    def draw(rng: np.random.Generator) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        loss = mean * np.exp(size * (root @ rng.standard_normal(len(mean))))
        return {**columns, "loss": loss, "group": trunk}, truth

    return draw


def grid(law: str, points: int, noise: float, decades: float, exponent: float, errors: str = "normal") -> Draw:
    """Return studies of a law whose terms are one nat together in the middle of the points, next to E = 1.7.

    Errors are `normal`; `heavy` (Student's t with 3 degrees of freedom); `unequal` (three times as large at the largest
    loss as at the smallest); `pairs` (neighbours share half of their variance); `missing` (a tenth is left out).
    """
    form, top, per_parameter = named(law), 1e18 * 10**decades, 20.0
    if "N" in form.inputs:  # budgets, and sizes from a fifth to five times the balanced one at each
        budgets = max(3, round(points**0.5))
        sizes = -(-points // budgets)
        compute = np.repeat(np.geomspace(1e18, top, budgets), sizes)[:points]
        tilt = np.tile(np.geomspace(0.2, 5.0, sizes), budgets)[:points]
        size = np.sqrt(compute / (6 * per_parameter)) * tilt
        balanced = float(np.sqrt(10 * top / (6 * per_parameter)))
        columns, far = {"N": size, "D": compute / (6 * size)}, {"N": balanced, "D": per_parameter * balanced}
    else:
        columns, far = {"C": np.geomspace(1e18, top, points)}, {"C": 10 * top}
    heights = [np.exp(exponent * np.log(column).mean()) / len(columns) for column in columns.values()]
    theta = dict(zip(form.parameter_names, (1.7, *heights, *(exponent for _ in columns)), strict=True))
    mean = value(form, theta, columns)
    truth = {"exponent": exponent, "E": 1.7, "10 × compute": float(value(form, theta, far)[0]), **far}

    def draw(rng: np.random.Generator) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        error, data = rng.standard_normal(points), dict[str, Any](columns)
        if errors == "heavy":
            error = rng.standard_t(3, points) / np.sqrt(3.0)
        elif errors == "unequal":
            error = error * 3.0 ** ((np.log(mean) - np.log(mean).min()) / np.ptp(np.log(mean)) - 0.5)
        elif errors == "pairs":
            pair = np.arange(points) // 2
            data["group"] = pair
            error = (error + rng.standard_normal(points)[pair]) / np.sqrt(2.0)
        data["loss"] = mean * np.exp(noise * error)
        rows = np.sort(rng.permutation(points)[: points - (points // 10 if errors == "missing" else 0)])
        return {name: column[rows] for name, column in data.items()}, truth

    return draw


PER_STEP, WARMUP, RATE, DECAY = 1024.0, 97, 3.5e-3, 0.2
CURVE_TRUTH = TRUTH | {"C": 0.035, "c": 2e-5, "gamma": 0.3, "kappa": 2.0}
TRUNKS_DIFFER = Sizes(trunk=0.003, run=0.001, length=0.3, evaluation=0.0005, training=0.02)
KINDS = {
    "trunks differ most": TRUNKS_DIFFER,
    "runs wander most": replace(TRUNKS_DIFFER, trunk=0.001, run=0.003),
    "as in the quickstart": replace(TRUNKS_DIFFER, by_size=0.5, by_tokens=0.4, N=4e4, D=1e6),
}


def curve_design() -> list[Curve]:
    """Return the trunks and branches of the quickstart under WSD, with no losses yet."""
    curves = []
    for size, deviations in DEVIATIONS.items():
        budgets = [round(tokens / PER_STEP) for tokens in BUDGETS[: len(deviations)]]
        runs = [(f"{size}", budgets[-1] - round(DECAY * budgets[-1]), 0, 25)]
        runs += [(f"{size}-{steps}", steps, round(DECAY * steps), 8) for steps in budgets]
        for name, steps, cooldown, count in runs:
            left = (steps - np.arange(steps)) / (cooldown + 1) if cooldown else 1.0
            rates = RATE * np.minimum(1.0, (np.arange(steps) + 1) / WARMUP) * np.minimum(1.0, left)
            first = steps - cooldown + 1 if cooldown else 1
            logged = np.unique(np.geomspace(first, steps, count).round().astype(int))
            ones = np.ones(len(logged))
            curves.append(Curve(name, size, logged, ones, ones.astype(int), rates, PER_STEP, trunk=str(size)))
    return curves


def draw_curves(curves: Sequence[Curve], sizes: Sizes, rng: np.random.Generator) -> list[Curve]:
    """Return the curves with losses around the multi-power law: errors of trunks, along runs and of evaluations."""
    mean = value(CURVE_LAWS["multi_power"], CURVE_TRUTH, stacked(curves, RATE, 0.999))
    places, errors = places_of(curves), np.empty(len(mean))
    for group in np.unique(places["group"]):
        rows = np.flatnonzero(places["group"] == group)
        errors[rows] = np.linalg.cholesky(covariance(sizes, places[rows])) @ rng.standard_normal(len(rows))
    losses = np.split(mean * np.exp(errors), np.cumsum([len(curve.steps) for curve in curves])[:-1])
    return [replace(curve, losses=loss) for curve, loss in zip(curves, losses, strict=True)]


LOSS = {"E": 1.8, "A": 480.0, "B": 2000.0, "alpha": 0.34, "beta": 0.36}
SCORE = {"b": 0.25, "a": 0.7, "k": 4.0, "L_0": 2.9}
TARGET = {"N": 8e9, "D": 3.2e11}
"""0.6 decades above the largest of the sizes."""


def two_steps(noise: float, examples: int) -> Draw:
    """Return studies of 30 runs of five sizes, whose score is that of `examples` examples given the run's own loss."""
    sigmoid = named("task_sigmoid")
    N = np.repeat(np.geomspace(1e8, 2e9, 5), 6)
    columns = {"N": N, "D": N * np.tile(np.geomspace(10, 320, 6), 5)}

    def runs(at: Mapping[str, Any], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        mean = value(CHINCHILLA, LOSS, at)
        loss = mean * np.exp(noise * rng.standard_normal(len(mean)))
        return loss, rng.binomial(examples, value(sigmoid, SCORE, {"loss": loss})) / examples

    def draw(rng: np.random.Generator) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        loss, score = runs(columns, rng)
        truth = value(sigmoid, SCORE, {"loss": value(CHINCHILLA, LOSS, TARGET)})
        data = {**columns, "loss": loss, "accuracy": score, "examples": np.full(len(N), float(examples))}
        return data, {"mean": float(truth[0]), "new run": float(runs(TARGET, rng)[1][0])}

    return draw


SEEDS, CORRELATION = 3, 0.85


def candidates() -> Candidates:
    """Return the quickstart's runs with three seeds each; the fixed grid is the first third."""
    columns, _, _ = quickstart()
    size, tokens = np.tile(columns["N"], SEEDS), np.tile(columns["D"], SEEDS)
    seed = np.repeat(np.arange(SEEDS), len(columns["N"]))
    width = np.array([WIDTHS[int(each)] for each in size])
    cost = (6.0 * size + 1900.0 * width) * tokens
    shared = np.unique(size * SEEDS + seed, return_inverse=True)[1].reshape(-1)
    return Candidates({"N": size, "D": tokens}, shared, 0.8 * cost, 0.2 * cost)


def draw_candidates(field: Candidates, rng: np.random.Generator) -> np.ndarray:
    """Return the loss of every candidate; runs of a trunk share a part of their noise."""
    shared = rng.standard_normal(int(field.trunks.max()) + 1)[field.trunks]
    own = rng.standard_normal(len(field))
    error = NOISE * (np.sqrt(CORRELATION) * shared + np.sqrt(1.0 - CORRELATION) * own)
    return value(CHINCHILLA, TRUTH, field.columns) * np.exp(error)
