"""A training curve: logged losses, and the learning rate of every step up to them; what a law reads of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from scaling.errors import ScalingError
from scaling.law.forms.tissue import areas

Kind = Literal["train", "evaluation"]
FALLS = 16
"""Into how many falls of equal height those of a schedule are gathered."""
LOWEST_RATE = 1e-3
"""Of the reference: a rate below counts as this, since a schedule may end at zero."""
POINTS = 100
"""Logged losses of one kind that a curve keeps: training losses are averaged, evaluations are chosen."""
START = 0.1
"""Of a run, whose losses are left out: a power law does not hold there. So are those of twice the warmup."""


@dataclass(frozen=True)
class Curve:
    """Losses of one run at some of its steps (the first is 1), and the schedule that led to them.

    `rates` are the learning rates of every step from the first; they may go on after the last loss. A branch has the
    losses of its own steps alone, and the schedule of all. `noises` is what is known of each loss's own error.
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
        """How far its last loss lies along its schedule."""
        return float(self.steps.max() / len(self.rates)) if len(self.steps) else 0.0

    @property
    def is_unfinished(self) -> bool:
        """Whether its schedule goes on after its last loss."""
        return self.share < 1.0

    def last_evaluation(self) -> Curve:
        """The curve of its last evaluation alone."""
        evaluated = np.flatnonzero(self.kinds == 1)
        return self.where(np.arange(len(self.steps)) == evaluated[self.steps[evaluated].argmax()])

    def first(self, share: float) -> Curve:
        """The losses of the first part of its schedule."""
        return self.where(self.steps <= share * len(self.rates))

    def where(self, mask: np.ndarray) -> Curve:
        counts = None if self.counts is None else self.counts[mask]
        return replace(self, steps=self.steps[mask], losses=self.losses[mask], kinds=self.kinds[mask], counts=counts)

    def at(self, steps: Sequence[int] | np.ndarray) -> Curve:
        """The same run with no losses, to be predicted at these steps."""
        steps = np.asarray(steps, int)
        return replace(
            self, steps=steps, losses=np.full(len(steps), np.nan), kinds=np.ones(len(steps), int), counts=None
        )

    def thinned(self, after: float | None = None, points: int = POINTS) -> Curve:
        """Without its start, training losses averaged over stretches that are even in the logarithm of the step."""
        begin = max(2 * self.warmup, START * len(self.rates)) if after is None else after / self.tokens_per_step
        keep = (self.steps > begin) & np.isfinite(self.losses)
        kept = self.where(keep)
        parts = []
        for kind in (0, 1):
            of_kind = kept.where(kept.kinds == kind)
            if len(of_kind.steps) > points:
                edges = np.geomspace(of_kind.steps.min(), of_kind.steps.max() + 1, points + 1)
                stretch = np.searchsorted(edges, of_kind.steps, side="right")
                _, code = np.unique(stretch, return_inverse=True)
                count = np.bincount(code)
                mean = [np.bincount(code, values) / count for values in (of_kind.steps, of_kind.losses)]
                of_kind = replace(
                    of_kind,
                    steps=np.rint(mean[0]).astype(int),
                    losses=mean[1],
                    kinds=np.full(len(count), kind),
                    counts=count.astype(float),
                )
            parts.append(of_kind)
        counts = [np.ones(len(part.steps)) if part.counts is None else part.counts for part in parts]
        steps, losses, kinds = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("steps", "losses", "kinds")
        )
        order = np.lexsort((kinds, steps))
        return replace(
            self, steps=steps[order], losses=losses[order], kinds=kinds[order], counts=np.concatenate(counts)[order]
        )


def columns_of(curve: Curve, reference: float, decay: float) -> dict[str, np.ndarray]:
    """What the laws of curves read at each of its steps; `reference` is the learning rate that counts as 1."""
    rates = np.asarray(curve.rates, float) / reference
    forward, annealed = areas(rates, decay)
    forward = forward * curve.tokens_per_step
    places = curve.steps - 1
    drops = np.maximum(-np.diff(rates, prepend=rates[:1]), 0.0)
    fallen = np.cumsum(drops)
    edges = np.linspace(0.0, fallen[-1], FALLS + 1)
    height = fallen[-1] / FALLS
    if not fallen[-1] > 0:
        nothing = np.zeros((len(places), FALLS))
        falls, after, since = nothing, nothing + 1.0, nothing
    else:
        # A fall under way at a step counts as far as it went, in the middle of that part.
        part = np.clip((fallen[places][:, None] - edges[:-1]) / height, 0.0, 1.0)
        middle = np.minimum(np.searchsorted(fallen, edges[:-1] + 0.5 * part * height * (1 - 1e-9)), len(rates) - 1)
        falls = part * height
        after = np.maximum(rates[middle], LOWEST_RATE)
        since = np.maximum(forward[places][:, None] - forward[middle], 0.0)
    return {
        "N": np.full(len(places), float(curve.N)),
        "S1": forward[places],
        "S2": annealed[places],
        "falls": falls,
        "rates": after,
        "since": since,
    }


def stacked(curves: Sequence[Curve], reference: float, decay: float) -> dict[str, np.ndarray]:
    """The columns of many curves, one after another."""
    each = [columns_of(curve, reference, decay) for curve in curves]
    return {name: np.concatenate([columns[name] for columns in each]) for name in each[0]}
