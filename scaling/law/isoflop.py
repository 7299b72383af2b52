"""Chinchilla's approach 2: at each compute budget the size of lowest loss, and how it grows with compute.

N*(C) = k Cᵃ through the minima of the IsoFLOP curves (Hoffmann et al. 2022, arXiv 2203.15556, section 3.2). A minimum
is read off a parabola in log N, as there, or off Akima's interpolation of log loss (Porian et al. 2024, arXiv
2406.19146), which follows a lopsided valley. A budget whose valley is not bracketed by its sizes has no minimum: it is
refused with its reason, never extrapolated.

A parabola reads a lopsided valley off its bottom, by an amount that depends on where the sizes lie, so that its
exponent is biased on points without any noise (arXiv 2603.22339). Cubics and quartics through the same points follow
the valley more closely; twice the largest distance to what they read bounds the bias, and every interval holds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from scaling.errors import ScalingError, nearest
from scaling.law.noise import student
from scaling.law.points import Points
from scaling.law.power_law_fit import PowerLawFit, fit_power_law

SAME_BUDGET = 0.05
"""Runs within 5% of a budget's centre are of that budget: a grid of real models cannot spend exactly C."""

APART = 5
"""Runs so close that this many times their own span is empty around them are budgets of their own, however near."""

FEWEST = 3
"""Sizes below which a budget has no minimum."""

ROUNDING = 0.01
"""Budgets that differ by less than 1% of compute are one."""

FLAT = 1e-9
"""A parabola less bent than this fraction of its slope is a line, whichever way rounding bends it."""

CLOSEST = 1 / 3
"""A minimum is never held to be known better than a third of the spacing of the sizes it was read from."""

BIAS = 2.0
"""Times the distance to the minima of a cubic and a quartic, within which a parabola's bias lies: on points without
noise of 600 laws, grids and windows it held every exponent (tests/law/test_isoflop.py has a sample of these)."""

AT_THE_EDGE = "the lowest loss is at the edge of the sizes"
INVERTED = "the parabola is inverted"
TOO_FEW = "fewer than three sizes"
UNSTABLE = "the seed noise moves the minimum to the edge in half of the draws"


