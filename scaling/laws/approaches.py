"""Chinchilla's approaches 1 and 2: how the optimal size and data grow with compute, without a law of the loss.

Approach 2, `isoflop`: N*(C) = k Cᵃ through the minima of the IsoFLOP curves (Hoffmann et al. 2022, arXiv 2203.15556,
section 3.2). A minimum is read off a parabola in log N, as there, or off Akima's interpolation of log loss (Porian et
al. 2024, arXiv 2406.19146), which follows a lopsided valley. A budget whose valley is not bracketed by its sizes has no
minimum: it is refused with its reason, never extrapolated.

A parabola reads a lopsided valley off its bottom, by an amount that depends on where the sizes lie, so that its
exponent is biased on points without any noise (arXiv 2603.22339). Cubics and quartics through the same points follow
the valley more closely; twice the largest distance to what they read bounds the bias, and every interval holds it.

Approach 1, `envelope`: the losses of many sizes are followed along training; at each compute C the lowest curve names
N*(C) and D*(C) (Hoffmann et al. 2022, section 3.1). Where the largest or the smallest size is lowest the envelope is
not closed, and those budgets are refused. The budgets of a fine grid are not independent (each is read off a few
curves), so the errors of the exponents are a jackknife over the runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from scaling.base.errors import ScalingError, nearest
from scaling.laws.intervals import student
from scaling.laws.points import Points

SAME_BUDGET = 0.05  # runs so close to a budget's centre are of that budget: a grid cannot spend exactly C
FEWEST = 3  # sizes below which a budget has no minimum
FLAT = 1e-9  # a parabola less bent than this fraction of its slope is a line, whichever way rounding bends it
CLOSEST = 1 / 3  # a minimum is never known better than this fraction of the spacing of the sizes it was read from
# Times the distance to the minima of a cubic and a quartic, within which a parabola's bias lies: on points without
# noise of 600 laws, grids and windows it held every exponent (tests/laws/test_approaches.py has a sample of these).
BIAS = 2.0
BUDGETS = 1500  # of an envelope, evenly spaced in their logarithm, as in the paper

AT_THE_EDGE = "the lowest loss is at the edge of the sizes"
INVERTED = "the parabola is inverted"
TOO_FEW = "fewer than three sizes"
UNSTABLE = "the seed noise moves the minimum to the edge in half of the draws"


@dataclass(frozen=True)
class PowerLawFit:
    """y = coefficient · x^exponent, with the standard error of the exponent where more than two points determine it."""

    coefficient: float
    exponent: float
    standard_error: float
    freedom: int

    def __call__(self, x: np.ndarray | float) -> np.ndarray | float:
        return self.coefficient * np.asarray(x, float) ** self.exponent

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The t-interval of the exponent; unbounded where two points alone were joined."""
        if self.freedom < 1:
            return (-np.inf, np.inf)
        half_width = student(level, self.freedom) * self.standard_error
        return (self.exponent - half_width, self.exponent + half_width)


def fit_power_law(x: np.ndarray, y: np.ndarray, spread: np.ndarray | None = None) -> PowerLawFit:
    """Least squares of log y on log x, weighted by 1/spread² where the standard deviation of log y is known."""
    if len(np.unique(x)) < 2:
        raise ScalingError("a power law needs points at two compute budgets or more", fix="add a budget")
    order = np.lexsort((y, x))  # a fixed order of summation: permuted rows change no digit
    log_x, log_y = np.log(np.asarray(x, float)[order]), np.log(np.asarray(y, float)[order])
    weight = np.ones_like(log_x) if spread is None else 1.0 / np.asarray(spread, float)[order]
    freedom, centre = len(log_x) - 2, log_x.mean()
    (exponent, level), inverse = np.polyfit(log_x - centre, log_y, 1, w=weight, cov="unscaled")
    square = float(np.sum((weight * (log_y - level - exponent * (log_x - centre))) ** 2))
    error = float(np.sqrt(inverse[0, 0] * square / freedom)) if freedom > 0 else np.inf
    return PowerLawFit(float(np.exp(level - exponent * centre)), float(exponent), error, freedom)


