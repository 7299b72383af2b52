"""Decision accuracy: how often the better of two rows at a small scale is the better one at a larger scale.

Magnusson et al. 2025, DataDecide (arXiv 2504.11393), section 3: of all pairs of rows, the fraction for which the winner
at the small scale is the winner at the target. The scales here are an early evaluation and the end of the same runs,
two sizes of a study, our runs and the paper's figures, or two kept tables.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr, stdtr

from scaling.errors import ScalingError, from_os
from scaling.printing import Table as Shown
from scaling.printing import short
from scaling.tables.downstream import merged
from scaling.tables.results import Results
from scaling.tables.statistics import LEVEL, compare
from scaling.tables.table import Table

SLOPES, UNINFORMED = np.geomspace(1e-3, 1e2, 101), np.linspace(0.0, 0.9, 10)
"""Of the calibration: the most likely pair is looked for among these."""
DRAWS, SEED = 1000, 0
SEPARATED = 0.95
"""The probability, by the seeds of the small scale, from which a pair counts as separated there."""
BINS = (0.5, 0.6, 0.75, 0.9, 1.0)
LEADS = (1.0, 2.0, 4.0)
"""Standard errors for which a calibrated probability is printed."""
FEWEST, FEWEST_OTHERS = 2, 5
"""Rows that a decision is between, and rows from which there are intervals and probabilities: a pair leaves three."""
STUDY_COLUMNS = ("row", "loss", "status", "N", "D")
PUBLISHED = {"early_loss": "the paper's early loss", "final_loss": "the paper's final loss"}


MEANING = (
    "Decision accuracy is the fraction of pairs whose winner is the same at both, with its 95% interval over rows. By "
    "the seeds is what noise would leave of it, were the true order the same; separated pairs are those that the seeds "
    f"of the first scale order with a probability of {SEPARATED:.0%}.",
)
UNITS = (
    "A lead is in standard errors of the difference of two means, or where no row has two runs in root mean squares of "
    "all leads. The predicted probability of a pair comes from the pairs that share no row with it.",
)


@dataclass(frozen=True)
class Scale:
    """The values of each row at one scale, a value a seed."""

    name: str
    values: Mapping[str, Sequence[float]]
    higher_is_better: bool = False


@dataclass(frozen=True)
class Bin:
    """Pairs of which the calibrated probability lies within two bounds."""

    low: float
    high: float
    pairs: int
    predicted: float
    won: float


@dataclass(frozen=True)
class Calibration:
    """A lead of z standard errors wins with probability u/2 + (1 - u) Φ(slope z).

    The unit is the root mean square of all leads where no row has two runs. u is the fraction of pairs whose order at
    the small scale predicts nothing of that at the larger one, however large the lead.
    """

    slope: float
    uninformed: float

    def probability(self, lead: float) -> float:
        return float(self.uninformed / 2.0 + (1.0 - self.uninformed) * ndtr(self.slope * lead))


@dataclass(frozen=True)
class Decision:
    """How the winners at one scale predict the winners at another."""

    small: str
    large: str
    rows: int
    pairs: int
    ties: int
    """Pairs without a winner at the larger scale, which are left out."""
    accuracy: float
    low: float | None
    high: float | None
    """A percentile interval over rows that are drawn again: pairs of one row belong together. None of fewer than five.
    """
    by_seeds: float | None
    """The accuracy that the seeds of the small scale would give, were the true order the same at both; None where no
    row has two runs."""
    separated: int | None
    """Pairs that the seeds of the small scale separate."""
    separated_accuracy: float | None
    calibration: Calibration | None
    """None of fewer than five rows."""
    bins: tuple[Bin, ...]
    """Of probabilities whose calibration is fitted without the pairs of either row."""
    brier: float | None
    """Of the same probabilities: their mean squared distance from what came; 0.25 is that of a coin."""

    def probability(self, lead: float) -> float | None:
        """Of winning at the larger scale with a lead of that many standard errors at the small one."""
        return None if self.calibration is None else self.calibration.probability(lead)

    def to_json(self) -> dict[str, Any]:
        calibration = None if self.calibration is None else vars(self.calibration)
        return {**vars(self), "calibration": calibration, "bins": [vars(each) for each in self.bins]}


def decide(small: Scale, large: Scale, baselines: Mapping[str, str] | None = None) -> Decision | None:
    """The decisions that one scale makes for another; None where fewer than two rows, or no pair, are at both.

    Rows of two `baselines` are not compared: they are of two tasks, or their losses of two objectives.
    """
    rows = [row for row in small.values if small.values[row] and large.values.get(row)]
    of = [(baselines or {}).get(row, "") for row in rows]
    pairs = [(i, j) for i, j in combinations(range(len(rows)), 2) if of[i] == of[j]]
    if not pairs:
        return None
    ours, theirs = (
        np.array([np.mean(scale.values[row]) for row in rows]) * (-1.0 if scale.higher_is_better else 1.0)
        for scale in (small, large)
    )
    first, second = np.array(pairs).T
    target = theirs[second] - theirs[first]
    compared = target != 0
    first, second, target = first[compared], second[compared], target[compared]
    if not len(target):
        return None
    lead = ours[second] - ours[first]
    won = np.where(lead == 0, 0.5, (lead > 0) == (target > 0))
    measured = _standard_errors(small, rows, of)
    if measured is None:
        seeds, size = np.zeros(len(lead)), _size(lead, np.sqrt(np.mean(lead**2)))
    else:
        errors, freedom = measured
        size = _size(lead, np.hypot(errors[first], errors[second]))
        seeds = stdtr(freedom[first], size)
    calibration, probability = _calibrated(size, won, first, second, len(rows))
    low, high = _interval(won, first, second, len(rows))
    apart = seeds >= SEPARATED
    return Decision(
        small.name,
        large.name,
        len(rows),
        len(target),
        int((~compared).sum()),
        float(won.mean()),
        low,
        high,
        None if measured is None else float(seeds.mean()),
        None if measured is None else int(apart.sum()),
        float(won[apart].mean()) if apart.any() else None,
        calibration,
        () if calibration is None else tuple(_bins(probability, won)),
        None if calibration is None else float(np.mean((probability - won) ** 2)),
    )


def _standard_errors(scale: Scale, rows: Sequence[str], of: Sequence[str]) -> tuple[np.ndarray, np.ndarray] | None:
    """Of each row's mean: by the scatter pooled over the rows of its baseline, or its own where it scatters more than
    these; and the degrees of freedom. None where a baseline has no row with two runs.
    """
    values = {row: scale.values[row] for row in rows}
    comparison = compare(values, dict(zip(rows, of, strict=True)))
    errors, freedom = [], []
    for row, baseline in zip(rows, of, strict=True):
        pool = comparison.pools[baseline]
        if pool is None or not pool.variance:
            return None
        own = row in comparison.strange
        variance = float(np.var(values[row], ddof=1)) if own else pool.variance
        errors.append(math.sqrt(variance / len(values[row])))
        freedom.append(pool.freedom)
    return np.array(errors), np.array(freedom)


def _size(lead: np.ndarray, unit: np.ndarray | float) -> np.ndarray:
    """How large each lead is in its unit; nothing leads by nothing."""
    unit = np.broadcast_to(unit, lead.shape)
    return np.abs(lead) / np.where(unit > 0, unit, 1.0)


def _calibrated(
    size: np.ndarray, won: np.ndarray, first: np.ndarray, second: np.ndarray, rows: int
) -> tuple[Calibration | None, np.ndarray]:
    """The most likely calibration, and each pair's probability by that of the pairs that share no row with it.

    One pair of the median lead that is won and one that is lost are added, so that a few pairs do not make a certainty.
    """
    if rows < FEWEST_OTHERS:
        return None, np.full(len(size), 0.5)
    slopes, uninformed = (grid.reshape(-1) for grid in np.meshgrid(SLOPES, UNINFORMED))

    def winning(leads: np.ndarray) -> np.ndarray:
        """`[pairs, calibrations]`"""
        return uninformed / 2.0 + (1.0 - uninformed) * ndtr(leads[:, None] * slopes)

    def likelihood(leads: np.ndarray, wins: np.ndarray) -> np.ndarray:
        chance = np.clip(winning(leads), 1e-12, 1.0 - 1e-12)
        return wins[:, None] * np.log(chance) + (1.0 - wins[:, None]) * np.log1p(-chance)

    own = likelihood(size, won)
    of_row = np.zeros((rows, len(slopes)))
    for ends in (first, second):
        np.add.at(of_row, ends, own)
    total = own.sum(0) + likelihood(np.full(2, np.median(size)), np.array([0.0, 1.0])).sum(0)
    best = (total - of_row[first] - of_row[second] + own).argmax(1)
    probability = uninformed[best] / 2.0 + (1.0 - uninformed[best]) * ndtr(slopes[best] * size)
    overall = int(total.argmax())
    return Calibration(float(slopes[overall]), float(uninformed[overall])), probability


def _interval(
    won: np.ndarray, first: np.ndarray, second: np.ndarray, rows: int
) -> tuple[float, float] | tuple[None, None]:
    """Of the accuracy, over samples of the rows; where all pairs agree, as for pairs that share no row."""
    if rows < FEWEST_OTHERS:
        return None, None
    accuracy = float(won.mean())
    if accuracy in (0.0, 1.0):
        bound = ((1.0 - LEVEL) / 2.0) ** (1.0 / (rows // 2))
        return (bound, 1.0) if accuracy else (0.0, 1.0 - bound)
    rng = np.random.Generator(np.random.Philox(SEED))
    counts = rng.multinomial(rows, np.full(rows, 1.0 / rows), DRAWS)
    weights = counts[:, first] * counts[:, second]
    drawn = weights.sum(1) > 0
    values = (weights[drawn] @ won) / weights[drawn].sum(1)
    low, high = np.quantile(values, [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0])
    return float(low), float(high)


def _bins(probability: np.ndarray, won: np.ndarray) -> list[Bin]:
    bins = []
    for low, high in pairwise(BINS):
        mask = (probability >= low) & ((probability < high) | (high == BINS[-1]))
        if mask.any():
            bins.append(Bin(low, high, int(mask.sum()), float(probability[mask].mean()), float(won[mask].mean())))
    return bins


def decisions(table: Table, results: Results, larger: Scale | None = None) -> list[Decision]:
    """What a table's runs decide early for their end, and both for the paper's figures, or for `larger` runs."""
    score = table.judged_by == "score"
    rows = {row.name for row in table.rows}
    early = Scale(_early(results), _of_rows({row: runs.early for row, runs in results.rows.items()}, rows))
    final = final_of(results, "our score" if score else "our final loss")
    final = replace(final, values=_of_rows(final.values, rows))
    baselines = table.baselines_of(results.rows)
    loss_baselines = baselines if score else table.loss_baselines_of(results.rows)
    pairs = [(early, final, loss_baselines)]
    if larger is not None:
        pairs += [(early, larger, loss_baselines), (final, larger, loss_baselines)]
    elif not score:
        paper = {
            column: Scale(
                title,
                {row.name: (float(row.published[column]),) for row in table.rows if column in row.published},
            )
            for column, title in PUBLISHED.items()
        }
        pairs += [(scale, paper["final_loss"], loss_baselines) for scale in (early, final, paper["early_loss"])]
    if larger is None:
        for column in merged(table.downstream, results.downstream):
            ours = Scale(f"our {column.title}", _of_rows(results.scores(column), rows), higher_is_better=True)
            theirs = {row.name: row.published.get(column.published or "") for row in table.rows}
            figures = {row: (value,) for row, value in theirs.items() if isinstance(value, float)}
            paper = Scale(f"the paper's {column.heading}", figures, higher_is_better=True)
            pairs += [(final, ours, loss_baselines), (ours, paper, baselines)]
    return [decision for pair in pairs if (decision := decide(*pair)) is not None]


def _of_rows(values: Mapping[str, Sequence[float]], rows: Collection[str]) -> dict[str, Sequence[float]]:
    return {row: own for row, own in values.items() if row in rows}


def final_of(results: Results, name: str) -> Scale:
    """The finished runs of a table."""
    return Scale(name, {row: runs.final for row, runs in results.rows.items()}, results.judged_by == "score")


def _early(results: Results) -> str:
    return "our early loss" if results.early is None else f"our loss at {results.early:.3g} of the steps"


def is_of_study(path: Path) -> bool:
    """Whether a file of points is a study's, with sizes and budgets, and not a table's."""
    return _header(path) >= set(STUDY_COLUMNS) and "early_at" not in _header(path)


def of_study(path: Path, rows: Collection[str]) -> list[Decision]:
    """What each smaller size and budget of a study that compares these rows decides for the largest."""
    cells: dict[tuple[float, float], dict[str, list[float]]] = {}
    for number, line in enumerate(_lines(path), 2):
        if None in line or None in line.values():
            raise ScalingError("the line is cut off, or has further cells", file=path, line=number, fix="report again")
        if line["status"] == "finished" and line["row"] in rows:
            row, loss, D = line["row"], *(_number(line, name, path, number) for name in ("loss", "D"))
            width = _number(line, "width" if line.get("width") else "N", path, number)
            cells.setdefault((width, D), {}).setdefault(row, []).append(loss)
    if not cells:
        raise ScalingError("no run of a row of the table is finished", file=path, fix="`scaling study` trains them")
    sizes = "width" if "width" in _header(path) else "N"
    scales = [Scale(f"{sizes}={short(size)} D={short(D)}", cells[size, D]) for size, D in sorted(cells)]
    return [decision for small in scales[:-1] if (decision := decide(small, scales[-1])) is not None]


def _number(line: Mapping[str, str], name: str, path: Path, number: int) -> float:
    try:
        value = float(line[name])
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ScalingError(
            "is not a number", file=path, line=number, key=name, value=line[name], fix="correct the cell"
        )
    return value


def _header(path: Path) -> set[str]:
    return set(next(iter(_lines(path)), {}))


def _lines(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise from_os(error, f"{path} cannot be read") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ScalingError(f"not a CSV file: {error}", file=path) from None


def _accuracy(decision: Decision) -> str:
    if decision.low is None or decision.high is None:
        return f"{decision.accuracy:.1%}"
    return f"{decision.accuracy:.1%} ({decision.low:.1%} to {decision.high:.1%})"


def shown(made: Sequence[Decision]) -> list[Shown]:
    """The decisions as tables of text."""
    heads = ("decided by", "for", "rows", "pairs", "decision accuracy", "by the seeds", "of separated pairs", "Brier")
    rows = [
        (
            decision.small,
            decision.large,
            str(decision.rows),
            str(decision.pairs),
            _accuracy(decision),
            "" if decision.by_seeds is None else f"{decision.by_seeds:.1%}",
            "" if decision.separated_accuracy is None else f"{decision.separated_accuracy:.1%} of {decision.separated}",
            "" if decision.brier is None else f"{decision.brier:.3f}",
        )
        for decision in made
    ]
    ties = [f"{decision.ties} pairs have no winner in {decision.large}." for decision in made if decision.ties]
    tables = [Shown("Decisions.", heads, rows, (0, 1), [*MEANING, *dict.fromkeys(ties)])]
    leads = ("decided by", "for", *(f"a lead of {lead:g}" for lead in LEADS), "predicted and won, by probability")
    probabilities = [
        (
            decision.small,
            decision.large,
            *(f"{decision.calibration.probability(lead):.0%}" for lead in LEADS),
            "; ".join(f"{each.predicted:.0%} and {each.won:.0%} of {each.pairs}" for each in decision.bins),
        )
        for decision in made
        if decision.calibration is not None
    ]
    if probabilities:
        caption = "The probability that the leader wins at the larger scale."
        tables.append(Shown(caption, leads, probabilities, (0, 1, 2 + len(LEADS)), UNITS))
    return tables