@dataclass(frozen=True)
class Minimum:
    """The bottom of one IsoFLOP curve: where it lies, the spread of its logarithm, or why there is none."""

    C: float
    position: float
    loss: float
    spread: float
    refused: str | None
    sizes: np.ndarray
    losses: np.ndarray
    shifts: tuple[float, ...] = ()
    """How far from the parabola's minimum a cubic and a quartic through the same points have theirs, in the logarithm;
    not a number where they have none within the sizes, and fewer where the sizes are too few for them."""

    interpolated: bool = False
    """Whether the position is that of an interpolation, which has no residuals and no form of its own."""

    @property
    def bias(self) -> float:
        """The bound on the error of the log of a parabola's position; infinite where nothing shows it."""
        if self.interpolated:
            return 0.0
        distances = np.abs(self.shifts)
        return BIAS * float(distances.max()) if len(distances) and np.isfinite(distances).all() else float("inf")

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Of the position: by the noise (of seeds where that is known, else of the residuals) and by the bias.

        It ends at the neighbours of the lowest loss where nothing shows an error: these bracket the valley.
        """
        if self.refused is not None:
            return np.nan, np.nan
        known = np.isfinite(self.spread)
        noise = NormalDist().inv_cdf(0.5 + level / 2) * self.spread if known else _vertex_error(self, level)
        half = float(np.hypot(noise, self.bias))
        if not np.isfinite(half):
            lowest = int(np.argmin(self.losses))
            low, high = self.sizes[max(lowest - 1, 0)], self.sizes[min(lowest + 1, len(self.sizes) - 1)]
            return min(float(low), self.position), max(float(high), self.position)
        low, high = self.position * np.exp(-half), self.position * np.exp(half)
        return max(float(low), float(self.sizes[0])), min(float(high), float(self.sizes[-1]))


@dataclass(frozen=True)
class IsoFlop:
    """The minima of every budget along one variable (N or D) and the power law through those that were accepted."""

    along: str
    kind: str
    minima: tuple[Minimum, ...]
    law: PowerLawFit
    draws: np.ndarray
    """The exponent of each draw of seed noise; empty without noise."""

    @property
    def accepted(self) -> tuple[Minimum, ...]:
        return tuple(minimum for minimum in self.minima if minimum.refused is None)

    @property
    def refused(self) -> tuple[Minimum, ...]:
        return tuple(minimum for minimum in self.minima if minimum.refused is not None)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Of the exponent: as wide as the scatter of the minima about the law, and as the seed noise, each demand.

        Seed noise alone is too narrow: it does not hold that a parabola reads a lopsided valley off its bottom, or
        that the minima leave a straight line by more than noise.
        """
        ends = [self.law.interval(level)] + ([self.noise_interval(level)] if len(self.draws) else [])
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        centre, bias = self.law.exponent, self.bias
        return centre - float(np.hypot(centre - low, bias)), centre + float(np.hypot(high - centre, bias))

    @property
    def shifts(self) -> tuple[float, ...]:
        """How far from the parabolas' exponent the minima of cubics have theirs, and those of quartics."""
        budgets = np.array([minimum.C for minimum in self.accepted])
        counts = min(len(minimum.shifts) for minimum in self.accepted)
        read = (np.array([minimum.shifts[place] for minimum in self.accepted]) for place in range(counts))
        return tuple(float(_slope(budgets, moved)) for moved in read if np.isfinite(moved).all())

    @property
    def bias(self) -> float:
        """The bound on the error of a parabola's exponent; infinite where nothing shows it, 0 of another kind."""
        if self.kind != "parabola":
            return 0.0
        return BIAS * max(map(abs, self.shifts)) if self.shifts else float("inf")

    def noise_interval(self, level: float = 0.95) -> tuple[float, float]:
        """By the draws of seed noise alone, as Porian et al. print it."""
        low, high = np.quantile(self.draws, [0.5 - level / 2, 0.5 + level / 2])
        return float(low), float(high)


