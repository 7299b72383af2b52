"""How the losses of curves err: by trunk, along a run, and by the noise of each measurement.

    e(s) = (N / N₀)^-p (D(s) / D₀)^-q (b + w(s)) + ε,  cov(w(s), w(t)) = a² exp(-|log s - log t| / ℓ)

b is of the trunk, w of the run (autocorrelated), ε of the batch or of the evaluation. Training losses have another ε
than evaluations, so that each kind counts by what it knows. Runs of larger models lie closer together, and so do runs
that have read more tokens D; N₀ and D₀ are the medians. The sizes and powers are those of the largest restricted
likelihood (Patterson and Thompson 1971, Biometrika 58(3)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import cached_property

import numpy as np

from scaling.law.curves.curve import Curve

GROUPS = 12
"""Trunks from which the sizes of the errors are learned where there are more: the others would change little."""
SMALLEST = 1e-6
BOUNDS = ((1e-5, 0.3), (1e-5, 0.3), (0.03, 5.0), (1e-6, 0.1), (1e-4, 1.0), (0.01, 1.0), (0.01, 1.0))


@dataclass(frozen=True)
class Sizes:
    """Of the errors of log loss."""

    trunk: float
    run: float
    length: float
    """ℓ: over which stretch of log steps the error of a run changes."""
    evaluation: float
    training: float
    by_size: float = 0.0
    """p: the power of N by which the errors of trunks and runs shrink."""
    by_tokens: float = 0.0
    """q: that of the tokens read."""
    N: float = 1.0
    """At which the sizes are stated."""
    D: float = 1.0


TYPICAL = Sizes(2e-3, 5e-4, 0.3, 8e-4, 2.5e-2, 0.5, 0.3)
"""Under which a law is fitted first: the errors of a fit without a covariance would show its own faults."""


@dataclass(frozen=True)
class Places:
    """Where each loss lies: its trunk, its run, log step, kind, how many losses it is the mean of, log N and log D."""

    group: np.ndarray
    run: np.ndarray
    log_step: np.ndarray
    kind: np.ndarray
    count: np.ndarray
    log_size: np.ndarray
    log_tokens: np.ndarray

    def at(self, rows: np.ndarray) -> Places:
        return Places(**{part.name: getattr(self, part.name)[rows] for part in fields(self)})


def places_of(curves: Sequence[Curve]) -> Places:
    """The places of the losses of curves, one after another."""
    lengths = [len(curve.steps) for curve in curves]
    groups = np.unique([curve.group for curve in curves], return_inverse=True)[1].reshape(-1)
    counts = [np.ones(len(c.steps)) if c.counts is None else c.counts for c in curves]
    return Places(
        np.repeat(groups, lengths),
        np.repeat(np.arange(len(curves)), lengths),
        np.log(np.concatenate([curve.steps for curve in curves])),
        np.concatenate([curve.kinds for curve in curves]),
        np.concatenate(counts),
        np.repeat(np.log([curve.N for curve in curves]), lengths),
        np.log(np.concatenate([curve.steps * curve.tokens_per_step for curve in curves])),
    )


def covariance(sizes: Sizes, one: Places, other: Places | None = None) -> np.ndarray:
    """Between the errors at two sets of places; of one set with itself the noise of each loss is on the diagonal."""
    two = one if other is None else other
    same_run = one.run[:, None] == two.run
    apart = np.abs(one.log_step[:, None] - two.log_step)
    shared = sizes.trunk**2 * (one.group[:, None] == two.group)
    shared = shared + sizes.run**2 * same_run * np.exp(-apart / sizes.length)
    shared = shared * (_scale(sizes, one)[:, None] * _scale(sizes, two))
    if other is None:
        noise = np.where(one.kind == 1, sizes.evaluation, sizes.training) ** 2 / one.count
        shared[np.diag_indices(len(noise))] += noise + SMALLEST**2
    return shared


def _scale(sizes: Sizes, places: Places) -> np.ndarray:
    """How large the errors of trunks and runs are, as a multiple of those that are stated."""
    size, tokens = places.log_size - np.log(sizes.N), places.log_tokens - np.log(sizes.D)
    return np.exp(-sizes.by_size * size - sizes.by_tokens * tokens)


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


def some_trunks(places: Places, losses: int = 0) -> np.ndarray:
    """The rows of GROUPS trunks, spread over all sizes, or of more where these have fewer losses than are wanted."""
    trunks, first = np.unique(places.group, return_index=True)
    count = min(len(trunks), max(GROUPS, len(trunks) * losses // len(places.group)))
    order = np.argsort(places.log_size[first], kind="stable")
    chosen = order[np.linspace(0, len(trunks) - 1, count).round().astype(int)]
    return np.flatnonzero(np.isin(places.group, trunks[chosen]))


def typical_sizes(places: Places) -> Sizes:
    """Those of no study in particular, at the medians of size and tokens."""
    return replace(TYPICAL, N=float(np.exp(np.median(places.log_size))), D=float(np.exp(np.median(places.log_tokens))))


def learned_sizes(places: Places, errors: np.ndarray, design: np.ndarray, begin: Sizes) -> Sizes:
    """The sizes that the errors of a fit `[losses]` show; `design` `[parameters, losses]` is its derivative."""
    from scipy.optimize import minimize

    rows = some_trunks(places)
    places, errors, design = places.at(rows), errors[rows], design[:, rows]
    has = {kind: bool((places.kind == kind).any()) for kind in (0, 1)}
    free = [0, 1, 2, *([3] if has[1] else []), *([4] if has[0] else []), 5, 6]
    low, high = np.log(np.array(BOUNDS)).T
    start = np.log(astuple(begin)[: len(BOUNDS)])

    def sizes(x: np.ndarray) -> Sizes:
        full = start.copy()
        full[free] = x
        return Sizes(*np.exp(np.clip(full, low, high)).tolist(), N=begin.N, D=begin.D)

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

    best = minimize(negative, start[free], method="Nelder-Mead", options={"maxfev": 300, "xatol": 0.03, "fatol": 0.05})
    return sizes(best.x)
