"""Whether the runs of a study can identify its law, computed before any is trained, and the smallest grid that can."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from scaling.errors import plural
from scaling.laws import Law, named
from scaling.laws.diagnostics import POINTS_A_PARAMETER
from scaling.studies.question import Question
from scaling.training.experiment import Experiment
from scaling.training.point import point

LEVELS = 3  # of an axis: a power with a floor has three unknowns along it
DRAWS = 8  # of the parameters, at which the rank of the law's derivative is taken
RANK = 1e-9  # of the largest singular value: what is smaller is rounding
NAMES = {"N": "sizes", "D": "budgets"}


@dataclass(frozen=True)
class Shortfall:
    """Points that cannot identify the parameters of a law, and the smallest grid that does."""

    points: int
    parameters: int
    separable: int
    """Parameters, or combinations of them, that the points separate at all."""
    needed: int
    levels: Mapping[str, int]
    """Of the smallest grid: the number of values on each axis."""

    def __str__(self) -> str:
        what = f"{plural(self.points, 'point')} cannot identify the {plural(self.parameters, 'parameter')} of the law"
        if self.separable < self.parameters:
            why = f"they separate only {self.separable}"
        else:
            why = f"{POINTS_A_PARAMETER} points are needed for each, {self.needed} in all"
        return f"{what}: {why}; the smallest grid that does is {spelled(self.levels)}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "sentence": str(self)}


def shortfall(question: Question, fitted: Iterable[Experiment]) -> Shortfall | None:
    """What the runs to fit lack to identify the law; None where it is nothing, or there is no law, or one a row."""
    if question.law is None or question.compares_rows:
        return None
    return lacking(named(question.law), [point(experiment) for experiment in fitted])


def lacking(law: Law, rows: Sequence[Mapping[str, Any]]) -> Shortfall | None:
    """What is missing of the points to fit, repeats of one point counted once; None where they are enough."""
    if not rows or any(name not in row for row in rows for name in law.inputs):
        return None
    points = np.array(sorted({tuple(float(row[name]) for name in law.inputs) for row in rows})).reshape(
        -1, len(law.inputs)
    )
    parameters = len(law.parameter_names)
    separable = _rank(law, dict(zip(law.inputs, points.T, strict=True)))
    levels = smallest_grid(law)
    if len(points) >= POINTS_A_PARAMETER * parameters and separable == parameters:
        return None
    return Shortfall(len(points), parameters, separable, math.prod(levels.values()), levels)


def _rank(law: Law, columns: Mapping[str, np.ndarray]) -> int:
    """The rank of the law's derivative at the points, the best over random parameters; full if all overflow."""
    theta = law.start(
        np.random.default_rng(0), DRAWS, columns, np.linspace(3.0, 2.0, len(next(iter(columns.values()))))
    )
    ranks = []
    for parameters in theta:
        jacobian = law.jacobian(parameters, columns)
        length = np.linalg.norm(jacobian, axis=0)
        if np.all(np.isfinite(jacobian)) and np.all(length > 0):
            values = np.linalg.svd(jacobian / length, compute_uv=False)
            ranks.append(int(np.sum(values > RANK * values[0])))
    return max(ranks, default=len(law.parameter_names))


def smallest_grid(law: Law) -> dict[str, int]:
    """The values on each axis of the smallest full grid that identifies a law, with the most on its first axis."""
    first, *others = law.free_axes
    levels = dict.fromkeys(others, LEVELS)
    needed = POINTS_A_PARAMETER * len(law.parameter_names)
    return {first: max(LEVELS, math.ceil(needed / math.prod(levels.values()))), **levels}


def spelled(levels: Mapping[str, int]) -> str:
    """A grid in words: 5 sizes × 3 budgets."""
    return " × ".join(f"{count} {NAMES.get(axis, f'values of {axis}')}" for axis, count in levels.items())
