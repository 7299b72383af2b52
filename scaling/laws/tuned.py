"""Tuned: what a rung of a ladder loses by its learning rate or batch, from a few runs beside it.

In a rung, runs of one N and D, log loss is a parabola in x = log(rate / rate of the rung): a + b x + h x²/2, with a and
b of each rung and one curvature h for all. The best rate is at −b/h, and b²/2h of log loss is left on the table. Near
the minimum that is no linear function of b: its interval is where it lies over the ellipse of b and h whose points
differ from their estimates by no more than Student's t errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.laws.fit import FittedLaw
from scaling.laws.intervals import Interval, student
from scaling.laws.problem import least_squares, parameter

KNOBS = {"lr": "learning rate", "batch": "batch"}
COLUMNS = {"loss": "loss", "lr": "lr", "batch": "B"}  # of a table of points
PLACE = ("N", "D", "C", "width", "depth", "lr", "B")  # columns of a rung as it was trained


@dataclass(frozen=True)
class Rung:
    """What a rung loses by one knob: `left` is a fraction of its loss, `best` the knob's best value, `row` its place in
    the columns.
    """

    row: int
    knob: str
    N: float
    D: float
    used: float
    best: Interval
    left: Interval


def tuned(fit: FittedLaw, table: Sequence[Mapping[str, Any]], level: float = 0.95) -> dict[str, Any]:
    """What the runs beside those of a study tell of its rungs, as a document; `beside` of a row names its rung."""
    names = {row["name"]: row for row in table}
    rows = [row for row in table if row["loss"] is not None and not row["held_out"]]
    own = [names.get(row.get("beside"), row) for row in rows]
    columns = {name: np.array([row[name] for row in own], float) for name in ("N", "D")}
    columns |= {name: np.array([row[key] for row in rows], float) for name, key in COLUMNS.items()}
    found = rungs(columns, np.array([not row.get("beside") for row in rows]), level)
    exponents = {each.name: each for each in effect(fit, found, level)} if found else {}
    return {
        "rungs": [
            {name: own[rung.row].get(name) for name in PLACE}
            | {"knob": rung.knob, "used": rung.used, "best": rung.best.to_json(), "left": rung.left.to_json()}
            for rung in found
        ],
        "exponents": {name: change.to_json() for name, change in exponents.items()},
        "sentence": _sentence(found, exponents),
    }


def best_points(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rungs at their best rate, and at their best batch, as points for a law of these; without the open ones."""
    return [
        {"knob": rung["knob"], **{name: rung[name] for name in PLACE}, COLUMNS[rung["knob"]]: rung["best"]["estimate"]}
        | {end: rung["best"][end] for end in ("low", "high")}
        for rung in document["rungs"]
        if None not in rung["best"].values()
    ]


def _sentence(found: Sequence[Rung], exponents: Mapping[str, Interval]) -> str:
    if not found:
        return "the runs beside the rungs are too few to tell whether these are tuned"
    lost = sum(rung.left.low > 0 for rung in found)
    sentence = f"{lost} of {len(found)} learning rates and batches of rungs are seen to be untuned"
    known = [rung for rung in found if math.isfinite(rung.left.estimate)]
    if known:
        worst = max(known, key=lambda rung: rung.left.estimate)
        high = f"{worst.left.high:.2%}" if math.isfinite(worst.left.high) else "open"
        sentence += f"; the rung of N = {worst.N:.3g}, D = {worst.D:.3g} loses {worst.left.estimate:.2%} of its loss"
        sentence += f" [{worst.left.low:.2%}, {high}] by its {KNOBS[worst.knob]}"
    if open_ones := len(found) - len(known):
        sentence += f"; {open_ones} have no best value near those tried"
    closed = {name: each for name, each in exponents.items() if math.isfinite(each.low) and math.isfinite(each.high)}
    moved = [f"{name} by {each.estimate:+.3f} [{each.low:+.3f}, {each.high:+.3f}]" for name, each in closed.items()]
    return sentence + (f"; tuned rungs would move {', '.join(moved)}" if lost and moved else "")


def rungs(columns: Mapping[str, np.ndarray], used: np.ndarray, level: float = 0.95) -> list[Rung]:
    """What each rung loses by its rate and its batch, where runs beside it tell.

    `columns` have N, D, loss and a knob or more; `used` marks the runs of the ladder itself. A knob is judged by the
    runs that differ from a rung's in no other knob. Nothing is said of a knob whose runs leave no degree of freedom.
    """
    knobs, found = [knob for knob in KNOBS if knob in columns], []
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
            own = [len(near) + index, 2 * len(near)]
            best, left = _minimum(fit.step[own], covariance[np.ix_(own, own)], student(level, freedom))
            with np.errstate(over="ignore"):
                ends = (base[index] * np.exp(best)).tolist(), np.expm1(left).tolist()
            names = f"best {knob}", f"left by {knob}"
            both = (Interval(name, at, low, high, level, "profile") for name, (at, low, high) in zip(names, ends))
            size, data, own_value = (float(columns[name][first]) for name in ("N", "D", knob))
            found.append(Rung(first, knob, size, data, own_value, *both))
    return found


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
def effect(fit: FittedLaw, found: Sequence[Rung], level: float = 0.95) -> list[Interval]:
    """How much each exponent of the law would change if every rung were tuned, to first order.

    The intervals of what the rungs lose are combined as those of independent estimates. (Zou and Donner 2008,
    Statistics in Medicine 27(10), the method of variance estimates recovery)
    """
    step = np.linalg.pinv(fit.linear[1].T) * np.sqrt(fit.problem.weights)
    N, D = (fit.points.numbers(name)[fit.order] for name in ("N", "D"))
    runs = np.array([(N == rung.N) & (D == rung.D) for rung in found], float)
    losses = np.log1p([[rung.left.estimate, rung.left.low, rung.left.high] for rung in found])
    changes = []
    for each in fit.form.parameters:
        if each.is_exponent and each.name in fit.problem.free_names:
            slope = parameter(fit.form, each.name).along(fit.problem, fit.u[None])[1][0] @ step  # by a run's log loss
            factors = -(runs @ slope)
            ends = (factors[:, None] * losses)[factors != 0]
            change = float(ends[:, 0].sum())
            reach = np.array([ends[:, 0] - ends[:, 1:].min(1), ends[:, 1:].max(1) - ends[:, 0]])
            below, above = np.linalg.norm(reach, axis=1).tolist()
            if not math.isfinite(change):  # a rung without a best value near those tried
                below = above = math.inf
            low, high = (change - below, change + above) if math.isfinite(below) else (-math.inf, math.inf)
            changes.append(Interval(each.name, change, low, high, level, "recovered"))
    return changes
