"""The next run of an adaptive study: its goal, what the finished runs show of it, what to train next, when to stop.

A goal is what a study is to bound, and how narrowly: `E ± 0.01`, `loss at C=1e15 ± 0.5%`. Each law in competition is
linearised where it was last fitted, and the next run is the one that lowers the variance of the goal most per FLOP
(`design`). Everything here is deterministic.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np

from scaling.base.errors import ScalingError, nearest, refuse
from scaling.laws.compare import akaike_weights, mean_interval
from scaling.laws.design import Candidates, Linear, study_without_noise, surface
from scaling.laws.fit import FittedLaw, check_columns, fit
from scaling.laws.formula import parse_number
from scaling.laws.intervals import LEVEL, Interval, measure, student
from scaling.laws.law import VARIANT, Law
from scaling.laws.optimum import Budget, optimal_loss
from scaling.laws.points import Points
from scaling.laws.problem import PRIOR_CORRELATION, Quantity, named_quantity, prediction

STARTS = 256
WORTH = 4.0  # degrees of freedom that the supposed noise counts for next to the residuals
PRIOR = 0.1  # under repeated looks, the prior's information over that of the finished study
OPTION = "--adaptive"  # in which a person writes a goal
WRITTEN = "'E ± 0.01', 'loss at C=1e15 ± 0.5%' or 'loss of B - A at N=1e6 D=2e7 ± 0.01'"
_GOAL = re.compile(
    r"(?P<what>\w+)(?:(?:\s+of\s+(?P<first>.+?)\s+[-−]\s+(?P<second>.+?))?\s+at\s+(?P<place>.+?))?"
    r"\s*(?:±|\+/?-)\s*(?P<width>[^%\s]+)\s*(?P<percent>%?)"
)

Unit = Literal["absolute", "relative"]


@dataclass(frozen=True)
class Goal:
    """Half the width that the interval of a quantity is to have: in its own unit, or relative to its estimate.

    Without a `place` the quantity is a parameter, or what the law derives from its parameters. `between` are two
    variants, whose difference, the first less the second, is the quantity.
    """

    text: str
    what: str
    half_width: float
    unit: Unit = "absolute"
    place: Mapping[str, float] = field(default_factory=dict)
    between: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        """The quantity as it was written."""
        return re.split(r"\s*(?:±|\+/?-)\s*[^%\s]+\s*%?$", self.text.strip())[0]

    def quantity(self, form: Law) -> Quantity:
        """The quantity under a law; refused where the law does not know it."""
        try:
            if not self.place:
                return named_quantity(form, self.what)
            refuse(self.what != form.target, f"{form.name} predicts no {self.what!r}", f"it predicts {form.target}")
            if self.between is None:
                fix = "name two of them, as in 'loss of B - A at N=1e6 D=2e7'"
                refuse(form.variants, "the study compares rows", fix)
                if set(self.place) == {"C"} and "C" not in form.inputs:
                    return optimal_loss(form, Budget(self.place["C"]))
                check_columns(form, self.place, OPTION)
                return prediction(form, self.place)
            refuse(not form.variants, "the study compares no rows", "leave out 'of …', or study a table")
            formulas = []
            for variant in self.between:
                fix = nearest(variant, form.variants)
                refuse(variant not in form.variants, f"the study has no row {variant!r}", fix)
                place = {**self.place, VARIANT: float(form.variants.index(variant))}
                check_columns(form, place, OPTION)
                formulas.append(prediction(form, place).formula)
            one, other = formulas
            return Quantity(self.name, lambda *at: one(*at) - other(*at), "linear")
        except ScalingError as error:
            raise error.at(key=OPTION, value=self.text) from None

    def width_of(self, interval: Interval | None) -> float:
        """Half the width of an interval in the goal's unit; infinite where an end is open, or without an interval."""
        if interval is None:
            return float("inf")
        half, size = 0.5 * (interval.high - interval.low), abs(interval.estimate)
        return half if self.unit == "absolute" else half / size if size else float("inf")

    def spelled(self, half_width: float) -> str:
        """A half-width in the goal's unit, for people: `± 0.012`, `± 0.61%`."""
        if half_width == float("inf"):
            return "an open interval"
        return f"± {half_width:.3g}" if self.unit == "absolute" else f"± {100 * half_width:.3g}%"


