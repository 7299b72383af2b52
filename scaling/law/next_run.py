"""The next run: which of a study's candidates narrows the interval of its goal most for its FLOPs.

Each law in competition is linearised where it was last fitted. One more run at x changes the information that the runs
carry about the parameters, and with it the variance of the quantity (Fedorov 1972, Theory of Optimal Experiments);
runs of one trunk share errors, so a further branch of a trunk carries less than a run of its own. Laws that disagree
about the quantity add

    w_f w_g (q_f - q_g)² exp(-(m_f(x) - m_g(x))² / (8 s²))

to the variance, which a run at x narrows where it tells the laws apart (the Bhattacharyya bound of their weights, after
Box and Hill 1967, Technometrics 9(1)). The next run is the one that lowers the logarithm of that sum most per FLOP.
Everything here is deterministic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from scaling.errors import ScalingError
from scaling.law.active import features
from scaling.law.compare import aicc
from scaling.law.design import study_without_noise
from scaling.law.fit import Fit, fit
from scaling.law.forms import Columns, Form
from scaling.law.goal import Goal
from scaling.law.interval import Interval, intervals
from scaling.law.noise import measure, student
from scaling.law.points import Points
from scaling.law.shared_errors import SharedErrors, prior_correlation

STARTS = 256
LEVEL = 0.95
SPARE = 3  # runs beyond the parameters of a law, from which on its own fit is trusted more than what was supposed
KNOWN = 1e-6  # of the mean information of a candidate: what makes the first runs comparable
WORTH = 4.0  # degrees of freedom that the supposed noise counts for next to the residuals


@dataclass(frozen=True)
class Candidates:
    """The runs that may be chosen: their columns, the trunk of each, and its FLOPs on that trunk and after it."""

    columns: Columns
    trunks: np.ndarray
    stem: np.ndarray
    own: np.ndarray

    def __len__(self) -> int:
        return len(self.own)

    def cost(self, taken: Sequence[int]) -> np.ndarray:
        """What each costs after those taken: a trunk goes on from where it is; a run that branches off before that
        is trained whole.
        """
        reached = np.zeros(int(self.trunks.max()) + 1)
        np.maximum.at(reached, self.trunks[list(taken)], self.stem[list(taken)])
        passed = reached[self.trunks]
        return self.own + np.where(self.stem >= passed, self.stem - passed, self.stem)

    def at(self, rows: Sequence[int]) -> dict[str, np.ndarray]:
        return {name: np.asarray(column)[list(rows)] for name, column in self.columns.items()}

    def shared(self, rows: Sequence[int]) -> np.ndarray | None:
        """The trunk of each row, where one repeats."""
        groups = self.trunks[list(rows)]
        return groups if len(np.unique(groups)) < len(groups) else None


@dataclass(frozen=True)
class Belief:
    """A law as it is taken to be, and how much it counts among those in competition."""

    form: Form
    estimates: Mapping[str, float]
    weight: float = 1.0


@dataclass(frozen=True)
class Look:
    """What the finished runs show: the laws as fitted, the interval of the goal, the noise and its correlation."""

    beliefs: tuple[Belief, ...]
    interval: Interval | None
    noise: float
    correlation: float
    points: int
    fits: tuple[Fit, ...] = ()
    weights: tuple[float, ...] = ()
    """Of the fits."""

    def interval_at(self, goal: Goal, level: float) -> Interval | None:
        """The interval of the goal at another level."""
        return _interval(goal, self.fits, self.weights, level) if self.fits else None

    def half_width(self, goal: Goal) -> float:
        return float("inf") if self.interval is None else goal.width_of(self.interval)


def look(
    goal: Goal,
    forms: Sequence[Form],
    candidates: Candidates,
    rows: Sequence[int],
    losses: np.ndarray,
    supposed: Sequence[Belief] = (),
    noise: float = 0.003,
    level: float = LEVEL,
) -> Look:
    """Fit the laws to the runs that are done. What is `supposed` of them holds until there are enough runs."""
    fits = []
    for form in forms:
        if len(rows) > len(form.parameters):
            columns = {name: candidates.at(rows)[name] for name in form.inputs}
            try:
                points = Points(columns | {form.target: np.asarray(losses, float)})
                fits.append(fit(form, points, shared=candidates.shared(rows), starts=STARTS))
            except ScalingError:
                continue  # it does not converge on these few runs
    if not fits:
        return Look(tuple(supposed), None, noise, prior_correlation(), len(rows))
    weights = _weights(fits)
    trusted = len(rows) >= max(len(form.parameters) for form in forms) + SPARE or not supposed
    beliefs = tuple(Belief(each.form, each.estimates, weight) for each, weight in zip(fits, weights, strict=True))
    heaviest = fits[int(np.argmax(weights))]
    learned = heaviest.correlation
    return Look(
        beliefs if trusted else tuple(supposed),
        _interval(goal, fits, weights, level),
        _noise(heaviest, noise),
        prior_correlation() if learned is None else learned.mean,
        len(rows),
        tuple(fits),
        weights,
    )


def _weights(fits: Sequence[Fit]) -> tuple[float, ...]:
    """Akaike weights; equal where there are too few runs for AICc."""
    criterion = np.array([aicc(each) for each in fits])
    if not np.isfinite(criterion).all():
        return (1.0 / len(fits),) * len(fits)
    likelihood = np.exp(-0.5 * (criterion - criterion.min()))
    return tuple(map(float, likelihood / likelihood.sum()))


def _interval(goal: Goal, fits: Sequence[Fit], weights: Sequence[float], level: float) -> Interval | None:
    """The profile interval of the goal; of several laws that of their mean, which holds their disagreement.

    An end is Σ w √(reach² + t² (q - mean)²) from the mean, `reach` being t standard errors of that law: Buckland,
    Burnham and Augustin 1997, Biometrics 53(2), eq. 9, times Student's t.
    """
    bounds = []
    for each in fits:
        if each.degrees_of_freedom < 1:
            return None
        quantity = goal.quantity(each.form)
        bounds.append(next(iter(intervals(each, level=level, quantities=[quantity]).values())))
    if len(bounds) == 1:
        return bounds[0]
    centre = float(sum(weight * bound.estimate for weight, bound in zip(weights, bounds, strict=True)))
    quantiles = [student(level, each.degrees_of_freedom) for each in fits]
    apart = [quantile * (bound.estimate - centre) for quantile, bound in zip(quantiles, bounds, strict=True)]
    reaches = [bound.estimate - bound.low for bound in bounds], [bound.high - bound.estimate for bound in bounds]
    below, above = (float(np.dot(weights, np.hypot(reach, apart))) for reach in reaches)
    is_open = [any(getattr(bound, end) for bound in bounds) for end in ("open_below", "open_above")]
    return Interval(bounds[0].name, centre, centre - below, centre + above, level, "average", *is_open)


def _noise(law: Fit, supposed: float) -> float:
    """The noise of log loss: that of the residuals, and what was supposed counts for a few more of them."""
    freedom = law.degrees_of_freedom
    if freedom < 1:
        return supposed
    count = len(law.problem.observed)
    scale = float(measure(law.problem.objective, np.array([law.objective]), count, len(law.problem.free)).scale[0])
    return float(np.sqrt((freedom * scale**2 + WORTH * supposed**2) / (freedom + WORTH)))


@dataclass(frozen=True)
class Ranking:
    """What each candidate would make of the goal's half-width, in the goal's unit, and its score per FLOP."""

    now: float
    after: np.ndarray
    score: np.ndarray
    cost: np.ndarray


def rank(goal: Goal, candidates: Candidates, taken: Sequence[int], seen: Look, level: float = LEVEL) -> Ranking:
    """Every candidate after those `taken`, whose losses count whether they are known yet or not."""
    parts = [_Linear(goal, belief, candidates, seen.correlation) for belief in seen.beliefs]
    weights = np.array([belief.weight for belief in seen.beliefs])
    now = sum(w * part.variance(taken) for w, part in zip(weights, parts, strict=True)) * seen.noise**2
    after = sum(w * part.variances(taken) for w, part in zip(weights, parts, strict=True)) * seen.noise**2
    for first, one in enumerate(parts):
        for second, other in enumerate(parts[:first]):
            apart = weights[first] * weights[second] * (one.value - other.value) ** 2
            now += apart
            after = after + apart * np.exp(-((one.log_loss - other.log_loss) ** 2) / (8.0 * seen.noise**2))
    cost = candidates.cost(taken)
    size = 1.0 if goal.unit == "absolute" else abs(float(sum(w * part.value for w, part in zip(weights, parts))))
    freedom = len(taken) - max(len(belief.form.parameters) for belief in seen.beliefs)
    narrow = [student(level, count) if count > 0 else float("inf") for count in (freedom, freedom + 1)]
    return Ranking(
        narrow[0] * float(np.sqrt(now)) / size, narrow[1] * np.sqrt(after) / size, np.log(now / after) / cost, cost
    )


def variance(goal: Goal, candidates: Candidates, taken: Sequence[int], seen: Look) -> float:
    """Of the goal's quantity in its own unit after runs at `taken`, by the law that counts most."""
    heaviest = max(seen.beliefs, key=lambda belief: belief.weight)
    linear = _Linear(goal, heaviest, candidates, seen.correlation)
    size = 1.0 if goal.unit == "absolute" else abs(linear.value)
    return linear.variance(taken) * (seen.noise / size) ** 2