@dataclass(frozen=True)
class Minimum:
    """The bottom of one IsoFLOP curve: where it lies, the spread of its logarithm, or why there is none."""

    C: float
    sizes: np.ndarray
    losses: np.ndarray
    position: float = np.nan
    loss: float = np.nan
    spread: float = np.nan
    refused: str | None = None
    # The distances from the log of a parabola's minimum to those of a cubic and a quartic through the same points; not
    # a number where these have none within the sizes, and fewer where the sizes are too few. Those of an interpolation,
    # which has no form, are zero.
    shifts: tuple[float, ...] = ()
    interpolated: bool = False  # such a position has no residuals either

    @property
    def bias(self) -> float:
        """The bound on the error of the log of a parabola's position; infinite where nothing shows it."""
        return _bias(self.shifts)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The interval of the position by the noise (of seeds where it is known, else of the residuals) and the bias.

        It ends at the neighbours of the lowest loss where nothing shows an error: these bracket the valley.
        """
        if self.refused is not None:
            return np.nan, np.nan
        noise = NormalDist().inv_cdf(0.5 + level / 2) * self.spread
        half = float(np.hypot(noise if np.isfinite(noise) else self._residual_error(level), self.bias))
        if not np.isfinite(half):
            lowest = int(np.argmin(self.losses))
            low, high = self.sizes[max(lowest - 1, 0)], self.sizes[min(lowest + 1, len(self.sizes) - 1)]
            return min(float(low), self.position), max(float(high), self.position)
        low, high = self.position * np.exp(-half), self.position * np.exp(half)
        return max(float(low), float(self.sizes[0])), min(float(high), float(self.sizes[-1]))

    def to_json(self) -> dict[str, Any] | None:
        """The position and its interval; None where there is no minimum."""
        if self.refused is not None:
            return None
        low, high = self.interval()
        return {"estimate": self.position, "low": low, "high": high, "level": 0.95}

    def _residual_error(self, level: float) -> float:
        """The half-width of a parabola's log position by its residuals; infinite where there are none."""
        freedom = len(self.sizes) - 3
        if freedom < 1 or self.interpolated:
            return float("inf")
        (square, slope, _), covariance = np.polyfit(np.log(self.sizes / self.position), self.losses, 2, cov=True)
        gradient = np.array([slope / square**2, -1.0 / square, 0.0]) / 2.0
        return student(level, freedom) * float(np.sqrt(gradient @ covariance @ gradient))


@dataclass(frozen=True)
class IsoFlop:
    """The minima of every budget along one variable (N or D) and the power law through those that were accepted."""

    along: str
    kind: str
    minima: tuple[Minimum, ...]
    law: PowerLawFit
    draws: np.ndarray  # the exponent of each draw of seed noise; empty without noise

    @property
    def accepted(self) -> tuple[Minimum, ...]:
        return tuple(minimum for minimum in self.minima if minimum.refused is None)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The interval of the exponent: the wider of the scatter of the minima about the law and the seed noise.

        Seed noise alone is too narrow: it does not hold that a parabola reads a lopsided valley off its bottom, or
        that the minima leave a straight line by more than noise.
        """
        ends = [self.law.interval(level)] + ([self.noise_interval(level)] if len(self.draws) else [])
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        centre, bias = self.law.exponent, self.bias
        return centre - float(np.hypot(centre - low, bias)), centre + float(np.hypot(high - centre, bias))

    def noise_interval(self, level: float = 0.95) -> tuple[float, float]:
        """The interval by the draws of seed noise alone, as Porian et al. print it."""
        low, high = np.quantile(self.draws, [0.5 - level / 2, 0.5 + level / 2])
        return float(low), float(high)

    @property
    def shifts(self) -> tuple[float, ...]:
        """The distances from the exponent of the parabolas to those of the cubics and of the quartics."""
        columns = zip(*(minimum.shifts for minimum in self.accepted), strict=False)
        budgets = [minimum.C for minimum in self.accepted]
        return tuple(float(_slope(budgets, np.array(column))) for column in columns if np.isfinite(column).all())

    @property
    def bias(self) -> float:
        """The bound on the error of a parabola's exponent; infinite where nothing shows it."""
        return _bias(self.shifts)