def parse_goal(text: str) -> Goal:
    """The goal that a person wrote."""
    match = _GOAL.fullmatch(text.strip())
    wrong: dict[str, Any] = {"fix": f"write it as {WRITTEN}", "key": OPTION, "value": text}
    if match is None:
        what = "expected a quantity (a parameter, or a loss at a size), ± and half the width of its interval"
        raise ScalingError(what, **wrong)

    def positive(word: str, expected: str) -> float:
        value = parse_number(word) or 0.0
        refuse(not 0 < value < float("inf"), f"expected {expected}", **wrong)
        return value

    unit: Unit = "relative" if match["percent"] else "absolute"
    width = positive(match["width"], "a width above 0") / (100 if unit == "relative" else 1)
    words = [word.rstrip(",").partition("=") for word in (match["place"] or "").split()]
    place = {name: positive(number, f"NAME=NUMBER, not {name + sign + number!r}") for name, sign, number in words}
    between = (match["first"], match["second"]) if match["first"] else None
    if between is not None:
        refuse(unit == "relative", "a difference may be zero, so its width is not a percentage", **wrong)
        refuse(match["first"] == match["second"], "it compares a row with itself", **wrong)
    return Goal(text, match["what"], width, unit, place, between)


@dataclass(frozen=True)
class Belief:
    """A law as it is taken to be, and how much it counts among those in competition."""

    form: Law
    estimates: Mapping[str, float]
    weight: float = 1.0


@dataclass(frozen=True)
class Look:
    """The state after the finished runs: the fitted laws, the interval of the goal, the noise and its correlation."""

    beliefs: tuple[Belief, ...]
    noise: float
    correlation: float
    interval: Interval | None = None
    fits: tuple[FittedLaw, ...] = ()


def look(
    goal: Goal,
    forms: Sequence[Law],
    candidates: Candidates,
    rows: Sequence[int],
    losses: np.ndarray,
    supposed: Sequence[Belief] = (),
    noise: float = 0.003,
) -> Look:
    """Fit the laws to the runs that are done. What is `supposed` of them holds until there are enough runs."""
    fits = []
    for form in forms:
        if len(rows) > len(form.parameters):
            columns = {name: candidates.at(rows)[name] for name in form.inputs}
            points = Points(columns | {form.target: np.asarray(losses, float)})
            with suppress(ScalingError):  # it need not converge on these few runs
                fits.append(fit(form, points, group=candidates.trunks[list(rows)], starts=STARTS))
    if not fits:
        return Look(tuple(supposed), noise, PRIOR_CORRELATION)
    weights = akaike_weights(fits)
    beliefs = tuple(Belief(each.form, each.estimates, float(w)) for each, w in zip(fits, weights, strict=True))
    # Of so few runs a law's own fit is trusted less than what was supposed.
    if supposed and len(rows) < max(len(form.parameters) for form in forms) + 3:
        beliefs = tuple(supposed)
    heaviest = fits[int(np.argmax(weights))]
    # The noise of log loss is that of the residuals, and what was supposed counts for a few more of them.
    freedom, problem = heaviest.degrees_of_freedom, heaviest.problem
    scale = measure(problem.objective, heaviest.objective, len(problem.observed), len(problem.free)).scale
    noise = float(np.sqrt((freedom * scale**2 + WORTH * noise**2) / (freedom + WORTH)))
    correlation = PRIOR_CORRELATION if heaviest.correlation is None else heaviest.correlation.mean
    return Look(beliefs, noise, correlation, mean_interval(fits, goal.quantity), tuple(fits))


def variances(goal: Goal, candidates: Candidates, taken: Sequence[int], seen: Look) -> tuple[float, np.ndarray]:
    """The variance of the goal's quantity, in its unit, after runs at `taken`, and after one more at each candidate.

    Laws that disagree about the quantity add

        w_f w_g (q_f - q_g)² exp(-(m_f(x) - m_g(x))² / (8 s²))

    which a run at x narrows where it tells the laws apart (the Bhattacharyya bound of their weights, after Box and Hill
    1967, Technometrics 9(1)).
    """
    near, now, after = [], 0.0, np.zeros(len(candidates))
    for belief in seen.beliefs:  # a law near what it is taken to be
        problem, u = study_without_noise(belief.form, belief.estimates, candidates.columns)
        quantity = goal.quantity(belief.form)
        scaled, slope = quantity.along(problem, u[None])
        value = float(quantity.unscale(scaled)[0])
        slope = slope * value if quantity.scale == "log" else slope
        linear = Linear(problem.linearise(u[None])[1][0].T, slope, candidates.trunks, seen.correlation)
        near.append((belief.weight, value, problem.observed))
        one, each = linear.variances(taken)
        now, after = now + belief.weight * seen.noise**2 * one, after + belief.weight * seen.noise**2 * each
    for (w_f, q_f, m_f), (w_g, q_g, m_g) in combinations(near, 2):
        disagreement = w_f * w_g * (q_f - q_g) ** 2
        now = now + disagreement
        after = after + disagreement * np.exp(-((m_f - m_g) ** 2) / (8.0 * seen.noise**2))
    # A parameter at its bound may be 0; scores are differences of logarithms, which its size leaves as they are.
    size = 1.0 if goal.unit == "absolute" else sum(weight * value for weight, value, _ in near) or 1e-100
    return now / size**2, after / size**2