class _Linear:
    """A law near what it is taken to be: what runs at the candidates show of the goal."""

    def __init__(self, goal: Goal, belief: Belief, candidates: Candidates, correlation: float):
        problem, u = study_without_noise(belief.form, belief.estimates, candidates.columns)
        quantity = goal.quantity(belief.form)
        value, slope = quantity.along(problem, u[None])
        self.value = float(quantity.unscale(value)[0])
        self.slope = slope[0] * (self.value if quantity.in_log else 1.0)
        self.rows = problem.linearise(u[None])[1][0].T
        self.log_loss = problem.observed
        self.trunks, self.correlation = candidates.trunks, correlation
        self.prior = KNOWN * (self.rows.T @ self.rows) / len(self.rows) + 1e-12 * np.eye(self.rows.shape[1])

    def variance(self, taken: Sequence[int]) -> float:
        """Of the goal after runs at these rows, over the squared noise."""
        return float(self.slope @ np.linalg.solve(self._information(taken), self.slope))

    def variances(self, taken: Sequence[int]) -> np.ndarray:
        """The same after one more, at each row."""
        whole, each = self._information(taken), np.empty((len(self.rows), *self.prior.shape))
        of_trunk: dict[int, list[int]] = {}
        for row in taken:
            of_trunk.setdefault(int(self.trunks[row]), []).append(row)
        for row, trunk in enumerate(self.trunks):
            members = of_trunk.get(int(trunk), [])
            each[row] = whole - self._block(members) + self._block([*members, row])
        slopes = np.broadcast_to(self.slope[:, None], (len(each), len(self.slope), 1))
        return np.linalg.solve(each, slopes)[..., 0] @ self.slope

    def _information(self, taken: Sequence[int]) -> np.ndarray:
        groups: dict[int, list[int]] = {}
        for row in taken:
            groups.setdefault(int(self.trunks[row]), []).append(row)
        return self.prior + sum((self._block(rows) for rows in groups.values()), np.zeros_like(self.prior))

    def _block(self, rows: Sequence[int]) -> np.ndarray:
        """The information of the runs of one trunk."""
        if not rows:
            return np.zeros_like(self.prior)
        own = self.rows[list(rows)]
        whitened = SharedErrors(np.zeros(len(rows), int), self.correlation).whiten(own.T)
        return whitened @ whitened.T