def isoflop(
    points: Points,
    *,
    along: str = "N",
    kind: str = "parabola",
    noise: float | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> IsoFlop:
    """The minima along `along` (N or D) and the power law through them.

    `noise` is the standard deviation of the loss between seeds. Given it, every curve is drawn again with that noise,
    the minimum is the median of the draws, and the law weights each by the inverse square of its spread.
    """
    if kind not in KINDS:
        raise ScalingError("is no way to find a minimum", key="kind", value=kind, fix=nearest(kind, KINDS))
    generator = np.random.default_rng(seed)
    read, resampled = [], []
    for budget, sizes, losses in curves(points, along):
        minimum, positions = _bottom(budget, sizes, losses, KINDS[kind], noise, draws, generator)
        read.append(minimum)
        if minimum.refused is None and positions is not None:
            resampled.append(positions)
    accepted = [minimum for minimum in read if minimum.refused is None]
    if len(accepted) < 2:
        reasons = "; ".join(f"C={minimum.C:.3g}: {minimum.refused}" for minimum in read if minimum.refused)
        raise ScalingError(
            f"{len(accepted)} of {len(read)} budgets have a minimum, a law needs two ({reasons})",
            file=points.source or None,
            fix="add sizes on both sides of the lowest loss, or add budgets",
        )
    budgets = np.array([minimum.C for minimum in accepted])
    positions = np.array([minimum.position for minimum in accepted])
    spread = None if noise is None else np.array([minimum.spread for minimum in accepted])
    law = fit_power_law(budgets, positions, spread)
    return IsoFlop(along, kind, tuple(read), law, _exponents(budgets, resampled))


def curves(points: Points, along: str = "N") -> list[tuple[float, np.ndarray, np.ndarray]]:
    """(C, sizes, losses) of each budget, sizes ascending; of runs at the same size the best is kept."""
    compute, size, loss = points.numbers("C"), points.numbers(along), points.numbers("loss")
    order = np.lexsort((loss, size, compute))
    compute, size, loss = compute[order], size[order], loss[order]
    out = []
    for chunk in _budgets(np.log(compute), size):
        chunk = chunk[np.lexsort((loss[chunk], size[chunk]))]
        sizes, first = np.unique(size[chunk], return_index=True)
        out.append((float(np.exp(np.log(compute[chunk]).mean())), sizes, loss[chunk][first]))
    return out


def _budgets(log_compute: np.ndarray, size: np.ndarray) -> list[np.ndarray]:
    """The rows of each budget, of rows in the order of their compute.

    A group is split at its widest gap until all its runs lie within 5% of its centre, so that budgets that follow each
    other closely are not chained into one; and further where both sides are sharp and have the sizes of a curve.
    """
    waiting, groups = [np.arange(len(log_compute))], []
    while waiting:
        rows = waiting.pop()
        places = log_compute[rows]
        gaps = np.diff(places)
        if len(rows) < 2:
            groups.append(rows)
            continue
        widest = np.flatnonzero(gaps >= gaps.max() * (1 - 1e-6))
        cut = int(widest[np.abs(widest - (len(gaps) - 1) / 2).argmin()]) + 1  # of equal gaps the one in the middle
        sides = rows[:cut], rows[cut:]
        spread = max(float(np.ptp(log_compute[side])) for side in sides)
        sharp = gaps.max() > APART * spread and min(len(np.unique(size[side])) for side in sides) >= FEWEST
        if places[-1] - places[0] > 2 * np.log1p(SAME_BUDGET) or (sharp and gaps.max() > ROUNDING):
            waiting += [sides[1], sides[0]]
        else:
            groups.append(rows)
    return groups


def _bottom(
    budget: float,
    sizes: np.ndarray,
    losses: np.ndarray,
    find: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, str]],
    noise: float | None,
    draws: int,
    generator: np.random.Generator,
) -> tuple[Minimum, np.ndarray | None]:
    nothing = Minimum(budget, np.nan, np.nan, np.nan, None, sizes, losses)
    if len(sizes) < FEWEST:
        return _refuse(nothing, TOO_FEW), None
    x = np.log(sizes)
    position, bottom, reason = find(x, losses[:, None])
    if np.isnan(position[0]):
        return _refuse(nothing, reason), None
    shifts = tuple(_minimum(x, losses, degree) - position[0] for degree in (3, 4) if degree < len(x))
    read = (sizes, losses, shifts, find is not _parabola)
    if noise is None:
        return Minimum(budget, float(np.exp(position[0])), float(bottom[0]), np.nan, None, *read), None
    noisy = losses[:, None] + noise * generator.standard_normal((len(losses), draws))
    positions, bottoms, _ = find(x, noisy)
    valid = ~np.isnan(positions)
    if valid.mean() < 0.5:
        return _refuse(nothing, UNSTABLE), None
    spacing = (x[-1] - x[0]) / (len(x) - 1)
    # A minimum that often runs to the edge is known worse than the draws that stayed inside pretend.
    spread = max(float(positions[valid].std()), CLOSEST * spacing) / valid.mean()
    centre, loss = float(np.median(positions[valid])), float(np.median(bottoms[valid]))
    return Minimum(budget, float(np.exp(centre)), loss, spread, None, *read), positions[valid]


def _refuse(minimum: Minimum, reason: str) -> Minimum:
    return Minimum(minimum.C, np.nan, np.nan, np.nan, reason, minimum.sizes, minimum.losses)


