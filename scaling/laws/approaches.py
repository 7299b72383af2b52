"""Chinchilla's approaches 1 and 2: how the optimal size and data grow with compute, without a law of the loss.

Approach 2, `isoflop`: N*(C) = k Cᵃ through the minima of the IsoFLOP curves (Hoffmann et al. 2022, arXiv 2203.15556,
section 3.2). A minimum is that of a parabola in log N, as in the paper, or of Akima's interpolation of log loss (Porian
et al. 2024, arXiv 2406.19146), which follows an asymmetric valley. A budget whose valley is not bracketed by its sizes
has no minimum: it is refused with its reason, never extrapolated.

The minimum of a parabola is not that of an asymmetric valley. The error depends on the sizes, so the exponent is biased
even without noise (arXiv 2603.22339). Cubics and quartics through the same points follow the valley more closely; twice
the largest distance to their minima bounds the bias, and every interval includes this bound.

Approach 1, `envelope`: the losses of many sizes are followed along training; at each compute C the lowest curve names
N*(C) and D*(C) (Hoffmann et al. 2022, section 3.1). Where the largest or the smallest size is lowest the envelope is
not closed, and those budgets are refused. The budgets of a fine grid are not independent (each is read off a few
curves), so the errors of the exponents are a jackknife over the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from scaling.base.errors import nearest, refuse
from scaling.laws.intervals import LEVEL, Interval, student
from scaling.laws.points import Points

# Times the distance to the minima of a cubic and a quartic, within which a parabola's bias lies: on points without
# noise of 600 laws, grids and windows it held every exponent (tests/laws/test_approaches.py has a sample of these).
BIAS = 2.0

AT_THE_EDGE = "the lowest loss is at the edge of the sizes"
INVERTED = "the parabola is inverted"
TOO_FEW = "fewer than three sizes"


@dataclass(frozen=True)
class PowerLaw:
    """y = coefficient · x^exponent, with the interval of the exponent."""

    coefficient: float
    exponent: Interval

    def __call__(self, x: np.ndarray | float) -> np.ndarray | float:
        return self.coefficient * np.asarray(x, float) ** self.exponent.estimate


def _exponent(estimate: float, error: float, freedom: int, method: str = "t") -> Interval:
    """The t-interval of an exponent; open if there are only two points."""
    half = student(LEVEL, freedom) * error if freedom > 0 else np.inf
    return Interval("exponent", float(estimate), float(estimate - half), float(estimate + half), LEVEL, method)


def fit_power_law(x: np.ndarray, y: np.ndarray, spread: np.ndarray | None = None) -> PowerLaw:
    """Least squares of log y on log x, weighted by 1/spread² where the standard deviation of log y is known."""
    refuse(len(np.unique(x)) < 2, "a power law needs points at two compute budgets or more", "add a budget")
    order = np.lexsort((y, x))  # a fixed order of summation: permuted rows change no digit
    log_x, log_y = np.log(np.asarray(x, float)[order]), np.log(np.asarray(y, float)[order])
    weight = np.ones_like(log_x) if spread is None else 1.0 / np.asarray(spread, float)[order]
    freedom, centre = len(log_x) - 2, log_x.mean()
    (slope, level), inverse = np.polyfit(log_x - centre, log_y, 1, w=weight, cov="unscaled")
    square = np.sum((weight * (log_y - level - slope * (log_x - centre))) ** 2)
    error = float(np.sqrt(inverse[0, 0] * square / max(freedom, 1)))
    return PowerLaw(float(np.exp(level - slope * centre)), _exponent(slope, error, freedom))


@dataclass(frozen=True)
class Minimum:
    """The minimum of one IsoFLOP curve: its place and the spread of its logarithm, or the reason why there is none."""

    C: float
    sizes: np.ndarray
    losses: np.ndarray
    refused: str | None = None
    position: Interval | None = None
    loss: float = np.nan
    spread: float = np.nan
    # The distances from the log of a parabola's minimum to those of a cubic and a quartic through the same points; not
    # a number where these have none within the sizes, and fewer where the sizes are too few. Those of an interpolation,
    # which has no form, are zero.
    shifts: tuple[float, ...] = ()
    draws: Sequence[float] = ()  # the log position of each draw of seed noise


@dataclass(frozen=True)
class IsoFlop:
    """The minima of every budget along one variable (N or D) and the power law through those that were accepted."""

    along: str
    kind: str
    minima: tuple[Minimum, ...]
    # Its exponent's interval holds the scatter of the minima about the law, the noise of seeds and the bias of
    # parabolas. Seed noise alone is too narrow: it does not hold that a parabola reads a lopsided valley off its
    # bottom, or that the minima leave a straight line.
    law: PowerLaw
    shifts: tuple[float, ...]  # the distances from the exponent of the parabolas to those of the cubics and quartics


def bias(shifts: Sequence[float]) -> float:
    """The bound on the error of a parabola's exponent, or of a log position; infinite where nothing shows it."""
    return BIAS * max(map(abs, shifts)) if len(shifts) and np.isfinite(shifts).all() else np.inf


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
    refuse(kind not in KINDS, "is not a method to find a minimum", nearest(kind, KINDS), key="kind", value=kind)
    generator, minima = np.random.default_rng(seed), []
    errors = None if noise is None else lambda sizes: noise * generator.standard_normal((sizes, draws))
    columns = np.stack([points.numbers(name) for name in ("loss", along, "C")])
    loss, size, compute = columns[:, np.lexsort(columns)]
    for rows in _budgets(np.log(compute)):
        rows = rows[np.lexsort((loss[rows], size[rows]))]
        sizes, first = np.unique(size[rows], return_index=True)  # of runs at the same size the best is kept
        curve = Minimum(float(np.exp(np.log(compute[rows]).mean())), sizes, loss[rows][first])
        minima.append(_minimum(curve, kind, errors))
    accepted = [(each, each.position.estimate) for each in minima if each.position is not None]
    reasons = "; ".join(f"C={minimum.C:.3g}: {minimum.refused}" for minimum in minima if minimum.refused)
    what = f"{len(accepted)} of {len(minima)} budgets have a minimum, a law needs two"
    fix = "add sizes on both sides of the lowest loss, or add budgets"
    points.refuse(len(accepted) < 2, what + (f" ({reasons})" if reasons else ""), fix)
    budgets, places, spread = np.array([(each.C, place, each.spread) for each, place in accepted]).T
    law = fit_power_law(budgets, places, None if noise is None else spread)
    shifts = zip(*(each.shifts for each, _ in accepted), strict=False)
    shifts = tuple(float(_slope(budgets, np.array(column))) for column in shifts if np.isfinite(column).all())
    ends, centre = [law.exponent.low, law.exponent.high], law.exponent.estimate
    if count := min(len(each.draws) for each, _ in accepted):
        exponents = _slope(budgets, np.stack([each.draws[:count] for each, _ in accepted]))
        ends += np.quantile(exponents, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2]).tolist()
    below, above = (float(np.hypot(reach, bias(shifts))) for reach in (centre - min(ends), max(ends) - centre))
    exponent = replace(law.exponent, low=centre - below, high=centre + above)
    return IsoFlop(along, kind, tuple(minima), replace(law, exponent=exponent), shifts)