def spread(candidates: Candidates, taken: Sequence[int]) -> np.ndarray:
    """How much each candidate adds to a quadratic surface over the columns, for its cost: before any law is known."""
    rows = features({name: np.asarray(column, float) for name, column in candidates.columns.items()})
    variance = np.linalg.inv(rows[list(taken)].T @ rows[list(taken)] + 1e-3 * np.eye(rows.shape[1]))
    reach = rows @ variance
    gain = np.mean((reach @ rows.T) ** 2, axis=1) / (1.0 + np.einsum("ij,ij->i", reach, rows))
    return gain / candidates.cost(taken)


@dataclass(frozen=True)
class Choice:
    """The run that is chosen, why, and the best of those that were not; `None` where none can be paid for."""

    row: int
    cost: float
    reason: str
    expected: float | None
    """The half-width after it, in the goal's unit; None before a law is known."""
    score: float
    others: tuple[tuple[int, float], ...]
    """The next best rows, each with its score over the chosen one's."""


def choose(
    goal: Goal, candidates: Candidates, taken: Sequence[int], seen: Look, left: float, closed: Sequence[int] = ()
) -> Choice | None:
    """The next run within the FLOPs that are left, among those that are neither taken nor `closed`."""
    ranking = rank(goal, candidates, taken, seen) if seen.beliefs else None
    score, cost = (
        (spread(candidates, taken), candidates.cost(taken))
        if ranking is None
        else (
            ranking.score,
            ranking.cost,
        )
    )
    open_rows = cost <= left
    open_rows[[*taken, *closed]] = False
    if not open_rows.any():
        return None
    score = np.where(open_rows & np.isfinite(score), score, -np.inf)
    order = np.argsort(-score, kind="stable")
    row = int(order[0])
    others = tuple((int(other), float(score[other] / score[row])) for other in order[1:4] if open_rows[other])
    expected = None if ranking is None else float(ranking.after[row])
    reason = "spread" if ranking is None else "narrows"
    return Choice(
        row,
        float(cost[row]),
        reason,
        expected if expected is None or isfinite(expected) else None,
        float(score[row]),
        others,
    )


@dataclass(frozen=True)
class Reach:
    """What a budget is expected to reach: the runs in their order, the half-width after them, and their FLOPs."""

    rows: tuple[int, ...]
    half_widths: tuple[float, ...]
    """After each run, in the goal's unit; infinite before the law has a degree of freedom."""
    cost: float

    @property
    def half_width(self) -> float:
        return self.half_widths[-1] if self.half_widths else float("inf")


def confirmed(half_widths: Sequence[float], goal: float) -> bool:
    """Whether the last two looks were narrow enough: where one is, the noise is often by chance seen too small."""
    return len(half_widths) >= 2 and max(half_widths[-2:]) <= goal


def expected_path(goal: Goal, candidates: Candidates, supposed: Look, budget: float, to: float = 0.0) -> Reach:
    """The choices that are expected were the laws as supposed, until the half-width is `to` or nothing can be paid."""
    taken: list[int] = []
    widths: list[float] = []
    spent = 0.0
    while (choice := choose(goal, candidates, taken, supposed, budget - spent)) is not None:
        taken.append(choice.row)
        spent += choice.cost
        widths.append(float("inf") if choice.expected is None else choice.expected)
        if confirmed(widths, to):
            break
    return Reach(tuple(taken), tuple(widths), spent)
