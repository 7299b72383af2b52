"""Choose which of many candidate runs to pay for, one batch after another, so that a law predicts given rows best.

The first runs are spread over the columns for little cost. Then the law is fitted to what is known, and runs are added
in the order of how much they lower the mean variance of the law at the targets for their cost (I-optimality; Fedorov
1972, Theory of Optimal Experiments); the law is fitted again after each batch. Deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from scaling.errors import ScalingError
from scaling.law.choice import objectives_of
from scaling.law.fit import fit
from scaling.law.forms import Columns, Form
from scaling.law.points import Points

PILOT = 0.3
"""Of the budget, for runs that are spread before anything is known."""
BATCHES = 4
STARTS = 48
KNOWN = 1e-3
"""Of the mean information of a candidate, what is supposed to be known beforehand."""


def choose_runs(
    forms: Sequence[Form],
    table: Columns,
    observe: Callable[[np.ndarray], np.ndarray],
    cost: np.ndarray,
    budget: float,
    targets: Columns,
    *,
    seed: int = 0,
) -> np.ndarray:
    """Rows of `table` to run within `budget`; `observe(rows)` runs them. `targets` are the rows to predict.

    The batches take turns in the laws, so that the runs inform each of them.
    """
    if cost.min() <= 0:
        raise ScalingError("must be positive", key="cost", value=float(cost.min()), fix="give each run its cost")
    chosen = _spread(table, cost, PILOT * budget, budget, max(len(form.parameters) for form in forms) + 3)
    losses = observe(chosen)
    for batch in range(BATCHES):
        form = forms[batch % len(forms)]
        spent = cost[chosen].sum()
        allowed = (budget - spent) / (BATCHES - batch)
        more = _informative(form, table, losses, chosen, cost, allowed, targets, seed)
        if len(more):
            losses, chosen = np.concatenate([losses, observe(more)]), np.concatenate([chosen, more])
    return chosen


def features(table: Columns) -> np.ndarray:
    """A quadratic surface in the logarithms of the columns, each scaled to [-1, 1]."""
    logs = []
    for column in table.values():
        values = np.log(column) if column.min() > 0 else column
        span = np.ptp(values)
        logs.append((values - values.min()) / span * 2.0 - 1.0 if span > 0 else np.zeros_like(values))
    plain = [np.ones(len(logs[0])), *logs]
    return np.column_stack([*plain, *(value**2 for value in logs)])


def _spread(table: Columns, cost: np.ndarray, part: float, budget: float, fewest: int) -> np.ndarray:
    """Runs spread over the columns, those first that add most for their cost; at least `fewest` where they fit."""
    rows = features({name: np.asarray(column, float) for name, column in table.items()})
    return _greedy(rows, np.zeros((0, rows.shape[1])), rows, cost, part, budget, fewest)


def _informative(
    form: Form,
    table: Columns,
    losses: np.ndarray,
    chosen: np.ndarray,
    cost: np.ndarray,
    allowed: float,
    targets: Columns,
    seed: int,
) -> np.ndarray:
    """The runs that narrow this law's predictions of the targets most for their cost."""
    known = Points({name: np.asarray(table[name])[chosen] for name in form.inputs} | {form.target: losses})
    try:
        found = fit(form, known, objective=objectives_of(form)[0], starts=STARTS, seed=seed)
    except ScalingError:
        left = np.setdiff1d(np.arange(len(cost)), chosen)
        rest = _spread(
            {name: np.asarray(column)[left] for name, column in table.items()}, cost[left], allowed, allowed, 1
        )
        return left[rest]
    theta, seeds = found.problem.coordinates.expand(found.u[None])

    def slopes(columns: Columns) -> np.ndarray:
        inputs = {name: np.asarray(columns[name], float) for name in form.inputs}
        dual = form.evaluate(theta, inputs, seeds)
        slope = np.zeros((len(next(iter(inputs.values()))), len(found.u)))
        for index, part in dual.gradient.items():
            slope[:, index] = np.broadcast_to(part, (1, len(slope)))[0]
        return slope

    rows, wanted = slopes(table), slopes(targets)
    left = np.setdiff1d(np.arange(len(cost)), chosen)
    picked = _greedy(rows[left], rows[chosen], wanted, cost[left], allowed, allowed, 0)
    return left[picked]


def _greedy(
    rows: np.ndarray,
    before: np.ndarray,
    wanted: np.ndarray,
    cost: np.ndarray,
    part: float,
    budget: float,
    fewest: int,
) -> np.ndarray:
    """Rows that lower the mean variance of `wanted` most for their cost, until `part` is spent."""
    size = np.sqrt(np.mean(rows**2, axis=0))
    scale = np.where(size > 0, size, 1.0)
    rows, before, wanted = rows / scale, before / scale, wanted / scale
    variance = np.linalg.inv(before.T @ before + KNOWN * np.eye(rows.shape[1]))
    chosen: list[int] = []
    open_rows = np.ones(len(rows), bool)
    spent = 0.0
    while True:
        limit = part if len(chosen) >= fewest else budget
        affordable = open_rows & (cost <= limit - spent)
        if not affordable.any():
            return np.array(chosen, int)
        reach = rows @ variance
        gain = np.mean((reach @ wanted.T) ** 2, axis=1) / (1.0 + np.einsum("ij,ij->i", reach, rows))
        pick = int(np.where(affordable, gain / cost, -1.0).argmax())
        step = reach[pick]
        variance = variance - np.outer(step, step) / (1.0 + float(step @ rows[pick]))
        open_rows[pick] = False
        spent += float(cost[pick])
        chosen.append(pick)
