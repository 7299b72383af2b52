"""Further results of a study: the loss of compute-optimal runs at 10 and 100 times the compute, and the most
informative next run; the loss that short cool-downs cost; the loss that the learning rate or batch of a rung costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scaling.laws.diagnostics import added_variables
from scaling.laws.fit import FittedLaw
from scaling.laws.formula import numeric
from scaling.laws.intervals import LEVEL, Interval, Method, student
from scaling.laws.law import with_compute
from scaling.laws.optimum import Budget, best_run
from scaling.laws.predict import TwoStep, predict_runs
from scaling.laws.problem import least_squares, parameter, prediction

FARTHER = (10.0, 100.0)  # times the compute of the largest fitted run
SIZES, LENGTHS = 25, 25  # candidates for the next run, by parameters and by tokens a parameter
COOLDOWN = "cooldown"  # the column of the steps over which the learning rate of a run fell


def horizon(fit: FittedLaw | TwoStep, method: Method | None = "profile") -> dict[str, Any] | None:
    """The predictions and the next run, as a document; None for a law in other columns than N and D, or C.

    A law in two steps predicts the score of the runs that are best by its loss.
    """
    law = fit.loss if isinstance(fit, TwoStep) else fit
    columns = law.problem.columns
    if law.form.target != "loss" or set(law.form.inputs) not in ({"N", "D"}, {"C"}) or law.degrees_of_freedom < 1:
        return None
    largest = float(with_compute(columns)["C"].max())
    places = [best_run(law, Budget(times * largest)) for times in FARTHER]
    predictions = [
        {"times": times, "C": times * largest, **row, fit.form.target: each.estimate, **each.to_json()}
        for times, row, each in zip(FARTHER, places, predict_runs(fit, places, LEVEL, method), strict=True)
    ]
    return {"largest": largest, "predictions": predictions, "next_run": _next_run(law, places[0], FARTHER[0] * largest)}


@np.errstate(all="ignore")
def _next_run(fit: FittedLaw, place: dict[str, float], most: float) -> dict[str, Any]:
    """The cheapest run up to `most` FLOPs that halves the interval of the mean at a place, or else narrows it most.

    One more run at x lowers the variance g'Vg of the prediction by (g'Vx)²/(1 + x'Vx), the law linearised at its
    optimum (Sherman and Morrison 1950); its noise is that of the others.
    """
    problem, u, columns = fit.problem, fit.u[None], fit.problem.columns
    if "C" in columns:
        candidates = {"C": np.geomspace(columns["C"].min(), most, SIZES * LENGTHS)}
    else:
        N, ratio = columns["N"], columns["D"] / columns["N"]
        sizes = np.geomspace(N.min(), max(place["N"], N.max()), SIZES)
        N, per = np.meshgrid(sizes, np.geomspace(ratio.min(), ratio.max(), LENGTHS))
        candidates = {"N": N.ravel(), "D": (N * per).ravel()}
    cost, rows = with_compute(candidates)["C"], problem.derivative(u, candidates)[0, 1:].T
    jacobian, slope = problem.linearise(u)[1][0], prediction(fit.form, place).along(problem, u)[1][0]
    variance = np.linalg.pinv((jacobian * problem.weights) @ jacobian.T, rcond=1e-13, hermitian=True)
    gain = (rows @ variance @ slope) ** 2 / (1.0 + np.einsum("ij,jk,ik->i", rows, variance, rows))
    possible = (cost <= most * (1 + 1e-9)) & np.isfinite(rows).all(axis=1)
    left = np.where(possible, 1.0 - gain / (slope @ variance @ slope), np.inf)
    # A quarter of the variance is left where an interval is half as wide.
    halving = left <= 0.25
    best = int(np.where(halving, cost, np.inf).argmin() if halving.any() else left.argmin())
    chosen = {name: float(column[best]) for name, column in candidates.items()}
    width = float(np.sqrt(max(left[best], 0.0)))
    return {**chosen, "C": float(cost[best]), "width": width, "halves": bool(halving.any())}


def sentence(document: dict[str, Any]) -> str:
    """The next run in words."""
    run, first = document["next_run"], document["predictions"][0]
    where = f"N = {run['N']:.3g}, D = {run['D']:.3g}, " if "N" in run else ""
    place = f"of the law's mean at {first['times']:g} × the largest compute"
    if run["halves"]:
        return f"The cheapest run that halves the interval {place}: {where}C = {run['C']:.3g}"
    what = f"No single run up to {first['times']:g} × the largest compute halves the interval {place}"
    return f"{what}; {where}C = {run['C']:.3g} leaves {run['width']:.0%} of its width"


def excess_of_short_cooldowns(fit: FittedLaw) -> dict[str, Any] | None:
    """What the shortest cool-down costs, as a fraction of the loss, with a sentence; None where points show none.

    The variable 1/steps is added to the law, linearised at its optimum: an excess c n₀/n of log loss, n₀ the fewest
    steps, has Student's t with a degree of freedom less than the law.
    """
    freedom = fit.degrees_of_freedom - 1
    if COOLDOWN not in fit.points or fit.form.target != "loss" or freedom < 1:
        return None
    steps = numeric(COOLDOWN, fit.points[COOLDOWN])[fit.order]
    least, longest = float(steps.min()), float(steps.max())
    if not least > 0 or least == longest:  # runs of other schedules have none
        return None
    residual, jacobian = fit.linear
    shape = fit.problem.whitened((least / steps)[None, None])[0] * np.sqrt(fit.problem.weights)
    (estimate,), (error,) = added_variables(jacobian, -residual, shape)
    if np.isnan(estimate):
        return None
    estimate, half = float(estimate), student(LEVEL, freedom) * float(error)
    excess = Interval("excess of the shortest cool-down", estimate, estimate - half, estimate + half, LEVEL, "t")
    finding, ends = "these runs do not show how much the shortest loses", f"[{excess.low:.2%}, {excess.high:.2%}]"
    if excess.low > 0:
        finding = (
            f"the shortest costs {estimate:.2%} {ends} of the loss, so short runs are undercooled; raise schedule.decay"
        )
    elif excess.high < 0.1:  # beyond a tenth of the loss nothing is known
        finding = f"no undercooled run is seen; the shortest loses at most {max(excess.high, 0.0):.2%} of its loss"
    sentence = f"cool-downs of {least:,.0f} to {longest:,.0f} steps: {finding}"
    return {**excess.to_json(), "steps": [least, longest], "sentence": sentence}


# What a rung of a ladder loses by its learning rate or batch, from a few runs beside it. In a rung (runs of one N, D)
# log loss is a parabola in x = log(rate / rate of the rung): a + b x + h x²/2, with a and b of each rung and one
# curvature h for all. The best rate is at −b/h, and b²/2h of log loss is left on the table. Near the minimum it is not
# a linear function of b: its interval is where it lies over the ellipse of b and h whose points differ from their
# estimates by no more than Student's t errors.

KNOBS = {"lr": "learning rate", "batch": "batch"}
COLUMNS = {"loss": "loss", "lr": "lr", "batch": "B"}  # of a table of points
PLACE = ("N", "D", "C", "width", "depth", "lr", "B")  # columns of a rung as it was trained


def tuned(fit: FittedLaw, table: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The tuning of a study's rungs by the runs beside them, as a document; `beside` of a row names its rung."""
    names = {row["name"]: row for row in table}
    rows = [row for row in table if row["loss"] is not None and not row["held_out"]]
    rung_of_row = [names.get(row.get("beside"), row) for row in rows]
    columns = {name: np.array([row[name] for row in rung_of_row], float) for name in ("N", "D")}
    columns |= {name: np.array([row[key] for row in rows], float) for name, key in COLUMNS.items()}
    judged = rungs(columns, np.array([not row.get("beside") for row in rows]))
    exponents = {each.name: each for each in effect(fit, judged)} if judged else {}
    return {
        "rungs": [
            {name: rung_of_row[rung["row"]].get(name) for name in PLACE}
            | {"knob": rung["knob"], "used": rung["used"]}
            | {name: rung[name].to_json() for name in ("best", "left")}
            for rung in judged
        ],
        "exponents": {name: change.to_json() for name, change in exponents.items()},
        "sentence": _sentence(judged, exponents),
    }


def best_points(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rungs at their best rate, and at their best batch, as points for a law of these; without the open ones."""
    return [
        {"knob": rung["knob"], **{name: rung[name] for name in PLACE}, COLUMNS[rung["knob"]]: rung["best"]["estimate"]}
        | {end: rung["best"][end] for end in ("low", "high")}
        for rung in document["rungs"]
        if None not in rung["best"].values()
    ]


def _sentence(found: Sequence[Mapping[str, Any]], exponents: Mapping[str, Interval]) -> str:
    if not found:
        return "the runs beside the rungs are too few to tell whether these are tuned"
    lost = sum(rung["left"].low > 0 for rung in found)
    parts = [f"{lost} of {len(found)} learning rates and batches of rungs are seen to be untuned"]
    estimated = [rung for rung in found if math.isfinite(rung["left"].estimate)]
    if estimated:
        worst = max(estimated, key=lambda rung: rung["left"].estimate)
        left, place = worst["left"], f"N = {worst['N']:.3g}, D = {worst['D']:.3g}"
        ends = f"[{left.low:.2%}, {f'{left.high:.2%}' if math.isfinite(left.high) else 'open'}]"
        parts.append(f"the rung of {place} loses {left.estimate:.2%} of its loss {ends} by its {KNOBS[worst['knob']]}")
    if len(estimated) < len(found):
        parts.append(f"{len(found) - len(estimated)} have no best value near those tried")
    closed = {name: each for name, each in exponents.items() if math.isfinite(each.high - each.low)}
    moved = [f"{name} by {each.estimate:+.3f} [{each.low:+.3f}, {each.high:+.3f}]" for name, each in closed.items()]
    return "; ".join([*parts, *([f"tuned rungs would move {', '.join(moved)}"] if lost and moved else [])])


def rungs(columns: Mapping[str, np.ndarray], used: np.ndarray) -> list[dict[str, Any]]:
    """What each rung loses by a knob, its rate or its batch, where runs beside it tell: its `row` in the columns, its N
    and D, the value that is `used`, and the intervals of the `best` one and of the fraction of the loss that is `left`.

    `columns` have N, D, loss and a knob or more; `used` marks the runs of the ladder itself. A knob is judged by the
    runs that differ from a rung's in no other knob. Nothing is said of a knob whose runs leave no degree of freedom.
    """
    knobs, judged = [knob for knob in KNOBS if knob in columns], []
    for knob in knobs:
        groups: dict[tuple[float, ...], list[int]] = {}
        same = ("N", "D", *(other for other in knobs if other != knob))
        for row, key in enumerate(zip(*(columns[name].tolist() for name in same), strict=True)):
            groups.setdefault(key, []).append(row)
        near = [rows for rows in groups.values() if used[rows].any() and len(np.unique(columns[knob][rows])) > 1]
        if not near:
            continue
        firsts = [next(row for row in rows if used[row]) for rows in near]
        rows, base = np.concatenate(near), columns[knob][firsts]
        place = np.repeat(np.arange(len(near)), list(map(len, near)))
        x, y = np.log(columns[knob][rows] / base[place]), np.log(columns["loss"][rows])
        member = np.eye(len(near))[place].T
        design = np.vstack([member, member * x, x**2 / 2])
        freedom = len(y) - len(design)
        if freedom < 1 or np.linalg.matrix_rank(design) < len(design):
            continue
        fit = least_squares(design, y)
        covariance = fit.square / freedom * fit.inverse @ fit.inverse.T
        for index, first in enumerate(firsts):
            places = [len(near) + index, 2 * len(near)]
            best, left = _minimum(fit.step[places], covariance[np.ix_(places, places)], student(LEVEL, freedom))
            with np.errstate(over="ignore"):
                ends = (base[index] * np.exp(best)).tolist(), np.expm1(left).tolist()
            names = f"best {knob}", f"left by {knob}"
            best, left = (Interval(name, at, low, high, LEVEL, "profile") for name, (at, low, high) in zip(names, ends))
            values = {key: float(columns[name][first]) for key, name in (("N", "N"), ("D", "D"), ("used", knob))}
            judged.append({"row": first, "knob": knob, **values, "best": best, "left": left})
    return judged


@np.errstate(divide="ignore", invalid="ignore")
def _minimum(estimate: np.ndarray, covariance: np.ndarray, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Where a parabola of slope and curvature has its minimum, and how far it falls to it: estimate, low and high."""
    slope, curvature = estimate
    angle = np.linspace(0.0, 2.0 * math.pi, 720, endpoint=False)
    vectors = np.linalg.cholesky(covariance + 1e-300 * np.eye(2)) @ np.array([np.cos(angle), np.sin(angle)])
    slopes, curvatures = estimate[:, None] + reach * vectors
    where, falls = -slopes / curvatures, slopes**2 / (2.0 * np.abs(curvatures))
    lowest = 0.0 if slopes.min() <= 0.0 <= slopes.max() else falls.min()
    value, fall = -slope / curvature, slope**2 / (2.0 * curvature)
    if curvature <= 0.0:
        value, fall = math.copysign(math.inf, -slope), math.inf
    if curvatures.min() <= 0.0:  # the runs may lie on a line, which has no minimum
        return np.array([value, -math.inf, math.inf]), np.array([fall, lowest, math.inf])
    return np.array([value, where.min(), where.max()]), np.array([fall, lowest, falls.max()])


@np.errstate(all="ignore")  # what is not finite is open
def effect(fit: FittedLaw, found: Sequence[Mapping[str, Any]]) -> list[Interval]:
    """How much each exponent of the law would change if every rung were tuned, to first order.

    The intervals of what the rungs lose are combined as those of independent estimates. (Zou and Donner 2008,
    Statistics in Medicine 27(10), the method of variance estimates recovery)
    """
    step = np.linalg.pinv(fit.linear[1].T) * np.sqrt(fit.problem.weights)
    N, D = (fit.points.numbers(name)[fit.order] for name in ("N", "D"))
    runs = np.array([(rung["N"] == N) & (rung["D"] == D) for rung in found], float)
    losses = np.log1p([[rung["left"].estimate, rung["left"].low, rung["left"].high] for rung in found])
    changes = []
    for each in fit.form.parameters:
        if each.is_exponent and each.name in fit.problem.free_names:
            slope = parameter(fit.form, each.name).along(fit.problem, fit.u[None])[1][0] @ step  # by a run's log loss
            factors = -(runs @ slope)
            ends = (factors[:, None] * losses)[factors != 0]
            change = float(ends[:, 0].sum())
            reach = np.array([ends[:, 0] - ends[:, 1:].min(1), ends[:, 1:].max(1) - ends[:, 0]])
            below, above = np.linalg.norm(reach, axis=1).tolist()
            # A rung may have no best value near those tried.
            is_known = math.isfinite(change) and math.isfinite(below)
            low, high = (change - below, change + above) if is_known else (-math.inf, math.inf)
            changes.append(Interval(each.name, change, low, high, LEVEL, "recovered"))
    return changes
