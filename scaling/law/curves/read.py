"""Curves of a table: a row a logged loss, with its run, size, step, tokens and learning rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from scaling.errors import ScalingError
from scaling.law.curves.curve import Curve
from scaling.law.points import Points
from scaling.law.read_points import read_points_file

NEEDED = ("run", "N", "step", "tokens", "lr", "loss")
EVALUATIONS = frozenset({"evaluate", "evaluation", "eval", "validation", "1"})


def read_curves(source: str | Path | Points) -> list[Curve]:
    """The curves of a CSV (or TSV, JSON lines, parquet): columns run, N, step, tokens, lr and loss.

    `kind` marks rows as `train` or `evaluation` (all are evaluations without it); `trunk` and `validation` may be
    there. The learning rate between two rows lies on the line between theirs.
    """
    points = source if isinstance(source, Points) else read_points_file(Path(source))
    for name in NEEDED:
        if name not in points:
            what = "a curve without a schedule says nothing of another" if name == "lr" else "a curve needs it"
            place = points.source or None
            raise ScalingError(f"there is no column {name!r}: {what}", file=place, key=name, fix=f"add a column {name}")
    names = np.array([str(name) for name in points["run"]])
    numbers = {name: points.numbers(name) for name in NEEDED if name != "run"}
    if "held_out" in points:
        numbers["held_out"] = points.numbers("held_out")
    words = {name: points.columns.get(name) for name in ("kind", "trunk", "validation")}
    return [_curve(name, names == name, numbers, words, points.source) for name in dict.fromkeys(names.tolist())]


def _curve(name: str, rows: np.ndarray, numbers: dict[str, np.ndarray], words: dict[str, Any], source: str) -> Curve:
    step = np.rint(numbers["step"][rows]).astype(int)
    order = np.argsort(step, kind="stable")
    step, rate = step[order], numbers["lr"][rows][order]
    sizes = set(numbers["N"][rows].tolist())
    if len(sizes) > 1 or step.min() < 1:
        what = "has two sizes" if len(sizes) > 1 else "has a step before the first, which is 1"
        raise ScalingError(what, file=source or None, key="run", value=name, fix="correct its rows")
    per_step = float(np.median(numbers["tokens"][rows][order] / step))
    kind = words["kind"]
    kinds = np.ones(len(step), int)
    if kind is not None:
        kinds = np.array([str(word).strip().casefold() in EVALUATIONS for word in kind[rows][order]]).astype(int)
    rates = np.interp(np.arange(1, step.max() + 1), *_distinct(step, rate))
    labels = {key: "" if values is None else str(values[rows][0]) for key, values in words.items() if key != "kind"}
    held_out = bool(numbers["held_out"][rows][0]) if "held_out" in numbers else False
    return Curve(
        name,
        sizes.pop(),
        step,
        numbers["loss"][rows][order],
        kinds,
        rates,
        per_step,
        labels["trunk"],
        labels["validation"],
        held_out=held_out,
    )


def _distinct(step: np.ndarray, rate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One rate a step, and none at step 0 where a warmup is seen to begin."""
    steps, first = np.unique(step, return_index=True)
    return steps, rate[first]
