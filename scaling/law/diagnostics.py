"""Diagnostics of a fit: conditioning, leverage, parameters that are not identified, reasons not to rely on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from scaling.law.identification import is_exponent, is_wide
from scaling.law.likelihood import EXACT, Ends
from scaling.law.problem import Problem
from scaling.law.residual_tests import alike_neighbours, few_clusters, lack_of_fit, off_size, unequal_errors
from scaling.law.shared_errors import SharedErrors

POINTS_A_PARAMETER = 3
WORST_CONDITION = 1e7
MOVES = 4.0
"""Times its scatter that a score moves over the points before a curve is seen in it."""
WIDE = 2.0
"""Upper over lower end of the interval of a sigmoid's height from which its upper level counts as not seen."""


@dataclass(frozen=True)
class Diagnostics:
    """The geometry of the law and its points at the optimum."""

    condition_number: float
    """Of the Jacobian by the solver's coordinates, its columns scaled to length one."""
    leverage: np.ndarray
    residual_scale: float
    correlation: np.ndarray
    """Of the estimates, in the solver's coordinates."""


def diagnose(problem: Problem, u: np.ndarray) -> Diagnostics:
    """Conditioning, leverage, scale of the residuals and correlation of the estimates."""
    residual, jacobian = problem.linearise(u[None])
    rows = jacobian[0].T * np.sqrt(problem.weights)[:, None]
    length = np.linalg.norm(rows, axis=0)
    length = np.where(length > 0, length, 1.0)
    left, values, right = np.linalg.svd(rows / length, full_matrices=False)
    condition = float(values[0] / values[-1]) if values[-1] > 0 else float("inf")
    nonzero = values > values[0] * 1e-12
    leverage = (left[:, nonzero] ** 2).sum(1)
    covariance = (right[nonzero].T / values[nonzero] ** 2) @ right[nonzero]
    size = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    freedom = max(len(problem.observed) - len(u), 1)
    scale = float(np.sqrt(np.sum(problem.weights * residual[0] ** 2) / freedom))
    return Diagnostics(condition, leverage, scale, covariance / np.outer(size, size))


def not_identified(
    problem: Problem, u: np.ndarray, bounds: Mapping[str, Ends], diagnostics: Diagnostics
) -> tuple[str, ...]:
    """A sentence for each parameter that the points do not identify, by the intervals of the free parameters."""
    n, p = len(problem.observed), len(problem.free)
    theta = dict(zip(problem.form.parameter_names, map(float, problem.theta(u)), strict=True))
    sentences = []
    if n < POINTS_A_PARAMETER * p:
        sentences.append(
            f"{n} points are fewer than {POINTS_A_PARAMETER} for each of {p} parameters: none is identified"
        )
    if diagnostics.condition_number > WORST_CONDITION:
        sentences.append(
            f"the parameters nearly replace each other (condition number {diagnostics.condition_number:.1e})"
        )
    for row, (name, ends) in enumerate(bounds.items()):
        where = [word for word, is_open in (("below", ends.open_below), ("above", ends.open_above)) if is_open]
        if where:
            partner = _partner(problem, row, diagnostics)
            sentences.append(
                f"{name} is not separated from {partner} by these points: the interval is open {' and '.join(where)}"
            )
        elif _is_wide(problem, name, theta[name], ends):
            sentences.append(
                f"{name} lies anywhere from {ends.low:.3g} to {ends.high:.3g}: the interval is wider than the estimate"
            )
    return (*sentences, *_unseen_of_a_sigmoid(problem, u, bounds, diagnostics))


def unidentified(
    problem: Problem, u: np.ndarray, bounds: Mapping[str, Ends], diagnostics: Diagnostics
) -> tuple[str, ...]:
    """The names of the free parameters whose estimate is no answer."""
    names = [problem.form.parameter_names[index] for index in problem.free]
    few = len(problem.observed) < POINTS_A_PARAMETER * len(problem.free)
    if few or diagnostics.condition_number > WORST_CONDITION:
        return tuple(names)
    theta = dict(zip(problem.form.parameter_names, map(float, problem.theta(u)), strict=True))
    return tuple(
        name
        for name, ends in bounds.items()
        if ends.open_below or ends.open_above or _is_wide(problem, name, theta[name], ends)
    )


def _is_wide(problem: Problem, name: str, estimate: float, ends: Ends) -> bool:
    """Whether a closed interval is too wide (`identification`)."""
    parameter = problem.form.parameters[problem.form.parameter_names.index(name)]
    return is_exponent(parameter) and is_wide(estimate, ends.low, ends.high)


