"""Diagnostics of a fit: conditioning, what its points do not identify, and reasons not to rely on its intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from scaling.laws.intervals import EXACT, Interval, is_wide
from scaling.laws.law import Columns
from scaling.laws.problem import Problem, SharedErrors

POINTS_A_PARAMETER = 3
FALSE_ALARMS = 0.01  # How often independent errors may show a size that lies off the law


def geometry(jacobian: np.ndarray) -> tuple[float, np.ndarray]:
    """The condition number of a law's derivative `[parameters, points]` by the solver's coordinates, each scaled to
    length one, and the correlation of the estimates in these coordinates.
    """
    length = np.linalg.norm(jacobian, axis=1)
    scaled = jacobian.T / np.where(length > 0, length, 1.0)
    inverse = np.linalg.pinv(scaled, rcond=1e-12)
    covariance = inverse @ inverse.T
    size = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    return float(np.linalg.cond(scaled)), covariance / np.outer(size, size)


def identify(
    problem: Problem, u: np.ndarray, bounds: Mapping[str, Interval], condition: float, correlation: np.ndarray
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the free parameters that are not identified, and a sentence for each."""
    n, p = len(problem.observed), len(problem.free)
    of_all, reasons = [], {}
    if n < POINTS_A_PARAMETER * p:
        of_all.append(f"{n} points are fewer than {POINTS_A_PARAMETER} for each of {p} parameters: none is identified")
    if condition > 1e7:
        of_all.append(f"the parameters nearly replace each other (condition number {condition:.1e})")
    for row, name in enumerate(problem.free_names if bounds else ()):
        interval = bounds[name]
        sides = (interval.open_below, "below"), (interval.open_above, "above")
        where = " and ".join(side for is_open, side in sides if is_open)
        parameter = problem.form.parameters[problem.free[row]]
        # How fast a term falls is known where its interval is no wider than the estimate.
        if parameter.is_exponent and interval.estimate <= parameter.lower + 1e-9:
            what = "its lower bound" if parameter.bounded else "these points show no fall with its column"
            reasons[name] = f"is {interval.estimate:.3g}: {what}"
        elif where:
            # The parameter whose estimate moves most with that of this one.
            strength = np.where(np.arange(p) == row, -1.0, np.abs(correlation[row]))
            partner = problem.free_names[int(strength.argmax())]
            reasons[name] = f"is not separated from {partner} by these points: the interval is open {where}"
        elif parameter.is_exponent and is_wide(interval):
            ends = f"{interval.low:.3g} to {interval.high:.3g}"
            reasons[name] = f"lies anywhere from {ends}: the interval is wider than the estimate"
    sentences = *of_all, *(f"{name} {reason}" for name, reason in reasons.items()), *_unseen(problem, u, bounds)
    return tuple(problem.free_names if of_all else reasons), sentences


def _unseen(problem: Problem, u: np.ndarray, bounds: Mapping[str, Interval]) -> Iterator[str]:
    """A sentence on the part of a sigmoid, between chance and the upper level, that the points do not reach."""
    form, theta = problem.form, problem.theta(u)
    if form.chance is None or form.height is None:
        return
    values, scores = dict(zip(form.parameter_names, theta.tolist())), form.predict(theta, problem.columns)
    lowest, highest = float(scores.min()), float(scores.max())
    columns = [(name, problem.columns[name]) for name in form.axes]
    where = " and ".join(f"{name} from {column.min():.3g} to {column.max():.3g}" for name, column in columns)
    seen = f"over {where} the score moves from {lowest:.3g} to {highest:.3g}"
    scatter = float(np.std(problem.errors(u[None])[0])) * (highest if problem.objective.space == "log" else 1.0)
    chance, height = values[form.chance], bounds.get(form.height)
    # The score moves by four times its scatter before a curve is seen in it.
    if highest - lowest < 4.0 * scatter:
        more = "these runs do not identify the sigmoid; add runs of another loss, or more examples to the score"
        yield f"{seen}, which its scatter of {scatter:.2g} hides: {more}"
    # The upper level is not seen where the height may be half or twice as large.
    elif height is not None and not height.high <= 2.0 * height.low:
        upper = chance + values[form.height]
        way = f"{(highest - chance) / (upper - chance):.0%} of the way from chance ({chance:.3g})"
        more = f"add runs of a lower loss, or hold the upper level ({form.chance} + {form.height})"
        level = f"the fitted upper level ({upper:.3g}): these runs do not show where it levels off"
        yield f"{seen}, {way} to {level}; {more}"


