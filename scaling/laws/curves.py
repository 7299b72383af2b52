"""Whole training curves: every logged loss of a run with the schedule that led to it, and how these losses err.

The losses of curves err by trunk, along a run, and by the noise of each measurement:

    e(s) = (N / N₀)^-p (D(s) / D₀)^-q (b + w(s)) + ε,  cov(w(s), w(t)) = a² exp(-|log s - log t| / ℓ)

b is of the trunk, w of the run (autocorrelated), ε of the batch or of the evaluation. Training losses have another ε
than evaluations, so that each kind counts by what it knows. Runs of larger models lie closer together, and so do runs
that have read more tokens D; N₀ and D₀ are the medians.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from scaling.errors import ScalingError
from scaling.laws.points import Points
from scaling.laws.special_laws import areas

FALLS = 16
"""Into how many falls of equal height those of a schedule are gathered."""
LOWEST_RATE = 1e-3
"""Of the reference: a rate below counts as this, since a schedule may end at zero."""
POINTS = 100
"""Logged losses of one kind that a curve keeps: training losses are averaged, evaluations are chosen."""
START = 0.1
"""Of a run, whose losses are left out: a power law does not hold there. So are those of twice the warmup."""
NEEDED = ("run", "N", "step", "tokens", "lr", "loss")
EVALUATIONS = frozenset({"evaluate", "evaluation", "eval", "validation", "1"})
SMALLEST = 1e-6


@dataclass(frozen=True)
class Curve:
    """Losses of one run at some of its steps (the first is 1), and the schedule that led to them.

    `rates` are the learning rates of every step from the first; they may go on after the last loss. A branch has the
    losses of its own steps alone, and the schedule of all.
    """

    run: str
    N: float
    steps: np.ndarray
    losses: np.ndarray
    kinds: np.ndarray
    """Whether each loss is an evaluation (1) or one of training (0)."""
    rates: np.ndarray
    tokens_per_step: float
    trunk: str = ""
    validation: str = ""
    counts: np.ndarray | None = None
    """How many logged losses each is the mean of."""
    held_out: bool = False

    def __post_init__(self) -> None:
        if len(self.rates) == 0:
            raise ScalingError("has no schedule", key="run", value=self.run, fix="give the learning rate: a column lr")
        if len(self.steps) and (self.steps.min() < 1 or self.steps.max() > len(self.rates)):
            what = f"its schedule has {len(self.rates)} steps, its losses go to step {int(self.steps.max())}"
            raise ScalingError(what, key="run", value=self.run, fix="give the learning rate of every step")

    @property
    def group(self) -> str:
        """Runs of one trunk share errors."""
        return self.trunk or self.run

    @property
    def D(self) -> float:
        """Tokens of the whole schedule."""
        return len(self.rates) * self.tokens_per_step

    @property
    def peak(self) -> float:
        return float(np.max(self.rates))

    @property
    def warmup(self) -> int:
        """Steps until the rate is at its peak."""
        return int(np.argmax(self.rates >= self.peak * (1 - 1e-9)))

    @property
    def share(self) -> float:
        """The last step that has a loss, as a fraction of the schedule."""
        return float(self.steps.max() / len(self.rates)) if len(self.steps) else 0.0

    def first(self, share: float) -> Curve:
        """The losses of the first part of its schedule."""
        return self.where(self.steps <= share * len(self.rates))

    def where(self, mask: np.ndarray) -> Curve:
        counts = None if self.counts is None else self.counts[mask]
        return replace(self, steps=self.steps[mask], losses=self.losses[mask], kinds=self.kinds[mask], counts=counts)

    def at(self, steps: Sequence[int] | np.ndarray) -> Curve:
        """The same run with no losses, to be predicted at these steps."""
        steps = np.asarray(steps, int)
        empty, kinds = np.full(len(steps), np.nan), np.ones(len(steps), int)
        return replace(self, steps=steps, losses=empty, kinds=kinds, counts=None)

    def thinned(self, after: float | None = None) -> Curve:
        """The curve without its start, with means of losses over stretches that are even in the logarithm of the step
        where a kind has more than `POINTS`.
        """
        begin = max(2 * self.warmup, START * len(self.rates)) if after is None else after / self.tokens_per_step
        kept = self.where((self.steps > begin) & np.isfinite(self.losses))
        stretch = -np.arange(1, len(kept.steps) + 1)  # each loss is a stretch of its own
        for kind in (0, 1):
            rows = np.flatnonzero(kept.kinds == kind)
            if len(rows) > POINTS:
                steps = kept.steps[rows]
                edges = np.geomspace(steps.min(), steps.max() + 1, POINTS + 1)
                stretch[rows] = np.searchsorted(edges, steps, side="right")
        code = np.unique(2 * stretch + kept.kinds, return_inverse=True)[1]
        number = np.bincount(code)
        steps, losses, kinds = (np.bincount(code, part) / number for part in (kept.steps, kept.losses, kept.kinds))
        counts = np.bincount(code, kept.counts)
        order = np.lexsort((kinds, steps))
        return replace(
            self,
            steps=np.rint(steps).astype(int)[order],
            losses=losses[order],
            kinds=kinds.astype(int)[order],
            counts=counts[order],
        )


def read_curves(points: Points) -> list[Curve]:
    """The curves of a table with a row for each logged loss: columns run, N, step, tokens, lr and loss.

    `kind` marks rows as `train` or `evaluation` (all are evaluations without it); `trunk` and `validation` may be
    there. The learning rate between two rows lies on the line between theirs.
    """
    for name in NEEDED:
        if name not in points:
            what = "a curve without a schedule says nothing of another" if name == "lr" else "a curve needs it"
            place = points.source or None
            raise ScalingError(f"there is no column {name!r}: {what}", file=place, key=name, fix=f"add a column {name}")
    for name in NEEDED[1:]:
        points.numbers(name)  # which names the row of a mistake
    names, order = points["run"].astype(str), np.argsort(points.numbers("step"), kind="stable")
    return [_curve(run, points.take(order[names[order] == run])) for run in dict.fromkeys(names.tolist())]


def _curve(run: str, rows: Points) -> Curve:
    steps, sizes = np.rint(rows.numbers("step")).astype(int), set(rows.numbers("N").tolist())
    if len(sizes) > 1 or steps[0] < 1:
        what = "has two sizes" if len(sizes) > 1 else "has a step before the first, which is 1"
        raise ScalingError(what, file=rows.source or None, key="run", value=run, fix="correct its rows")
    kinds = np.ones(len(steps), int)
    if "kind" in rows:
        kinds = np.array([str(word).strip().casefold() in EVALUATIONS for word in rows["kind"]]).astype(int)
    distinct, first = np.unique(steps, return_index=True)
    trunk, validation = (str(rows[name][0]) if name in rows else "" for name in ("trunk", "validation"))
    return Curve(
        run,
        sizes.pop(),
        steps,
        rows.numbers("loss"),
        kinds,
        np.interp(np.arange(1, steps[-1] + 1), distinct, rows.numbers("lr")[first]),
        float(np.median(rows.numbers("tokens") / steps)),
        trunk,
        validation,
        held_out="held_out" in rows and bool(rows.numbers("held_out")[0]),
    )


def columns_of(curve: Curve, reference: float, decay: float) -> dict[str, np.ndarray]:
    """What the laws of curves read at each of its steps; `reference` is the learning rate that counts as 1."""
    rates = np.asarray(curve.rates, float) / reference
    forward, annealed = areas(rates, decay)
    forward = forward * curve.tokens_per_step
    places = curve.steps - 1
    fallen = np.cumsum(np.maximum(-np.diff(rates, prepend=rates[:1]), 0.0))
    falls = since = np.zeros((len(places), FALLS))
    after = np.ones((len(places), FALLS))
    if fallen[-1] > 0:
        edges, height = np.linspace(0.0, fallen[-1], FALLS + 1), fallen[-1] / FALLS
        # A fall under way at a step counts as far as it went, in the middle of that part.
        part = np.clip((fallen[places][:, None] - edges[:-1]) / height, 0.0, 1.0)
        middle = np.minimum(np.searchsorted(fallen, edges[:-1] + 0.5 * part * height * (1 - 1e-9)), len(rates) - 1)
        falls, after = part * height, np.maximum(rates[middle], LOWEST_RATE)
        since = np.maximum(forward[places][:, None] - forward[middle], 0.0)
    sizes = np.full(len(places), float(curve.N))
    return {"N": sizes, "S1": forward[places], "S2": annealed[places], "falls": falls, "rates": after, "since": since}


def stacked(curves: Sequence[Curve], reference: float, decay: float) -> dict[str, np.ndarray]:
    """The columns of many curves, one after another."""
    each = [columns_of(curve, reference, decay) for curve in curves]
    return {name: np.concatenate([columns[name] for columns in each]) for name in each[0]}


@dataclass(frozen=True)
class Sizes:
    """The sizes of the errors of log loss."""

    trunk: float
    run: float
    length: float
    """ℓ: over which stretch of log steps the error of a run changes."""
    evaluation: float
    training: float
    by_size: float = 0.0
    """p: the power of N by which the errors of trunks and runs shrink."""
    by_tokens: float = 0.0
    """q: the power of the tokens read."""
    N: float = 1.0
    """The N and the D at which the sizes are stated."""
    D: float = 1.0


PLACE = np.dtype(
    [(name, int) for name in ("group", "run", "kind")]
    + [(name, float) for name in ("log_step", "count", "log_size", "log_tokens")]
)


def places_of(curves: Sequence[Curve]) -> np.ndarray:
    """A record of each loss: its trunk, run, kind, log step, how many losses it is the mean of, log N and log D."""
    lengths = [len(curve.steps) for curve in curves]
    places = np.empty(sum(lengths), PLACE)
    groups = np.unique([curve.group for curve in curves], return_inverse=True)[1].reshape(-1)
    places["group"], places["run"] = np.repeat(groups, lengths), np.repeat(np.arange(len(curves)), lengths)
    places["kind"] = np.concatenate([curve.kinds for curve in curves])
    places["log_step"] = np.log(np.concatenate([curve.steps for curve in curves]))
    places["count"] = np.concatenate([np.ones(len(c.steps)) if c.counts is None else c.counts for c in curves])
    places["log_size"] = np.repeat(np.log([curve.N for curve in curves]), lengths)
    places["log_tokens"] = places["log_step"] + np.repeat(np.log([curve.tokens_per_step for curve in curves]), lengths)
    return places


def covariance(sizes: Sizes, one: np.ndarray, other: np.ndarray | None = None) -> np.ndarray:
    """Between the errors at two sets of places; of one set with itself the noise of each loss is on the diagonal."""
    two = one if other is None else other
    distance = np.abs(one["log_step"][:, None] - two["log_step"])
    shared = sizes.trunk**2 * (one["group"][:, None] == two["group"])
    shared = shared + sizes.run**2 * (one["run"][:, None] == two["run"]) * np.exp(-distance / sizes.length)
    # The errors of trunks and runs at each place, as a multiple of those that are stated.
    first, second = (
        np.exp(
            sizes.by_size * (np.log(sizes.N) - places["log_size"])
            + sizes.by_tokens * (np.log(sizes.D) - places["log_tokens"])
        )
        for places in (one, two)
    )
    shared = shared * (first[:, None] * second)
    if other is None:
        noise = np.where(one["kind"] == 1, sizes.evaluation, sizes.training) ** 2 / one["count"]
        shared[np.diag_indices(len(noise))] += noise + SMALLEST**2
    return shared


@dataclass(frozen=True)
class CurveErrors:
    """The inverse root of the covariance of many curves, a block for each trunk, scaled to errors of size one."""

    sizes: Sizes
    places: np.ndarray

    @cached_property
    def _blocks(self) -> list[tuple[np.ndarray, np.ndarray]]:
        groups = self.places["group"]
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        return [
            (rows, np.linalg.inv(np.linalg.cholesky(covariance(self.sizes, self.places[rows]))))
            for rows in np.split(order, starts[1:])
        ]

    def whiten(self, values: np.ndarray) -> np.ndarray:
        """Values of the losses `[..., losses]` as combinations that do not correlate, of size one."""
        white = np.empty(values.shape)
        for rows, inverse in self._blocks:
            white[..., rows] = values[..., rows] @ inverse.T
        return white

    @property
    def log_determinant(self) -> float:
        """The log determinant of the covariance."""
        return float(-2.0 * sum(np.log(np.diag(inverse)).sum() for _, inverse in self._blocks))

    def at(self, rows: np.ndarray) -> CurveErrors:
        """The errors of some of the losses."""
        return CurveErrors(self.sizes, self.places[rows])