def _exponents(budgets: np.ndarray, resampled: list[np.ndarray]) -> np.ndarray:
    """The slope of each draw of all budgets at once."""
    if not resampled:
        return np.empty(0)
    count = min(map(len, resampled))
    positions = np.stack([positions[:count] for positions in resampled])
    return _slope(budgets, positions)


def _slope(budgets: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """The exponent of least squares through logs `[budgets, …]`."""
    x = np.log(budgets) - np.log(budgets).mean()
    return x @ logs / (x @ x)


def _parabola(x: np.ndarray, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
    """The vertex of the least-squares parabola of the loss in log size, of every column of `losses`."""
    centre, width = x.mean(), np.ptp(x)
    scaled = (x - centre) / width
    square, slope, level = np.polyfit(scaled, losses, 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        vertex = -slope / (2 * square)
        bottom = level + slope * vertex / 2
    inside = (square > 0) & (vertex > scaled[0]) & (vertex < scaled[-1])
    reason = INVERTED if square[0] < -FLAT * abs(slope[0]) else AT_THE_EDGE
    return np.where(inside, centre + width * vertex, np.nan), np.where(inside, bottom, np.nan), reason


def _minimum(x: np.ndarray, losses: np.ndarray, degree: int) -> float:
    """The lowest point within the sizes of the least-squares polynomial of this degree, where it is a minimum."""
    half = np.ptp(x) / 2
    curve = np.polynomial.Polynomial.fit((x - x[0]) / half - 1.0, losses, degree, domain=[-1.0, 1.0])
    roots = curve.deriv().roots()
    roots = roots[np.abs(roots.imag) < 1e-9].real
    roots = roots[(np.abs(roots) < 1.0) & (curve.deriv(2)(roots) > 0)]
    return float(x[0] + half * (1.0 + roots[np.argmin(curve(roots))])) if len(roots) else np.nan


def _vertex_error(minimum: Minimum, level: float) -> float:
    """The half-width of a parabola's log position by its residuals; infinite where there are none."""
    freedom = len(minimum.sizes) - 3
    if freedom < 1 or minimum.interpolated:
        return float("inf")
    x = np.log(minimum.sizes / minimum.position)
    design = np.column_stack([x**2, x, np.ones_like(x)])
    solution, *_ = np.linalg.lstsq(design, minimum.losses, rcond=None)
    variance = np.sum((minimum.losses - design @ solution) ** 2) / freedom
    slope = np.array([solution[1] / solution[0] ** 2, -1.0 / solution[0], 0.0]) / 2.0
    return student(level, freedom) * float(np.sqrt(variance * slope @ np.linalg.inv(design.T @ design) @ slope))


def _akima(x: np.ndarray, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
    """The lowest point of Akima's piecewise cubic through log loss, of every column, by the roots of its derivative."""
    from scipy.interpolate import Akima1DInterpolator

    y = np.log(losses)
    cubic, square, slope, level = Akima1DInterpolator(x, y).c  # each [intervals, columns], in powers of x - x_i
    width = np.diff(x)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(square**2 - 3 * cubic * slope)
        # The root of 3c t² + 2s t + l where the second derivative is positive, in the form that does not cancel.
        inner = np.where(square > 0, -slope / (square + root), (root - square) / (3 * cubic))
        inner = np.where((inner > 0) & (inner < width), inner, 0.0)
    value = ((cubic * inner + square) * inner + slope) * inner + level
    value = np.concatenate([value, y[-1:]])  # an interval without a root counts as its left knot; the last knot is left
    place = np.concatenate([x[:-1, None] + inner, np.broadcast_to(x[-1:, None], y[-1:].shape)])
    best = value.argmin(axis=0)[None]
    position, bottom = (np.take_along_axis(array, best, axis=0)[0] for array in (place, value))
    inside = (position > x[0]) & (position < x[-1])
    return np.where(inside, position, np.nan), np.where(inside, np.exp(bottom), np.nan), AT_THE_EDGE


KINDS = {"parabola": _parabola, "akima": _akima}
