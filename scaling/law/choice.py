"""Choose a law by what it predicts: each candidate is fitted to the smaller runs and judged on the larger ones.

A law that fits best need not extrapolate best. Every candidate, under several weightings, is fitted without the
largest fifth of the runs by cost and by each of its columns, and predicts them; one more test leaves out every fourth
run, because a table of few large runs, as a design makes it, says little without them. The choice is the one with the
lowest error over these tests. Weights in proportion to a power of the cost let the runs near the target count more:
where a law's form is wrong at small runs, these would otherwise decide it (Choshen et al. 2024, arXiv 2410.11840, drop
them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.errors import ScalingError
from scaling.law.fit import Fit, fit
from scaling.law.forms import Form, laws, named
from scaling.law.forms.mixture import MixtureExponential, MixtureJoint
from scaling.law.objective import LogHuber, Objective, Squared
from scaling.law.points import Points

POWERS = (0.0, 0.25, 0.5)
"""Weights are in proportion to these powers of the cost."""
SHARE = 0.2
"""Of the runs, the largest by cost or by one column, that each test leaves out."""
ROWS = 500
"""A test fits at most this many rows."""
STARTS, FINAL_STARTS = 48, 256
FOLDS = 4
"""Of the test `spread`, which leaves out every fourth run in the order of their columns."""
FAILED = 3.0
"""A candidate that cannot be fitted in a test counts as this many times the worst error there."""
SAME_TARGET = frozenset({"C", "M", "S", "width", "depth"})
"""Columns that N and D already hold where a table has both."""


@dataclass(frozen=True)
class Trial:
    """One candidate: a law, an objective and a power of the cost as weight; its error in each test."""

    form: Form
    objective: Objective
    power: float
    errors: Mapping[str, float | None]
    """Root mean square error of the held-out runs, in the target's unit, by test; None where it could not be fitted."""
    score: float
    """Geometric mean over the tests of its error over the lowest error there: 1 is best everywhere."""

    def to_json(self) -> dict[str, Any]:
        return {
            "law": self.form.name,
            "objective_kind": self.objective.name,
            "cost_power": self.power,
            "errors": dict(self.errors),
            "score": self.score,
        }


@dataclass(frozen=True)
class Choice:
    """The candidates in the order of their scores."""

    trials: tuple[Trial, ...]
    rows: Mapping[str, int]
    """How many runs each test held out."""

    @property
    def best(self) -> Trial:
        return self.trials[0]

    def to_json(self) -> dict[str, Any]:
        return {"tests": dict(self.rows), "trials": [trial.to_json() for trial in self.trials]}


def candidates(points: Points, target: str | None = None) -> list[Form]:
    """The laws whose columns the table has, but for those in fewer columns than another that it has.

    The target is the first of `loss`, `loss_u` and the scores that the table has.
    """
    names = set(points.columns)
    if {"N", "D"} <= names:
        names -= SAME_TARGET - _only(points)
    applicable = [form for form in _laws(names) if {*form.inputs, form.target} <= names and _vary(form, points)]
    targets = [target] if target else ["loss", "loss_u", *dict.fromkeys(form.target for form in applicable)]
    first = next((name for name in targets if any(form.target == name for form in applicable)), None)
    chosen = [form for form in applicable if form.target == first]
    if not chosen:
        raise ScalingError(
            f"no law has its columns in the table ({', '.join(points.columns)})",
            file=points.source or None,
            key="law",
            value="auto",
            fix=f"name yours by {points.map_option(('N', 'D', 'loss'))}; `scaling explain law` lists their columns",
        )
    return [form for form in chosen if not any(set(form.inputs) < set(other.inputs) for other in chosen)]


def _only(points: Points) -> set[str]:
    """Of width and depth both, where the table has both and they vary: then a law of the shape is a candidate."""
    both = {"width", "depth"}
    if not both <= set(points.columns):
        return set()
    return both if all(len(np.unique(points[name])) > 2 for name in both) else set()


def _laws(names: set[str]) -> Iterator[Form]:
    domains = 0
    while f"p_{domains + 1}" in names:
        domains += 1
    for form in laws().values():
        if not isinstance(form, MixtureExponential | MixtureJoint):
            yield form
    if domains >= 2:
        yield from (MixtureExponential(domains), MixtureJoint(domains))


def _vary(form: Form, points: Points) -> bool:
    """A law in a column of one value cannot be seen."""
    return all(len(set(points[name].tolist())) > 1 for name in form.inputs)


def cost_of(points: Points) -> np.ndarray | None:
    """The cost of each run: the column `cost`, else C, else N (times K) times D or H, else N; None without any."""
    for name in ("cost", "C"):
        if name in points:
            return points.numbers(name)
    if "N" not in points:
        return None
    cost = points.numbers("N")
    for name in ("K", "D" if "D" in points else "H"):
        cost = cost * points.numbers(name) if name in points else cost
    return cost


def cost_weights(cost: np.ndarray | None, power: float) -> np.ndarray | None:
    """Weights in proportion to cost^power."""
    return None if cost is None or power == 0.0 else (cost / cost.max()) ** power


def objectives_of(form: Form) -> tuple[Objective, ...]:
    """What candidates are fitted under: a penalty that tolerates outliers, in the space of the law's own objective."""
    return (Squared(),) if form.objective in ("squared", "huber", "absolute") else (LogHuber(1e-2),)


