"""How the losses of curves err: by trunk, along a run, and by the noise of each measurement.

    e(s) = x(s)^q (b + w(s)) + ε,  cov(w(s), w(t)) = a² exp(-|log s - log t| / ℓ)

b is of the trunk, w of the run (autocorrelated), ε of the batch or of the evaluation. Training losses have another ε
than evaluations, so that each kind counts by what it knows. Runs lie closer together the less there is left to gain: x
is the part of the law that size and tokens can take away, as a fraction of the loss. The sizes and q are those of the
largest restricted likelihood (Patterson and Thompson 1971, Biometrika 58(3)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from functools import cached_property

import numpy as np

from scaling.law.curves.curve import Curve

GROUPS = 12
"""Trunks from which the sizes are learned where there are more: the others would change little."""
SMALLEST = 1e-6
BOUNDS = ((1e-5, 0.3), (1e-5, 0.3), (0.03, 5.0), (1e-6, 0.1), (1e-4, 1.0), (0.01, 2.5))
EXCESS = 0.05
"""The fraction of the loss at which errors have the sizes that are stated."""
LEAST_EXCESS = 0.02
"""Of `EXCESS`: what is below counts as this, since a law may say that nothing is left."""


@dataclass(frozen=True)
class Sizes:
    """Of the errors of log loss."""

    trunk: float
    run: float
    length: float
    """ℓ: over which stretch of log steps the error of a run changes."""
    evaluation: float
    training: float
    power: float = 0.0
    """q: how the errors of trunk and run grow with what there is left to gain."""


FIRST = (Sizes(3e-3, 2e-3, 0.3, 5e-4, 2e-2, 0.3), Sizes(3e-3, 5e-4, 0.3, 5e-4, 2e-2, 1.5))
"""From which the sizes are looked for: errors of nearly one size, and errors that shrink fast."""


@dataclass(frozen=True)
class Places:
    """Where each loss lies: its trunk, its run, log step, kind, how many losses it is the mean of, and the logarithm of
    what is left to gain there, over `EXCESS` of the loss.
    """

    group: np.ndarray
    run: np.ndarray
    log_step: np.ndarray
    kind: np.ndarray
    count: np.ndarray
    log_excess: np.ndarray

    def at(self, rows: np.ndarray) -> Places:
        return Places(**{part.name: getattr(self, part.name)[rows] for part in fields(self)})


def places_of(curves: Sequence[Curve], excess: np.ndarray) -> Places:
    """The places of the losses of curves, one after another; `excess` is the fraction of each that is left to gain."""
    lengths = [len(curve.steps) for curve in curves]
    groups = np.unique([curve.group for curve in curves], return_inverse=True)[1].reshape(-1)
    counts = [np.ones(len(c.steps)) if c.counts is None else c.counts for c in curves]
    return Places(
        np.repeat(groups, lengths),
        np.repeat(np.arange(len(curves)), lengths),
        np.log(np.concatenate([curve.steps for curve in curves])),
        np.concatenate([curve.kinds for curve in curves]),
        np.concatenate(counts),
        np.log(np.maximum(excess / EXCESS, LEAST_EXCESS)),
    )


def covariance(sizes: Sizes, one: Places, other: Places | None = None) -> np.ndarray:
    """Between the errors at two sets of places; of one set with itself the noise of each loss is on the diagonal."""
    two = one if other is None else other
    same_run = one.run[:, None] == two.run
    apart = np.abs(one.log_step[:, None] - two.log_step)
    shared = sizes.trunk**2 * (one.group[:, None] == two.group)
    shared = shared + sizes.run**2 * same_run * np.exp(-apart / sizes.length)
    shared = shared * np.exp(sizes.power * (one.log_excess[:, None] + two.log_excess))
    if other is None:
        noise = np.where(one.kind == 1, sizes.evaluation, sizes.training) ** 2 / one.count
        shared[np.diag_indices(len(noise))] += noise + SMALLEST**2
    return shared


@dataclass(frozen=True)
class CurveErrors:
    """The inverse root of the covariance of many curves, a block for each trunk, scaled to errors of size one."""

    sizes: Sizes
    places: Places

    @cached_property
    def _blocks(self) -> list[tuple[np.ndarray, np.ndarray]]:
        order = np.argsort(self.places.group, kind="stable")
        starts = np.flatnonzero(np.diff(self.places.group[order], prepend=-1))
        blocks = []
        for rows in np.split(order, starts[1:]):
            root = np.linalg.cholesky(covariance(self.sizes, self.places.at(rows)))
            blocks.append((rows, np.linalg.inv(root)))
        return blocks

    def whiten(self, values: np.ndarray) -> np.ndarray:
        """Values of the losses `[..., losses]` as combinations that do not correlate, of size one."""
        out = np.empty(values.shape)
        for rows, inverse in self._blocks:
            out[..., rows] = values[..., rows] @ inverse.T
        return out

    @property
    def log_determinant(self) -> float:
        """Of the covariance."""
        return float(-2.0 * sum(np.log(np.diag(inverse)).sum() for _, inverse in self._blocks))

    def at(self, rows: np.ndarray) -> CurveErrors:
        """For some of the losses."""
        return CurveErrors(self.sizes, self.places.at(rows))


def learned_sizes(places: Places, errors: np.ndarray, design: np.ndarray, first: Sizes | None = None) -> Sizes:
    """The sizes that the errors of a fit `[losses]` show; `design` `[parameters, losses]` is its derivative."""
    from scipy.optimize import minimize

    groups = np.unique(places.group)
    if len(groups) > GROUPS:
        chosen = groups[np.linspace(0, len(groups) - 1, GROUPS).round().astype(int)]
        rows = np.flatnonzero(np.isin(places.group, chosen))
        places, errors, design = places.at(rows), errors[rows], design[:, rows]
    has = {kind: bool((places.kind == kind).any()) for kind in (0, 1)}
    free = [0, 1, 2, *([3] if has[1] else []), *([4] if has[0] else []), 5]
    low, high = np.log(np.array(BOUNDS)).T
    starts = [np.log(astuple(begin)) for begin in (FIRST if first is None else [first])]

    def sizes(x: np.ndarray) -> Sizes:
        full = starts[0].copy()
        full[free] = x
        return Sizes(*map(float, np.exp(np.clip(full, low, high))))

    def negative(x: np.ndarray) -> float:
        current = CurveErrors(sizes(x), places)
        seen, rows = current.whiten(errors), current.whiten(design).T
        length = np.linalg.norm(rows, axis=0)
        length = np.where(length > 0, length, 1.0)
        basis, triangle = np.linalg.qr(rows / length)
        rest = seen - basis @ (basis.T @ seen)
        diagonal = np.maximum(np.abs(np.diag(triangle)), 1e-12)
        information = 2.0 * float(np.log(diagonal).sum() + np.log(length).sum())
        outside = float(np.sum(np.maximum(low[free] - x, 0.0) + np.maximum(x - high[free], 0.0)))
        return 0.5 * (float(rest @ rest) + current.log_determinant + information) + 10.0 * outside

    effort = {"maxfev": 300, "xatol": 0.03, "fatol": 0.05}
    ended = [minimize(negative, start[free], method="Nelder-Mead", options=effort) for start in starts]
    return sizes(min(ended, key=lambda end: end.fun).x)