def _minimum(curve: Minimum, kind: str, errors: Callable[[int], np.ndarray] | None) -> Minimum:
    """The minimum of one budget; `errors` draws the noise of seeds, `[sizes, draws]`.

    The interval of its position holds the noise (of seeds where it is known, else of the residuals) and the bias. It
    ends at the neighbours of the lowest loss where nothing shows an error: these bracket the valley.
    """
    sizes, losses, find = curve.sizes, curve.losses, KINDS[kind]
    if len(sizes) < 3:
        return replace(curve, refused=TOO_FEW)
    x = np.log(sizes)
    (place,), (loss,), reason = find(x, losses[:, None])
    if np.isnan(place):
        return replace(curve, refused=reason)
    shifts, error, spread, positions = (0.0, 0.0), np.inf, np.nan, ()
    if kind == "parabola":
        shifts = tuple(_of_polynomial(x, losses, degree) - place for degree in (3, 4) if degree < len(x))
        if (freedom := len(x) - 3) > 0:  # the error of the residuals, by the derivative of the vertex
            (square, slope, _), covariance = np.polyfit(x - place, losses, 2, cov=True)
            gradient = np.array([slope / square**2, -1.0 / square, 0.0]) / 2.0
            error = student(LEVEL, freedom) * float(np.sqrt(gradient @ covariance @ gradient))
    if errors is not None:
        positions, bottoms, _ = find(x, losses[:, None] + errors(len(x)))
        valid = ~np.isnan(positions)
        if valid.mean() < 0.5:
            return replace(curve, refused="the seed noise moves the minimum to the edge in half of the draws")
        positions, spacing = positions[valid], (x[-1] - x[0]) / (len(x) - 1)
        # A minimum that often runs to the edge is known worse than the draws that stayed inside pretend.
        # It is never known better than a third of the spacing of the sizes.
        spread = max(float(positions.std()), spacing / 3) / float(valid.mean())
        place, loss = np.median(positions), np.median(bottoms[valid])
        error = NormalDist().inv_cdf(0.5 + LEVEL / 2) * spread
    position, half = float(np.exp(place)), float(np.hypot(error, bias(shifts)))
    low, high = max(position * np.exp(-half), sizes[0]), min(position * np.exp(half), sizes[-1])
    if not np.isfinite(half):
        lowest = int(np.argmin(losses))
        low, high = min(sizes[max(lowest - 1, 0)], position), max(sizes[min(lowest + 1, len(x) - 1)], position)
    bounds = Interval("position", position, float(low), float(high), LEVEL, kind)
    return replace(curve, position=bounds, loss=float(loss), spread=spread, shifts=shifts, draws=positions)


