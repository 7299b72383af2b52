"""Validate the points of a fit: refuse what cannot determine the law, and bring the rows into a fixed order."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scaling.errors import ScalingError, nearest
from scaling.law.forms import Columns, Form
from scaling.law.objective import Objective
from scaling.law.points import Points
from scaling.law.problem import Problem
from scaling.law.shared_errors import SharedErrors, prior_correlation

MOST_POINTS = 100_000
"""More rows are whole training curves: minutes and gigabytes for a law that one row a run determines."""

LINE = 0.02
"""Points whose columns lie this close to one line in logarithms do not separate the columns."""

RISING = 4.0
"""Standard errors by which the loss rises with every column before it is refused."""


def validated_problem(
    form: Form,
    points: Points,
    objective: Objective,
    weights: np.ndarray | None,
    clusters: str | np.ndarray | None,
    fixed: Mapping[str, float],
    shared: str | np.ndarray | None = None,
) -> tuple[Problem, np.ndarray, np.ndarray | None]:
    """The problem in an order of rows that depends on their contents alone, that order, and the clusters in it."""
    _check_fixed(form, fixed)
    if len(points) > MOST_POINTS:
        raise ScalingError(
            f"{len(points):,} rows are more than the {MOST_POINTS:,} that a fit takes",
            file=points.source or None,
            fix="keep one row a run (--best-by run), or some of them (--where)",
        )
    points.require(form.inputs, len(form.parameters) - len(fixed), form.target)
    columns = {name: points.numbers(name) for name in form.inputs}
    form.check(columns)
    target = points.numbers(form.target)
    if objective.space == "log" and target.min() <= 0:
        raise ScalingError(
            "has no logarithm", key=form.target, value=float(target.min()), fix="fit under the objective squared"
        )
    if target.min() == target.max():
        raise ScalingError(
            "has one value, so there is nothing to explain",
            file=points.source or None,
            key=form.target,
            value=float(target[0]),
            fix="map the column of the final losses: --map loss=COLUMN",
        )
    _refuse_floor(form, fixed, columns, target, points)
    if not fixed and not form.tied:
        _refuse_one_line(form, columns, points)
    _refuse_rising(form, columns, target, points)
    weight = np.ones(len(points)) if weights is None else np.asarray(weights, float)
    if weight.shape != (len(points),) or not np.all(np.isfinite(weight) & (weight > 0)):
        what, fix = "weights are one positive number a point", "leave the other points out by --where 'COLUMN>0'"
        raise ScalingError(what, file=points.source or None, key="weight", value=float(weight.min()), fix=fix)
    weight = weight / weight.mean()
    labels = points[clusters] if isinstance(clusters, str) else clusters
    codes = np.zeros(len(points), int) if labels is None else np.unique(labels, return_inverse=True)[1]
    group = points[shared] if isinstance(shared, str) else shared
    grouped = np.zeros(len(points), int) if group is None else np.unique(group, return_inverse=True)[1].reshape(-1)
    if group is not None and (labels is not None or len(grouped) != len(points)):
        what = (
            "clusters and shared errors are two answers to one question"
            if labels is not None
            else "needs a label a point"
        )
        raise ScalingError(what, key="share", fix="give one of them")
    order = np.lexsort((grouped, codes, weight, target, *(columns[name] for name in reversed(form.inputs))))
    problem = Problem(
        form,
        {name: column[order] for name, column in columns.items()},
        objective.transform(target[order]),
        weight[order],
        objective,
        dict(fixed),
        _shared(grouped[order], len(points)) if group is not None else None,
    )
    return problem, order, None if labels is None else codes[order]


def _shared(groups: np.ndarray, points: int) -> SharedErrors | None:
    """The groups of points that share errors; None where each is alone."""
    return SharedErrors(groups, prior_correlation()) if len(set(groups.tolist())) < points else None


def _check_fixed(form: Form, fixed: Mapping[str, float]) -> None:
    for name, value in fixed.items():
        if name in form.tied:
            raise ScalingError(f"is tied to {form.tied[name]}", key=name, fix=f"fix {form.tied[name]}")
        if name not in form.parameter_names:
            raise ScalingError("is not a parameter of the law", key=name, fix=nearest(name, form.parameter_names))
        limits = form.parameters[form.parameter_names.index(name)]
        if not limits.lower <= value <= limits.upper:
            what = f"is outside its bounds, {limits.lower:g} to {limits.upper:g}"
            raise ScalingError(what, key=name, value=value, fix="fix it within them")
    if len(fixed) == len(form.parameters):
        raise ScalingError("every parameter is fixed, and none is left to fit", key="fix", fix="leave one of them free")


def _refuse_floor(form: Form, fixed: Mapping[str, float], columns: Columns, target: np.ndarray, points: Points) -> None:
    """A floor that is held above what was measured leaves nothing for the other terms, which can only add to it."""
    linear = [index for index, parameter in enumerate(form.parameters) if parameter.linear]
    floors = {
        index: fixed.get(parameter.name, parameter.lower)
        for index, parameter in enumerate(form.parameters)
        if parameter.linear and parameter.scale == "linear" and parameter.name != form.chance  # scores scatter about it
    }
    if not floors or all(value < target.min() for value in floors.values()):
        return
    with np.errstate(all="ignore"):
        theta = form.start(np.random.Generator(np.random.Philox(0)), 1, columns, target)
        terms = form.jacobian(theta, columns)[0][:, linear]
    for index, value in floors.items():
        constant = np.all(terms[:, linear.index(index)] == 1.0)
        if constant and np.all(terms >= 0) and value >= target.min():
            raise ScalingError(
                f"is a floor of the {form.target}, and the lowest {form.target} is {target.min():.4g}",
                file=points.source or None,
                key=form.parameters[index].name,
                value=value,
                fix="hold it below that, or leave it free",
            )


def _logarithms(form: Form, columns: Columns) -> np.ndarray | None:
    """The columns of a run's size, in logarithms and centred, `[points, columns]`."""
    axes = [columns[name] for name in form.axes]
    if any(axis.min() <= 0 for axis in axes):
        return None
    logs = np.log(np.column_stack(axes))
    return logs - logs.mean(0)