def choose(
    points: Points,
    forms: Sequence[Form | str] | None = None,
    *,
    objective: Objective | None = None,
    powers: Sequence[float] | None = None,
    fixed: Mapping[str, float] | None = None,
    seed: int = 0,
) -> Choice:
    """The candidates judged by what they predict for the largest runs, the best first.

    Deterministic: the tests are fixed fractions of the table, and the starts are drawn from `seed`.
    """
    chosen = [named(form) if isinstance(form, str) else form for form in forms or candidates(points)]
    cost = cost_of(points)
    powers = powers if powers is not None else POWERS if cost is not None else (0.0,)
    tests = _tests(points, chosen, cost)
    errors: list[tuple[Form, Objective, float, dict[str, float | None]]] = []
    for form in chosen:
        for kind in (objective,) if objective else objectives_of(form):
            for power in powers:
                own = {
                    name: _error(form, kind, power, points, mask, cost, fixed or {}, seed)
                    for name, mask in tests.items()
                }
                errors.append((form, kind, power, own))
    return Choice(_ranked(errors, list(tests)), {name: int(mask.sum()) for name, mask in tests.items()})


def fit_chosen(
    points: Points, choice: Choice, *, starts: int = FINAL_STARTS, seed: int = 0, clusters: Any = None
) -> Fit:
    """The best candidate fitted to all the points; the next one where it does not converge on these."""
    cost, last = cost_of(points), None
    for trial in choice.trials:
        try:
            return fit(
                trial.form,
                points,
                objective=trial.objective,
                weights=cost_weights(cost, trial.power),
                clusters=clusters,
                starts=starts,
                seed=seed,
            )
        except ScalingError as error:
            last = error
    assert last is not None
    raise last


def choose_again(
    points: Points, *, objective: Objective | None = None, seed: int = 0, clusters: Any = None, shared: Any = None
) -> Callable[[np.ndarray], Fit]:
    """Choose a law without the runs of a mask and fit it to the others, so that a test on them has not been seen."""

    def refit(mask: np.ndarray) -> Fit:
        rest = points.hold_out(mask)[0]
        best = choose(rest, objective=objective, seed=seed).best
        return fit(
            best.form,
            rest,
            objective=best.objective,
            weights=cost_weights(cost_of(rest), best.power),
            clusters=clusters,
            shared=shared,
            starts=FINAL_STARTS,
            seed=seed,
        )

    return refit


def _tests(points: Points, forms: Sequence[Form], cost: np.ndarray | None) -> dict[str, np.ndarray]:
    """Which runs each test leaves out: the largest by cost and by each column, by whole levels."""
    fewest = min(len(form.parameters) for form in forms) + 1
    columns = {} if cost is None else {"cost": cost}
    shared = dict.fromkeys(name for form in forms for name in form.axes if not name.startswith("p_"))
    columns |= {name: points.numbers(name) for name in shared if name not in ("lr", "B")}
    if not columns:  # proportions alone: the mixtures furthest from their mean
        table = np.column_stack([points.numbers(name) for name in forms[0].inputs])
        columns["mixture"] = np.linalg.norm(table - table.mean(0), axis=1)
    tests: dict[str, np.ndarray] = {}
    for name, values in columns.items():
        ordered = np.sort(values)
        mask = values >= ordered[-max(1, round(SHARE * len(values)))] * (1.0 - 1e-9)
        if mask.mean() > 0.5:  # the largest level alone is more than half of the runs
            continue
        if (
            (~mask).sum() >= fewest
            and mask.sum() >= 2
            and not any(np.array_equal(mask, other) for other in tests.values())
        ):
            tests[name] = mask
    order = np.lexsort([points.numbers(name) for name in reversed(forms[0].inputs)])
    every = np.zeros(len(points), bool)
    every[order[1::FOLDS]] = True
    if (~every).sum() >= fewest and every.sum() >= 2:
        tests["spread"] = every
    return tests


def _error(
    form: Form,
    objective: Objective,
    power: float,
    points: Points,
    mask: np.ndarray,
    cost: np.ndarray | None,
    fixed: Mapping[str, float],
    seed: int,
) -> float | None:
    """Root mean square error of the largest runs, in the target's own unit."""
    kept = np.flatnonzero(~mask)
    if len(kept) > ROWS:
        kept = kept[np.linspace(0, len(kept) - 1, ROWS).astype(int)]
    rest = points.take(kept)
    weights = None if cost is None else cost_weights(cost[kept], power)
    try:
        found = fit(form, rest, objective=objective, weights=weights, fixed=fixed, starts=STARTS, seed=seed)
    except ScalingError:
        return None
    predicted = found.predict(**{name: points.numbers(name)[mask] for name in form.inputs})
    error = float(np.sqrt(np.mean((predicted - points.numbers(form.target)[mask]) ** 2)))
    return error if np.isfinite(error) else None


def _ranked(
    errors: Sequence[tuple[Form, Objective, float, dict[str, float | None]]], tests: Sequence[str]
) -> tuple[Trial, ...]:
    """By the geometric mean, over the tests, of the error over the lowest error there; ties keep their order."""
    scores = np.zeros(len(errors))
    for test in tests:
        own = [trial[3][test] for trial in errors]
        known = [error for error in own if error is not None]
        if not known:
            continue
        low, high = max(min(known), 1e-300), max(known)
        scores += [np.log(max(FAILED * high if error is None else error, 1e-300) / low) for error in own]
    scores = np.exp(scores / max(len(tests), 1))
    trials = [Trial(*trial, float(score)) for trial, score in zip(errors, scores, strict=True)]
    return tuple(sorted(trials, key=lambda trial: trial.score))