def _budgets(log_compute: np.ndarray) -> list[np.ndarray]:
    """The rows of each budget, of rows in the order of their compute.

    A group is split at its widest gap until all its runs lie within 5% of its centre, so that budgets that follow each
    other closely are not chained into one.
    """
    waiting, groups = [np.arange(len(log_compute))], []
    while waiting:
        rows = waiting.pop()
        gaps = np.diff(log_compute[rows])
        # Runs within 5% of a budget's centre are of that budget: a grid cannot spend exactly C.
        if gaps.sum() <= 2 * np.log1p(0.05):
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
    # A parabola less bent than this fraction of its slope is a line, whichever way rounding bends it.
    reason = INVERTED if square[0] < -1e-9 * abs(slope[0]) else AT_THE_EDGE
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

    is_loss = (losses > 0).all(axis=0)  # noise about as large as the losses draws negative ones
    curves = Akima1DInterpolator(x, np.log(np.where(is_loss, losses, 1.0)))
    lowest = np.empty((2, losses.shape[1]))
    for column, roots in enumerate(curves.derivative().roots(extrapolate=False)):
        places = np.concatenate([x, roots[np.isfinite(roots)]])
        heights = PPoly(curves.c[..., column], x)(places)
        lowest[:, column] = places[heights.argmin()], heights.min()
    inside = is_loss & (lowest[0] > x[0]) & (lowest[0] < x[-1])
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
    N_law: PowerLaw
    D_law: PowerLaw


def envelope(points: Points, *, budgets: int = 1500) -> Envelope:
    """The envelope of the curves of `points`: one row for each run and evaluation, with run, N, D, C and loss."""
    size = points.numbers("N")
    table = np.column_stack([size, *(points.numbers(name) for name in ("C", "D", "loss"))])
    runs = []  # the rows of each run along its training, by size and then name
    for run, places in sorted(points.runs().items(), key=lambda item: (size[item[1][0]], item[0])):
        rows = table[places]
        points.refuse(np.ptp(rows[:, 0]), "one run has two sizes", "fix N", "run", value=run)
        runs.append(rows[np.argsort(rows[:, 1], kind="stable")])
    # Two sizes between the smallest and the largest.
    what, fix = "an envelope needs the curves of four sizes or more", "with a row a run and evaluation"
    points.refuse(len(np.unique(size)) < 4, what, f"add curves of other sizes, {fix}")
    lowest = _lowest(runs, budgets)
    if lowest is None:
        what = "the envelope is not closed: at almost every compute the smallest or largest size is lowest"
        raise points.error(what, "add sizes on both sides, or train them longer")
    others = [_lowest(runs[:left] + runs[left + 1 :], budgets) for left in range(len(runs))]

    def jackknifed(name: str) -> PowerLaw:
        law, exponents = getattr(lowest, name), [getattr(other, name).exponent.estimate for other in others if other]
        freedom = len(exponents) - 1
        error = float(np.sqrt(freedom * np.var(exponents))) if freedom > 0 else np.inf
        return replace(law, exponent=_exponent(law.exponent.estimate, error, freedom, "jackknife"))

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
