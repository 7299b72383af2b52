"""The parameters and predictions that a plan will identify, before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from scaling.base.errors import ScalingError, plural, refuse
from scaling.laws import Law, expected_interval, named, prediction
from scaling.laws.diagnostics import POINTS_A_PARAMETER
from scaling.laws.problem import PRIOR_CORRELATION, SharedErrors
from scaling.studies.question import Question

LEVELS = 3  # of an axis: a power with a floor has three unknowns along it
DRAWS = 32  # of the parameters, at which the rank of the law's derivative is taken
RANK = 1e-9  # of the largest singular value: what is smaller is rounding
NAMES = {"N": "sizes", "D": "budgets"}


def shortfall(question: Question, fitted: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The points that the runs lack to identify the law; None if none is missing, or without one law for all rows."""
    law = _common_law(question)
    return None if law is None else lacking(law, fitted)


def _common_law(question: Question) -> Law | None:
    """The law of all runs of a study; None where no law is asked for, or one a row."""
    return None if question.law is None or question.compares_rows else named(question.law)


def lacking(law: Law, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The points, repeats of one counted once, that cannot identify the parameters of a law, and the smallest grid that
    does; None where they can. `separable` are the parameters, or combinations of them, that the points separate at all.
    """
    if not rows or any(name not in row for row in rows for name in law.inputs):
        return None
    points = np.unique([[float(row[name]) for name in law.inputs] for row in rows], axis=0)
    parameters, levels = len(law.parameter_names), smallest_grid(law)
    needed = math.prod(levels.values())
    separable = _rank(law, dict(zip(law.inputs, points.T, strict=True)))
    why = f"they separate only {separable}"
    if separable == parameters:
        if len(points) >= POINTS_A_PARAMETER * parameters:
            return None
        why = f"{POINTS_A_PARAMETER} points are needed for each, {needed} in all"
    what = f"{plural(len(points), 'point')} cannot identify the {plural(parameters, 'parameter')} of the law"
    return {
        "points": len(points),
        "parameters": parameters,
        "separable": separable,
        "needed": needed,
        "levels": levels,
        "sentence": f"{what}: {why}; the smallest grid that does is {spelled(levels)}",
    }


def _rank(law: Law, columns: Mapping[str, np.ndarray]) -> int:
    """The rank of the law's derivative at the points, the best over random parameters; full if all overflow."""
    losses = np.linspace(3.0, 2.0, len(columns[law.inputs[0]]))
    ranks = []
    for parameters in law.start(np.random.default_rng(0), DRAWS, columns, losses):
        jacobian = law.jacobian(parameters, columns)
        length = np.linalg.norm(jacobian, axis=0)
        if np.all(np.isfinite(jacobian)) and np.all(length > 0):
            ranks.append(int(np.linalg.matrix_rank(jacobian / length, rtol=RANK)))
    return max(ranks, default=len(law.parameter_names))


def smallest_grid(law: Law) -> dict[str, int]:
    """The values on each axis of the smallest full grid that identifies a law, with the most on its first axis."""
    first, *others = (name for name in law.axes if name != "p_1")  # the proportion that follows from the others
    levels = dict.fromkeys(others, LEVELS)
    needed = POINTS_A_PARAMETER * len(law.parameter_names)
    return {first: max(LEVELS, math.ceil(needed / math.prod(levels.values()))), **levels}


def spelled(levels: Mapping[str, int]) -> str:
    """A grid in words: 5 sizes × 3 budgets."""
    return " × ".join(f"{count} {NAMES.get(axis, f'values of {axis}')}" for axis, count in levels.items())


NOISE = 0.003  # of log loss between seeds, where a study supposes nothing else


class Published(NamedTuple):
    """The estimates of a paper, and the range of the runs that they were fitted to, beyond which they do not apply."""

    estimates: Mapping[str, float]
    ranges: Mapping[str, tuple[float, float]]
    source: str


# What a law is taken to be where neither the study nor a fit of it gives it.
PUBLISHED = {
    "chinchilla": Published(
        {"E": 1.82, "A": 482.0, "B": 2085.0, "alpha": 0.348, "beta": 0.366},
        {"N": (44e6, 16e9), "D": (5e9, 500e9)},  # Hoffmann et al. 2022, abstract and table A9
        "Besiroglu et al. 2024, table 1",
    )
}


def supposed_estimates(law: Law, given: Mapping[str, float], rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The parameters of a law as they are given, and of the others the estimates of a paper whose runs were such."""
    published = PUBLISHED.get(law.name)
    known = {} if published is None or outside(published, rows) else published.estimates
    return {**known, **given}


def predicted_interval(
    question: Question, rows: Sequence[Mapping[str, Any]], fitted: Mapping[str, float], vocabularies: Sequence[int]
) -> dict[str, Any] | None:
    """The interval of the target that these runs are expected to give, were the law as supposed; or the reason why
    there is none.

    `fitted` are the estimates of an earlier fit that identified them all, if there was one; `vocabularies` are those of
    the runs. None where no law is asked for, or one a row.
    """
    law = _common_law(question)
    if law is None or any(name not in row for row in rows for name in law.inputs):
        return None
    used = [row for row in rows if not row["held_out"]]
    target_run = {**max([row for row in rows if row["held_out"]] or rows, key=lambda row: row["C"]), **question.target}
    given = {"noise": NOISE, **fitted, **question.suppose}
    supposed = supposed_estimates(law, given, [*used, target_run])
    # Runs that branch off one trunk share errors, by what is supposed before any residual is seen.
    trunks = [row["trunk"]["run"] if row.get("trunk") else row.get("run", place) for place, row in enumerate(used)]
    groups = np.unique(trunks, return_inverse=True)[1].reshape(-1)
    try:
        _check_supposed(law, supposed, [*used, target_run])
        _check_possible(law, supposed, rows, vocabularies)
        target, shared = prediction(law, target_run), SharedErrors(groups, PRIOR_CORRELATION)
        expected = expected_interval(law, supposed, _columns(law, used), supposed["noise"], target, shared=shared)
    except ScalingError as error:
        return {"reason": error.what}
    return {
        "target": target.name,
        "supposed": {name: supposed[name] for name in law.parameter_names},
        "noise": supposed["noise"],
        "loss": expected.estimate,
        "low": expected.low,
        "high": expected.high,
        "level": expected.level,
    }


def outside(published: Published, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Why published estimates do not apply to these runs."""
    for name, (least, highest) in published.ranges.items():
        values = [row[name] for row in rows]
        if min(values) < least or max(values) > highest:
            spans = f"{name} {min(values):.3g} to {max(values):.3g}, outside {least:.3g} to {highest:.3g}"
            return f"the published constants ({published.source}) were not fitted to such runs: {spans}"
    return None


def _check_supposed(law: Law, supposed: Mapping[str, float], rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a law of which some parameters are not known."""
    absent = [name for name in law.parameter_names if name not in supposed]
    reason = outside(PUBLISHED[law.name], rows) if law.name in PUBLISHED else f"nothing is known of {', '.join(absent)}"
    refuse(absent, f"{reason}; write suppose: into the study")


def _check_possible(
    law: Law, supposed: Mapping[str, float], rows: Sequence[Mapping[str, Any]], vocabularies: Sequence[int]
) -> None:
    """Refuse losses that no run has: a model that has learned nothing has a loss of ln V, and none is below zero."""
    if law.target != "loss":
        return
    theta = np.array([supposed[name] for name in law.parameter_names], float)
    for row, loss, size in zip(rows, law.predict(theta, _columns(law, rows)), vocabularies, strict=True):
        place = ", ".join(f"{name} {row[name]:.3g}" for name in law.inputs)
        limit = f"above ln V = {np.log(size):.3f}, the loss of a model that has learned nothing"
        what = f"a loss of {loss:.4g} at {place}, {limit if loss > 0 else 'which no loss is'}"
        refuse(not 0 < loss <= np.log(size), f"the law as supposed is impossible: {what}; correct suppose:")


def _columns(law: Law, rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    return {name: np.array([row[name] for row in rows], float) for name in law.inputs}
