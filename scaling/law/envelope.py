"""Chinchilla's approach 1: the lower envelope of training curves, and how its size and data grow with compute.

Many sizes are trained, their losses followed along training; at each compute C the lowest curve names N*(C) and D*(C)
(Hoffmann et al. 2022, arXiv 2203.15556, section 3.1). Where the largest or the smallest size is lowest the envelope is
not closed, and those budgets are refused. The budgets of a fine grid are not independent (each is read off a few
curves), so the errors of the exponents are a jackknife over the runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from scaling.errors import ScalingError
from scaling.law.points import Points
from scaling.law.power_law_fit import PowerLawFit, fit_power_law

BUDGETS = 1500
"""Logarithmically spaced budgets, as in the paper."""


Curve = tuple[float, np.ndarray, np.ndarray, np.ndarray]
"""N of a run, and its C, D and loss along training."""


@dataclass(frozen=True)
class Envelope:
    """The lowest curve at each accepted budget, and the power laws of its size and tokens."""

    C: np.ndarray
    N: np.ndarray
    D: np.ndarray
    loss: np.ndarray
    refused: int
    """Budgets at which the lowest curve was that of the smallest or the largest size that reaches them."""
    N_law: PowerLawFit
    D_law: PowerLawFit


def envelope(points: Points, *, budgets: int = BUDGETS) -> Envelope:
    """The envelope of the curves of `points`: one row a run and evaluation, with run, N, D, C and loss."""
    curves = _curves(points)
    if len({size for size, *_ in curves}) < 3:
        raise ScalingError(
            "an envelope needs the curves of three sizes or more",
            file=points.source or None,
            fix="give a row a run and evaluation, with columns run, N, D, C and loss",
        )
    whole = _lowest(curves, budgets)
    if whole is None:
        raise ScalingError(
            "the envelope is not closed: at almost every compute the smallest or largest size is lowest",
            file=points.source or None,
            fix="add sizes on both sides, or train them longer",
        )
    fewer = [_lowest(curves[:left] + curves[left + 1 :], budgets) for left in range(len(curves))]
    closed = [other for other in fewer if other is not None]
    return replace(
        whole,
        N_law=_jackknifed(whole.N_law, [other.N_law.exponent for other in closed]),
        D_law=_jackknifed(whole.D_law, [other.D_law.exponent for other in closed]),
    )


def _jackknifed(law: PowerLawFit, exponents: list[float]) -> PowerLawFit:
    """The law with the error of its exponent from refits that each leave one run out."""
    count = len(exponents)
    if count < 2:
        return replace(law, standard_error=np.inf, freedom=0)
    return replace(law, standard_error=float(np.sqrt((count - 1) * np.var(exponents))), freedom=count - 1)


def _lowest(curves: list[Curve], budgets: int) -> Envelope | None:
    """The closed part of the envelope of these curves, if two sizes or more make it."""
    start = np.log(min(compute[0] for _, compute, *_ in curves))
    end = np.log(max(compute[-1] for _, compute, *_ in curves))
    grid = np.linspace(start, end, budgets)
    losses = np.stack([_along(grid, compute, loss) for _, compute, _, loss in curves])
    tokens = np.stack([_along(grid, compute, data) for _, compute, data, _ in curves])
    sizes = np.array([size for size, *_ in curves])

    reached = np.isfinite(losses)
    covered = reached.any(axis=0)
    grid, losses, tokens, reached = grid[covered], losses[:, covered], tokens[:, covered], reached[:, covered]
    lowest = np.where(reached, losses, np.inf).argmin(axis=0)
    smallest = np.where(reached, sizes[:, None], np.inf).min(axis=0)
    largest = np.where(reached, sizes[:, None], -np.inf).max(axis=0)
    closed = (sizes[lowest] > smallest) & (sizes[lowest] < largest)
    if len(np.unique(sizes[lowest[closed]])) < 2:
        return None
    columns = np.flatnonzero(closed)
    compute, size = np.exp(grid[closed]), sizes[lowest[closed]]
    data = tokens[lowest[closed], columns]
    return Envelope(
        C=compute,
        N=size,
        D=data,
        loss=losses[lowest[closed], columns],
        refused=int((~closed).sum()),
        N_law=fit_power_law(compute, size),
        D_law=fit_power_law(compute, data),
    )


def _curves(points: Points) -> list[Curve]:
    """The curve of each run, by size and then name."""
    size, compute, data, loss = (points.numbers(name) for name in ("N", "C", "D", "loss"))
    runs = points["run"]
    out = []
    for run in sorted(set(runs.tolist()), key=lambda run: (size[runs == run][0], str(run))):
        rows = np.flatnonzero(runs == run)
        rows = rows[np.argsort(compute[rows], kind="stable")]
        if len(np.unique(size[rows])) > 1:
            raise ScalingError("one run has two sizes", file=points.source or None, key="run", value=run, fix="fix N")
        out.append((float(size[rows[0]]), compute[rows], data[rows], loss[rows]))
    return out


def _along(grid: np.ndarray, compute: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A curve between its own evaluations, in logarithms; nothing before its first or after its last."""
    logs = np.interp(grid, np.log(compute), np.log(values), left=np.nan, right=np.nan)
    return np.exp(logs)