def _refuse_one_line(form: Form, columns: Columns, points: Points) -> None:
    """On D = 20 N a term in N and a term in D are one: a fit of the law would have no meaning."""
    logs = _logarithms(form, columns)
    if logs is None or logs.shape[1] < 2:
        return
    _, values, directions = np.linalg.svd(logs, full_matrices=False)
    if values[-1] > LINE * np.sqrt(len(logs)):
        return
    weight = np.abs(directions[-1])
    first, second = (form.axes[index] for index in np.sort(np.argsort(-weight, kind="stable")[:2]))
    slope = np.polyfit(np.log(columns[first]), np.log(columns[second]), 1)[0]
    ratio = float(np.exp(np.mean(np.log(columns[second]) - np.log(columns[first]))))
    line = f"{second} = {ratio:.3g} {first}" if abs(slope - 1) < LINE else f"{second} ∝ {first}^{slope:.2g}"
    raise ScalingError(
        f"all {len(logs)} points lie on {line}: {form.name} is not identified, its terms cannot be distinguished",
        file=points.source or None,
        fix=f"add runs at another {second}/{first}, fit a law in {first} alone, or --fix an exponent",
    )


def _refuse_rising(form: Form, columns: Columns, target: np.ndarray, points: Points) -> None:
    """A law that can only fall, over a loss that rises with every column, is a mistake in the table."""
    logs = _logarithms(form, columns)
    can_rise = any(parameter.scale == "linear" and parameter.lower < 0 for parameter in form.parameters)
    if form.target != "loss" or logs is None or can_rise or target.min() <= 0 or len(logs) <= logs.shape[1] + 2:
        return
    height = np.log(target) - np.log(target).mean()
    slopes, _, rank, _ = np.linalg.lstsq(logs, height, rcond=None)
    if rank < logs.shape[1] or slopes.min() <= 0:
        return
    noise = np.sum((height - logs @ slopes) ** 2) / (len(logs) - logs.shape[1] - 1)
    errors = np.sqrt(noise * np.diag(np.linalg.inv(logs.T @ logs)))
    if np.all(slopes > RISING * errors):
        raise ScalingError(
            f"the loss rises with {' and '.join(form.axes)}, where {form.name} can only fall",
            file=points.source or None,
            key="loss",
            fix="map another column (--map loss=COLUMN), or correct the rows",
        )