def unreliable(problem: Problem, u: np.ndarray) -> Iterator[str]:
    """A sentence for each reason why the coverage of the intervals may be too low."""
    from scipy.special import fdtri

    residual, columns = problem.scaled(u)[0], problem.columns
    n = len(residual)
    if np.sqrt(np.mean(residual**2)) < EXACT:
        return
    # Do neighbours err alike? Runs of one sign along the prediction, at 1% (Wald and Wolfowitz 1940).
    predicted = problem.objective.transform(problem.form.predict(problem.theta(u), columns))
    signs = residual[np.lexsort((residual, predicted))] > 0
    plus, runs = int(signs.sum()), 1 + int((signs[1:] != signs[:-1]).sum())
    expected = 1 + 2 * plus * (n - plus) / n
    variance = (expected - 1) * (expected - 2) / max(n - 1, 1)
    # Of fewer than 8 points no test has any power. 2.576: two-sided 1% of the normal distribution.
    if n >= 8 and variance > 0 and (expected - runs) / np.sqrt(variance) >= 2.576:
        runs_of_one_sign = f"{runs} runs of one sign where {expected:.0f} are expected"
        yield f"residuals of neighbours share their sign ({runs_of_one_sign}): the form may be wrong"
    # Does the law miss the mean of the seeds by more than seeds scatter? The F test of lack of fit, at 1%.
    noise, freedom = (problem.shared is None and seed_scatter(residual, columns)) or (0.0, 0)
    between = n - freedom - len(u)
    if noise > 0 and between > 0:
        ratio = ((residual**2).sum() - freedom * noise**2) / between / noise**2
        if ratio >= fdtri(between, freedom, 0.99):
            yield f"the law misses by more than seeds scatter (F = {ratio:.1f}): the form may be wrong"
    yield from off_size(problem, u)
    if "N" in columns and (largest := columns["N"].max()) < 1e4:
        what = f"N ends at {largest:.4g}: too few parameters for a language model"
        yield f"{what}; a target's N is in this unit"


def seed_scatter(residual: np.ndarray, columns: Columns) -> tuple[float, int] | None:
    """The standard deviation between runs that differ in their seed alone, and its degrees of freedom."""
    setting = np.unique(np.column_stack(list(columns.values())), axis=0, return_inverse=True)[1].reshape(-1)
    counts = np.bincount(setting)
    freedom = len(residual) - len(counts)
    if freedom < 1:
        return None
    means = np.bincount(setting, residual) / counts
    return float(np.sqrt(((residual - means[setting]) ** 2).sum() / freedom)), freedom


def added_variables(design: np.ndarray, observed: np.ndarray, variables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The coefficient of each of some variables `[variables, points]`, alone next to a law, and its standard error.

    The law is linearised at its optimum: its errors are `observed`, its derivative `[parameters, points]` the design,
    both scaled by the root of the weights. A coefficient has Student's t with n - p - 1 degrees of freedom. It is not a
    number where the law has the variable's shape itself. Cook and Weisberg 1982, Residuals and Influence in Regression,
    sections 2.2 and 2.4.
    """
    basis, singular, _ = np.linalg.svd(design.T, full_matrices=False)
    basis = basis[:, singular > singular[0] * len(observed) * np.finfo(float).eps]
    error = observed - basis @ (basis.T @ observed)
    rest = variables - (variables @ basis) @ basis.T
    length = (rest**2).sum(1)
    # Of a variable that the law's own terms leave less of they have the shape.
    length = np.where(length < 1e-6 * (variables**2).sum(1), np.nan, length)
    estimates = rest @ error / length
    square = np.maximum(error @ error - estimates**2 * length, 0.0) / (len(observed) - len(design) - 1)
    return estimates, np.sqrt(square / length)


def off_size(problem: Problem, u: np.ndarray) -> Iterator[str]:
    """`All 4 points of N = 13,824 lie above the law by 0.0077 to 0.026 nats: the form does not fit this size`

    It is the size whose points are furthest from the law, if independent errors would seldom cause this distance. Each
    size in turn gets a shift of its own next to the law (the mean-shift outlier model of a group), and all sizes of all
    columns share the level (Bonferroni).
    """
    from scipy.special import stdtrit

    form, (residual, jacobian) = problem.form, replace(problem, shared=None).scaled(u)
    sizes: list[tuple[str, np.ndarray]] = []  # of columns of three sizes or more, the rows of those with several points
    for name in form.axes:
        column = problem.columns[name]
        if column.min() > 0:
            order = np.argsort(column, kind="stable")
            # Sizes that differ by less than 1% are one: a grid of real runs does not meet its tokens exactly.
            groups = np.split(order, np.flatnonzero(np.diff(np.log(column[order])) > 0.01) + 1)
            sizes += [(name, rows) for rows in groups if len(groups) > 2 and len(rows) >= 3]
    freedom = len(residual) - len(jacobian) - 1
    if freedom < 1 or not sizes:
        return
    shifts = np.array([np.isin(np.arange(len(residual)), rows) for _, rows in sizes], float)
    estimates, errors = added_variables(jacobian, residual, shifts)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistics = np.nan_to_num(np.abs(estimates) / errors)
    name, rows = sizes[int(np.argmax(statistics))]
    if statistics.max() <= stdtrit(freedom, 1.0 - 0.5 * FALSE_ALARMS / len(sizes)):
        return
    above = (problem.loss - form.predict(problem.theta(u), problem.columns))[rows]
    side, distance = ("above", above) if above.mean() > 0 else ("below", -above)
    unit = "nats" if form.target.startswith("loss") else f"of {form.target}"
    which, reach = "The", f"{distance.mean():.2g} {unit} on average"
    if distance.min() > 0:
        which, reach = "All", f"{distance.min():.2g} to {distance.max():.2g} {unit}"
    size = problem.columns[name][rows[0]]
    value = f"{size:,.0f}" if 1e3 <= size < 1e7 else f"{size:.4g}"
    is_shared = isinstance(problem.shared, SharedErrors) and len(set(problem.shared.groups[rows])) < len(rows)
    or_shared = ", or it is the error that these points share, which the intervals hold" if is_shared else ""
    lie = f"{which} {len(rows)} points of {name} = {value} lie {side} the law by {reach}"
    yield f"{lie}: the form does not fit this size{or_shared}"