@dataclass(frozen=True)
class Choice:
    """The run that is chosen, why, and the best of those that were not."""

    row: int
    cost: float
    reason: str  # `narrows` the interval of the goal, or is `spread` over the columns before a law is known
    expected: float | None  # the half-width after it, in the goal's unit; None before the law has a degree of freedom
    others: tuple[tuple[int, float], ...]  # the next best rows, each with its score over the chosen one's


def choose(
    goal: Goal, candidates: Candidates, taken: Sequence[int], seen: Look, left: float, closed: Sequence[int] = ()
) -> Choice | None:
    """The next run within the FLOPs that are left, among those that are neither taken nor `closed`; None without one.

    The losses of those taken count whether they are known yet or not.
    """
    if seen.beliefs:
        now, after = variances(goal, candidates, taken, seen)
        freedom = len(taken) + 1 - max(len(belief.form.parameters) for belief in seen.beliefs)
        change = float(np.log(now)), np.log(after)
    else:
        change, freedom = surface(candidates.columns, candidates.trunks).variances(taken), 0
        after = change[1]
    order, score, cost = candidates.best_first(taken, left, change, closed)
    if not len(order):
        return None
    row = int(order[0])
    return Choice(
        row,
        float(cost[row]),
        "narrows" if seen.beliefs else "spread",
        student(LEVEL, freedom) * float(np.sqrt(after[row])) if freedom > 0 else None,
        tuple((int(other), float(score[other] / (score[row] or 1.0))) for other in order[1:4]),
    )


def expected_path(goal: Goal, candidates: Candidates, supposed: Look, budget: float, to: float = 0.0) -> list[Choice]:
    """The choices that are expected were the laws as supposed, until the half-width is `to` or nothing can be paid."""
    path: list[Choice] = []
    while not confirmed([width_after(one) for one in path], to):
        spent = sum(choice.cost for choice in path)
        choice = choose(goal, candidates, [choice.row for choice in path], supposed, budget - spent)
        if choice is None:
            break
        path.append(choice)
    return path


def width_after(choice: Choice | None) -> float:
    """The half-width that is expected after a choice; infinite where nothing is known of it."""
    return float("inf") if choice is None or choice.expected is None else choice.expected


# When to stop looking.


def confirmed(half_widths: Sequence[float], goal: float) -> bool:
    """Whether the last two looks were narrow enough: where one is, the noise is often by chance seen too small."""
    return len(half_widths) >= 2 and max(half_widths[-2:]) <= goal


def interval_of_all_looks(
    goal: Goal, candidates: Candidates, rows: Sequence[int], seen: Look, end: Sequence[int] | None = None
) -> Interval | None:
    """The interval of the goal that holds at all looks together; None while it is open.

    The study ends with the runs `end`, or where its goal is reached. The interval is that of one look at another level.
    """
    heaviest = max(seen.beliefs, key=lambda belief: belief.weight)
    seen_alone = replace(seen, beliefs=(replace(heaviest, weight=1.0),))
    now = variances(goal, candidates, rows, seen_alone)[0]
    # About what takes the place of Student's quantile under repeated looks when an adaptive study ends.
    last = (goal.half_width / 3.4) ** 2 if end is None else variances(goal, candidates, end, seen_alone)[0]
    freedom = len(rows) - max(each.parameters_fitted for each in seen.fits)
    level = level_at_a_look(LEVEL, freedom, last / now)
    return None if level is None else mean_interval(seen.fits, goal.quantity, level)


def level_at_a_look(level: float, freedom: float, fraction: float) -> float | None:
    """The level at which to compute an interval so that all looks together hold at `level`; None while it is open.

    Of 95% intervals computed after every run, far more than 5% of studies have one that misses. The mixture of
    Student's likelihood ratio over a normal prior of the quantity is a martingale where the law is linear and errors
    are normal (Lindon, Ham, Tingley and Bojinov 2022, arXiv 2210.08589, after Robbins 1970), so that

        |estimate - truth| ≤ error √(ν (1 - A) / (A - r)),  A = (α² r)^(1/(ν + 1)),  r = φ / (φ + z)

    holds at all looks together with probability 1 - α. ν are the degrees of freedom, z is the information that the runs
    carry about the quantity, φ that of the prior: a tenth of the information that the finished study will have. The
    interval is then about as narrow as it can be at its end, and open at first, when there is little to know. The root
    is a quantile of Student's t at another level. `fraction` is the information at this look over that of the finished
    study.
    """
    from scipy.special import stdtr

    if freedom < 1 or not fraction > 0:
        return None
    prior = PRIOR / (PRIOR + fraction)
    limit = float(np.exp(np.log((1.0 - level) ** 2 * prior) / (freedom + 1.0)))
    if limit <= prior:
        return None
    quantile = float(np.sqrt(freedom * (1.0 - limit) / (limit - prior)))
    return float(1.0 - 2.0 * stdtr(freedom, -quantile))