def _unseen_of_a_sigmoid(
    problem: Problem, u: np.ndarray, bounds: Mapping[str, Ends], diagnostics: Diagnostics
) -> list[str]:
    """What of the curve between chance and the upper level the points do not reach, in plain words."""
    form = problem.form
    if form.chance is None or form.height is None:
        return []
    values = dict(zip(form.parameter_names, map(float, problem.theta(u)), strict=True))
    scores = form.predict(problem.theta(u), problem.columns)
    lowest, highest, where = float(scores.min()), float(scores.max()), _range(problem)
    scatter = float(np.std(problem.errors(u[None])[0])) * (highest if problem.objective.space == "log" else 1.0)
    chance, upper = values[form.chance], values[form.chance] + values[form.height]
    if highest - lowest < MOVES * scatter:
        return [
            f"over {where} the score moves from {lowest:.3g} to {highest:.3g}, which its scatter of {scatter:.2g} "
            "hides: these runs do not identify the sigmoid; add runs of another loss, or more examples to the score"
        ]
    ends = bounds.get(form.height)
    if ends is None or not (ends.open_below or ends.open_above or ends.high - ends.low > np.log(WIDE)):
        return []
    reached = (highest - chance) / (upper - chance)
    return [
        f"over {where} the score moves from {lowest:.3g} to {highest:.3g}, {reached:.0%} of the way from chance "
        f"({chance:.3g}) to the fitted upper level ({upper:.3g}): these runs do not show where it levels off; add runs "
        f"of a lower loss, or hold the upper level ({form.chance} + {form.height})"
    ]


def _range(problem: Problem) -> str:
    """`losses from 2.66 to 3.75`, or the same of each column."""
    columns = [(name, problem.columns[name]) for name in problem.form.axes]
    return " and ".join(f"{name} from {column.min():.3g} to {column.max():.3g}" for name, column in columns)


def _partner(problem: Problem, row: int, diagnostics: Diagnostics) -> str:
    """The parameter whose estimate moves most with that of `row`."""
    strength = np.abs(diagnostics.correlation[row]).copy()
    strength[row] = -1.0
    return problem.form.parameter_names[problem.free[int(strength.argmax())]]


def unreliable(problem: Problem, u: np.ndarray, clusters: np.ndarray | None) -> tuple[str, ...]:
    """A sentence for each reason why the intervals may not cover what they claim."""
    predicted = problem.objective.transform(problem.form.predict(problem.theta(u), problem.columns))
    residual = problem.residuals(u[None])[0] * np.sqrt(problem.weights)
    if np.sqrt(np.mean(residual**2)) < EXACT:
        return ()
    reasons = [
        unequal_errors(residual, predicted),
        alike_neighbours(residual, predicted),
        lack_of_fit(residual, problem.columns, len(u)) if problem.shared is None else None,
    ]
    if clusters is not None:
        reasons.append(few_clusters(clusters))
    else:
        reasons.append(_off_size(problem, u))
    return tuple(reason for reason in reasons if reason)


def _off_size(problem: Problem, u: np.ndarray) -> str | None:
    """`All 4 points of N = 13,824 lie above the law by 0.0077 to 0.026 nats: the form does not fit this size`."""
    form, root = problem.form, np.sqrt(problem.weights)
    residual, jacobian = replace(problem, shared=None).linearise(u[None])
    axes = {name: problem.columns[name] for name in form.axes}
    found = off_size(residual[0] * root, jacobian[0] * root, axes)
    if found is None:
        return None
    observed = np.exp(problem.observed) if problem.objective.space == "log" else problem.observed
    above = (observed - form.predict(problem.theta(u), problem.columns))[found.rows]
    value = f"{found.value:,.0f}" if 1e3 <= found.value < 1e7 else f"{found.value:.4g}"
    points = f"{len(above)} points of {found.column} = {value} lie"
    side, distance = ("above", above) if above.mean() > 0 else ("below", -above)
    unit = "nats" if form.target.startswith("loss") else f"of {form.target}"
    lie = f"The {points} {side} the law by {distance.mean():.2g} {unit} on average"
    if distance.min() > 0:
        lie = f"All {points} {side} the law by {distance.min():.2g} to {distance.max():.2g} {unit}"
    groups = problem.shared.groups[found.rows] if isinstance(problem.shared, SharedErrors) else found.rows
    share = len(set(groups.tolist())) < len(groups)
    or_shared = ", or it is the error that these points share, which the intervals hold" if share else ""
    return f"{lie}: the form does not fit this size{or_shared}"