def _bias(shifts: Sequence[float]) -> float:
    return BIAS * max(map(abs, shifts)) if len(shifts) and np.isfinite(shifts).all() else float("inf")


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

    `noise` is the standard deviation of the loss between seeds. With it every curve is drawn again with that noise,
    the minimum is the median of the draws, and the law weights each by the inverse square of its spread.
    """
    if kind not in KINDS:
        raise ScalingError("is no way to find a minimum", key="kind", value=kind, fix=nearest(kind, KINDS))
    generator, find = np.random.default_rng(seed), KINDS[kind]

    def minimum_of(curve: Minimum) -> tuple[Minimum, np.ndarray]:
        """The minimum of one budget, and the log positions of the draws of seed noise: none without noise."""
        x, losses, nothing = np.log(curve.sizes), curve.losses, np.empty(0)
        if len(x) < FEWEST:
            return replace(curve, refused=TOO_FEW), nothing
        position, bottom, reason = find(x, losses[:, None])
        if np.isnan(position[0]):
            return replace(curve, refused=reason), nothing
        minimum = replace(curve, shifts=(0.0, 0.0), interpolated=True)
        if kind == "parabola":
            shifts = tuple(_of_polynomial(x, losses, degree) - position[0] for degree in (3, 4) if degree < len(x))
            minimum = replace(curve, shifts=shifts)
        if noise is None:
            return replace(minimum, position=float(np.exp(position[0])), loss=float(bottom[0])), nothing
        positions, bottoms, _ = find(x, losses[:, None] + noise * generator.standard_normal((len(losses), draws)))
        valid = ~np.isnan(positions)
        if valid.mean() < 0.5:
            return replace(minimum, refused=UNSTABLE), nothing
        positions, spacing = positions[valid], (x[-1] - x[0]) / (len(x) - 1)
        # A minimum that often runs to the edge is known worse than the draws that stayed inside pretend.
        spread = max(float(positions.std()), CLOSEST * spacing) / float(valid.mean())
        place, loss = float(np.exp(np.median(positions))), float(np.median(bottoms[valid]))
        return replace(minimum, position=place, loss=loss, spread=spread), positions

    columns = np.stack([points.numbers(name) for name in ("loss", along, "C")])
    loss, size, compute = columns[:, np.lexsort(columns)]
    read = []
    for rows in _budgets(np.log(compute)):
        rows = rows[np.lexsort((loss[rows], size[rows]))]
        sizes, first = np.unique(size[rows], return_index=True)  # of runs at the same size the best is kept
        read.append(minimum_of(Minimum(float(np.exp(np.log(compute[rows]).mean())), sizes, loss[rows][first])))
    accepted = [(minimum, positions) for minimum, positions in read if minimum.refused is None]
    if len(accepted) < 2:
        reasons = [f"C={minimum.C:.3g}: {minimum.refused}" for minimum, _ in read if minimum.refused]
        what = f"{len(accepted)} of {len(read)} budgets have a minimum, a law needs two"
        what += f" ({'; '.join(reasons)})" if reasons else ""
        raise points.error(what, "add sizes on both sides of the lowest loss, or add budgets")
    budgets, positions, spread = np.array([(each.C, each.position, each.spread) for each, _ in accepted]).T
    law = fit_power_law(budgets, positions, None if noise is None else spread)
    count = min(len(drawn) for _, drawn in accepted)
    exponents = _slope(budgets, np.stack([drawn[:count] for _, drawn in accepted]))
    return IsoFlop(along, kind, tuple(minimum for minimum, _ in read), law, exponents)


def _budgets(log_compute: np.ndarray) -> list[np.ndarray]:
    """The rows of each budget, of rows in the order of their compute.

    A group is split at its widest gap until all its runs lie within 5% of its centre, so that budgets that follow each
    other closely are not chained into one.
    """
    waiting, groups = [np.arange(len(log_compute))], []
    while waiting:
        rows = waiting.pop()
        gaps = np.diff(log_compute[rows])
        if gaps.sum() <= 2 * np.log1p(SAME_BUDGET):
            groups.append(rows)
            continue
        widest = np.flatnonzero(gaps >= gaps.max() * (1 - 1e-6))
        cut = int(widest[np.abs(widest - (len(gaps) - 1) / 2).argmin()]) + 1  # of equal gaps the one in the middle
        waiting += [rows[cut:], rows[:cut]]
    return groups


def _slope(budgets: np.ndarray | list[float], logs: np.ndarray) -> np.ndarray:
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


def _of_polynomial(x: np.ndarray, losses: np.ndarray, degree: int) -> float:
    """The lowest point within the sizes of the least-squares polynomial of this degree, where it is a minimum."""
    half = np.ptp(x) / 2
    curve = np.polynomial.Polynomial.fit((x - x[0]) / half - 1.0, losses, degree, domain=[-1.0, 1.0])
    roots = curve.deriv().roots()
    roots = roots[np.abs(roots.imag) < 1e-9].real
    roots = roots[(np.abs(roots) < 1.0) & (curve.deriv(2)(roots) > 0)]
    return float(x[0] + half * (1.0 + roots[np.argmin(curve(roots))])) if len(roots) else np.nan


def _akima(x: np.ndarray, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
    """The lowest point of Akima's piecewise cubic through log loss, of every column, by the roots of its derivative."""
    from scipy.interpolate import Akima1DInterpolator, PPoly

    curves = Akima1DInterpolator(x, np.log(losses))
    lowest = np.empty((2, losses.shape[1]))
    for column, roots in enumerate(curves.derivative().roots(extrapolate=False)):
        places = np.concatenate([x, roots[np.isfinite(roots)]])
        heights = PPoly(curves.c[..., column], x)(places)
        lowest[:, column] = places[heights.argmin()], heights.min()
    inside = (lowest[0] > x[0]) & (lowest[0] < x[-1])
    return *np.where(inside, (lowest[0], np.exp(lowest[1])), np.nan), AT_THE_EDGE


