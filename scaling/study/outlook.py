"""Outlook: what interval a study's design will give, and a better grid for the same compute where there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scaling.errors import ScalingError
from scaling.law import Form, Quantity, design, expected_interval, named, prediction
from scaling.study.question import Question

NOISE = 0.003  # of log loss between seeds, where a study supposes nothing else
BUDGETS = 8  # of each size, among which a better grid is looked for
BETTER = 0.95  # of the expected width, from which on another grid is worth telling

# What a law is taken to be where neither the study nor a fit of it says: Besiroglu et al. 2024, table 1.
SUPPOSED = {"chinchilla": {"E": 1.82, "A": 482.0, "B": 2085.0, "alpha": 0.348, "beta": 0.366}}


def outlook(
    question: Question, rows: Sequence[Mapping[str, Any]], fitted: Mapping[str, float]
) -> dict[str, Any] | None:
    """The interval of the target that these runs are expected to give, were the law as supposed.

    `fitted` are the estimates of an earlier fit, if there was one. None where no law is asked for, or one a row, or
    nothing is known to suppose of it.
    """
    told = {**SUPPOSED.get(question.law or "", {}), **fitted, **question.suppose}
    noise = told.pop("noise", NOISE)
    if question.law is None or question.compares_rows or not told:
        return None
    law = named(question.law)
    used = [row for row in rows if not row["held_out"]]
    if any(name not in told for name in law.parameter_names) or any(name not in rows[0] for name in law.inputs):
        return None
    target = _target(law, question, rows)
    columns = {name: np.array([row[name] for row in used], float) for name in law.inputs}
    try:
        expected = expected_interval(law, told, columns, noise, target)
    except ScalingError as error:
        return {"reason": error.what}
    found: dict[str, Any] = {
        "target": target.name,
        "supposed": {name: told[name] for name in law.parameter_names},
        "noise": noise,
        "loss": expected.truth,
        "low": expected.low,
        "high": expected.high,
        "level": expected.level,
    }
    better = _better(law, told, used, noise, target)
    if better is not None and np.log(better["high"] / better["low"]) < BETTER * np.log(expected.width):
        found["better"] = better
    return found


def _target(law: Form, question: Question, rows: Sequence[Mapping[str, Any]]) -> Quantity:
    """What is to be predicted: as said, else the dearest run that is held out, else the dearest of all."""
    held = [row for row in rows if row["held_out"]] or rows
    return prediction(law, {**max(held, key=lambda row: row["C"]), **question.target})


def _better(
    law: Form, truth: Mapping[str, float], used: Sequence[Mapping[str, Any]], noise: float, target: Quantity
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
        "tokens_by_size": grid,
    }
