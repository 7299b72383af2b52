"""The interval that a study's design is expected to give, and a better grid for the same compute where there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.errors import ScalingError
from scaling.laws import Law, Quantity, design, expected_interval, named, prediction
from scaling.laws.problem import SharedErrors, prior_correlation
from scaling.studies.question import Question

NOISE = 0.003  # of log loss between seeds, where a study supposes nothing else
BUDGETS = 8  # of each size, among which a better grid is looked for
BETTER = 0.95  # of the expected width, from which on another grid is worth telling


@dataclass(frozen=True)
class Published:
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


def predicted_interval(
    question: Question, rows: Sequence[Mapping[str, Any]], fitted: Mapping[str, float], vocabularies: Sequence[int]
) -> dict[str, Any] | None:
    """The interval of the target that these runs are expected to give, were the law as supposed; or the reason why
    there is none.

    `fitted` are the estimates of an earlier fit that identified them all, if there was one; `vocabularies` are those of
    the runs. None where no law is asked for, or one a row.
    """
    if question.law is None or question.compares_rows:
        return None
    law = named(question.law)
    if any(name not in row for row in rows for name in law.inputs):
        return None
    used = [row for row in rows if not row["held_out"]]
    target_run = {**max([row for row in rows if row["held_out"]] or rows, key=lambda row: row["C"]), **question.target}
    published = PUBLISHED.get(question.law)
    supposed = {**fitted, **question.suppose}
    noise = supposed.pop("noise", NOISE)
    if any(name not in supposed for name in law.parameter_names) and published is not None:
        beyond = outside(published, [*used, target_run])
        if beyond is not None:
            return {"reason": f"{beyond}; write suppose: into the study"}
        supposed = {**published.estimates, **supposed}
    if absent := [name for name in law.parameter_names if name not in supposed]:
        return {"reason": f"nothing is known of {', '.join(absent)}; write suppose: into the study"}
    impossible = _impossible(law, supposed, rows, vocabularies)
    if impossible is not None:
        return {"reason": impossible}
    target = prediction(law, target_run)
    columns = {name: np.array([row[name] for row in used], float) for name in law.inputs}
    try:
        expected = expected_interval(law, supposed, columns, noise, target, shared=_trunks(used))
    except ScalingError as error:
        return {"reason": error.what}
    document: dict[str, Any] = {
        "target": target.name,
        "supposed": {name: supposed[name] for name in law.parameter_names},
        "noise": noise,
        "loss": expected.estimate,
        "low": expected.low,
        "high": expected.high,
        "level": expected.level,
    }
    better = _better(law, supposed, used, noise, target)
    if better is not None and np.log(better["high"] / better["low"]) < BETTER * np.log(expected.high / expected.low):
        document["better"] = better
    return document


def _trunks(rows: Sequence[Mapping[str, Any]]) -> SharedErrors | None:
    """The runs that branch off one trunk share errors, by what is supposed before any residual is seen."""
    names = [row["trunk"]["run"] if row.get("trunk") else row.get("run", place) for place, row in enumerate(rows)]
    if len(set(names)) == len(names):
        return None
    return SharedErrors(np.unique(names, return_inverse=True)[1].reshape(-1), prior_correlation())


def outside(published: Published, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Why published estimates do not apply to these runs."""
    for name, (least, most) in published.ranges.items():
        values = [row[name] for row in rows]
        if min(values) < least or max(values) > most:
            spans = f"{name} {min(values):.3g} to {max(values):.3g}, outside {least:.3g} to {most:.3g}"
            return f"the published constants ({published.source}) were not fitted to such runs: {spans}"
    return None


def _impossible(
    law: Law, supposed: Mapping[str, float], rows: Sequence[Mapping[str, Any]], vocabularies: Sequence[int]
) -> str | None:
    """Why no law is as supposed: a model that has learned nothing has a loss of ln V, and none is below zero."""
    if law.target != "loss":
        return None
    theta = np.array([supposed[name] for name in law.parameter_names], float)
    losses = law.predict(theta, {name: np.array([row[name] for row in rows], float) for name in law.inputs})
    for row, loss, size in zip(rows, losses, vocabularies, strict=True):
        if not 0 < loss <= np.log(size):
            place = ", ".join(f"{name} {row[name]:.3g}" for name in law.inputs)
            limit = f"above ln V = {np.log(size):.3f}, the loss of a model that has learned nothing"
            where = limit if loss > 0 else "which no loss is"
            return f"the law as supposed is impossible: a loss of {loss:.4g} at {place}, {where}; correct suppose:"
    return None


def _better(
    law: Law, truth: Mapping[str, float], used: Sequence[Mapping[str, Any]], noise: float, target: Quantity
) -> dict[str, Any] | None:
    """The best grid that costs no more: the same sizes, at budgets between the least and the most."""
    if set(law.inputs) != {"N", "D"}:
        return None
    sizes = {row["N"]: row["C"] / row["D"] for row in used}
    budgets = np.geomspace(min(row["D"] for row in used), max(row["D"] for row in used), BUDGETS)
    models, tokens = (axis.ravel() for axis in np.meshgrid(list(sizes), budgets))
    cost = np.array([sizes[model] for model in models]) * tokens
    budget = sum(row["C"] for row in used)
    try:
        chosen = design(law, truth, {"N": models, "D": tokens}, cost, budget, noise, target)
    except ScalingError:
        return None
    grid: dict[int, list[int]] = {}
    for place in sorted(np.flatnonzero(chosen.repeats), key=lambda place: (models[place], tokens[place])):
        grid.setdefault(int(models[place]), []).append(round(tokens[place]))
    return {
        "runs": int(chosen.repeats.sum()),
        "C": chosen.cost,
        "low": chosen.expected.low,
        "high": chosen.expected.high,
        "grid": [{"N": size, "D": tokens} for size, tokens in grid.items()],
        "tokens_by_size": grid,  # deprecated: numbers as keys
    }