KINDS = {"parabola": _parabola, "akima": _akima}


@dataclass(frozen=True)
class Envelope:
    """The lowest curve at each accepted budget, and the power laws of its size and tokens."""

    C: np.ndarray
    N: np.ndarray
    D: np.ndarray
    loss: np.ndarray
    refused: int  # budgets at which the lowest curve was that of the smallest or the largest size that reaches them
    N_law: PowerLawFit
    D_law: PowerLawFit


def envelope(points: Points, *, budgets: int = BUDGETS) -> Envelope:
    """The envelope of the curves of `points`: one row a run and evaluation, with run, N, D, C and loss."""
    size, names = points.numbers("N"), points["run"]
    table = np.column_stack([size, *(points.numbers(name) for name in ("C", "D", "loss"))])
    runs = []  # the rows of each run along its training, by size and then name
    for run in sorted(set(names.tolist()), key=lambda run: (size[names == run][0], str(run))):
        rows = table[names == run]
        if len(np.unique(rows[:, 0])) > 1:
            raise points.error("one run has two sizes", "fix N", "run", value=run)
        runs.append(rows[np.argsort(rows[:, 1], kind="stable")])
    if len({rows[0, 0] for rows in runs}) < 3:
        fix = "give a row a run and evaluation, with columns run, N, D, C and loss"
        raise points.error("an envelope needs the curves of three sizes or more", fix)
    lowest = _lowest(runs, budgets)
    if lowest is None:
        what = "the envelope is not closed: at almost every compute the smallest or largest size is lowest"
        raise points.error(what, "add sizes on both sides, or train them longer")
    fewer = [_lowest(runs[:left] + runs[left + 1 :], budgets) for left in range(len(runs))]
    closed = [other for other in fewer if other is not None]

    def jackknifed(name: str) -> PowerLawFit:
        exponents = [getattr(other, name).exponent for other in closed]
        error = float(np.sqrt((len(closed) - 1) * np.var(exponents))) if len(closed) > 1 else np.inf
        return replace(getattr(lowest, name), standard_error=error, freedom=max(len(closed) - 1, 0))

    return replace(lowest, N_law=jackknifed("N_law"), D_law=jackknifed("D_law"))


def _lowest(runs: list[np.ndarray], budgets: int) -> Envelope | None:
    """The closed part of the envelope of runs of N, C, D and loss, if two sizes or more make it."""
    ends = np.log([(rows[0, 1], rows[-1, 1]) for rows in runs])
    grid = np.linspace(ends.min(), ends.max(), budgets)

    def along(rows: np.ndarray, column: int) -> np.ndarray:
        """A curve between its own evaluations, in logarithms; nothing before its first or after its last."""
        return np.exp(np.interp(grid, np.log(rows[:, 1]), np.log(rows[:, column]), left=np.nan, right=np.nan))

    losses, tokens = (np.stack([along(rows, column) for rows in runs]) for column in (3, 2))
    sizes = np.array([rows[0, 0] for rows in runs])
    covered = np.isfinite(losses).any(axis=0)
    grid, losses, tokens = grid[covered], losses[:, covered], tokens[:, covered]
    reached = np.isfinite(losses)
    lowest = np.where(reached, losses, np.inf).argmin(axis=0)
    smallest = np.where(reached, sizes[:, None], np.inf).min(axis=0)
    largest = np.where(reached, sizes[:, None], -np.inf).max(axis=0)
    closed = (sizes[lowest] > smallest) & (sizes[lowest] < largest)
    if len(np.unique(sizes[lowest[closed]])) < 2:
        return None
    rows, columns = lowest[closed], np.flatnonzero(closed)
    compute, size, data = np.exp(grid[closed]), sizes[rows], tokens[rows, columns]
    laws = fit_power_law(compute, size), fit_power_law(compute, data)
    return Envelope(compute, size, data, losses[rows, columns], int((~closed).sum()), *laws)
