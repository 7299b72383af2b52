"""Decision accuracy: how often the better of two rows at a small scale is the better one at a larger scale.

Magnusson et al. 2025, DataDecide (arXiv 2504.11393), section 3: of all pairs of rows, the fraction for which the winner
at the small scale is the winner at the target. The scales here are an early evaluation and the end of the same runs,
two sizes of a study, our runs and the paper's figures, or two kept tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy.special import stdtr

from scaling.errors import ScalingError
from scaling.printing import Table as Shown
from scaling.printing import short
from scaling.studies.tasks import SCORE
from scaling.tables.document import columns_of
from scaling.tables.results import FINISHED, Results, number_of, read_csv
from scaling.tables.statistics import LEVEL, compare
from scaling.tables.table import Table

DRAWS, SEED = 1000, 0
FEWEST = 5
"""Rows from which there is an interval."""
STUDY_COLUMNS = ("row", "loss", "status", "N", "D")
PUBLISHED = {"early_loss": "the paper's early loss", "final_loss": "the paper's final loss"}
MEANING = (
    "Decision accuracy is the fraction of pairs whose winner is the same at both, with its 95% interval over rows. By "
    "the seeds of the first scale is what noise would leave of it, were the true order the same."
)


@dataclass(frozen=True)
class Scale:
    """The values of each row at one scale, a value a seed."""

    name: str
    values: Mapping[str, Sequence[float]]
    higher_is_better: bool = False

    def means(self, rows: Sequence[str]) -> np.ndarray:
        """The mean of each row, of which less is better."""
        means = np.array([np.mean(self.values[row]) for row in rows])
        return -means if self.higher_is_better else means


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

    def cells(self) -> tuple[str, ...]:
        """The decision as a line of a table."""
        bounds = "" if self.low is None else f" ({self.low:.1%} to {self.high:.1%})"
        by_seeds = "" if self.by_seeds is None else f"{self.by_seeds:.1%}"
        return (self.small, self.large, str(self.rows), str(self.pairs), f"{self.accuracy:.1%}{bounds}", by_seeds)


def decide(small: Scale, large: Scale, baselines: Mapping[str, str] | None = None) -> Decision | None:
    """The decisions that one scale makes for another; None where fewer than two rows, or no pair, are at both.

    Rows of two `baselines` are not compared: they are of two tasks, or their losses of two objectives.
    """
    rows = [row for row in small.values if small.values[row] and large.values.get(row)]
    of = {row: (baselines or {}).get(row, "") for row in rows}
    pairs = [(i, j) for i, j in combinations(range(len(rows)), 2) if of[rows[i]] == of[rows[j]]]
    first, second = np.array(pairs, dtype=int).reshape(-1, 2).T
    ours, theirs = small.means(rows), large.means(rows)
    compared = theirs[second] != theirs[first]
    first, second, ties = first[compared], second[compared], int((~compared).sum())
    if not len(first):
        return None
    lead, target = ours[second] - ours[first], theirs[second] - theirs[first]
    won = np.where(lead == 0, 0.5, (lead > 0) == (target > 0))
    low, high = _interval(won, first, second, len(rows))
    by_seeds = None
    if (measured := _standard_errors(small, of)) is not None:
        errors, freedom = measured
        order = stdtr(freedom[first], np.abs(lead) / np.hypot(errors[first], errors[second]))
        by_seeds = float(order.mean())
    return Decision(small.name, large.name, len(rows), len(first), ties, float(won.mean()), low, high, by_seeds)


def _standard_errors(scale: Scale, of: Mapping[str, str]) -> tuple[np.ndarray, np.ndarray] | None:
    """Of each row's mean: by the scatter pooled over the rows of its baseline, or its own where it scatters more than
    these; and the degrees of freedom. None where a baseline has no row with two runs, or none of them scatters.
    """
    comparison = compare({row: scale.values[row] for row in of}, of)
    pools = [comparison.pools[baseline] for baseline in of.values()]
    if not all(pool is not None and pool.variance for pool in pools):
        return None
    errors = [
        np.var(scale.values[row], ddof=1) if row in comparison.strange else pool.variance
        for row, pool in zip(of, pools, strict=True)
        if pool is not None
    ]
    runs = [len(scale.values[row]) for row in of]
    return np.sqrt(np.array(errors) / runs), np.array([pool.freedom for pool in pools if pool is not None])


def _interval(
    won: np.ndarray, first: np.ndarray, second: np.ndarray, rows: int
) -> tuple[float, float] | tuple[None, None]:
    """Of the accuracy, over samples of the rows; where all pairs agree, as for pairs that share no row."""
    if rows < FEWEST:
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


def decisions(table: Table, results: Results, larger: Scale | None = None) -> list[Decision]:
    """What a table's runs decide early for their end, and both for the paper's figures, or for `larger` runs."""
    score = table.judged_by == "score"
    rows = {row.name for row in table.rows}

    def ours(name: str, values: Mapping[str, Sequence[float]], *, higher_is_better: bool = False) -> Scale:
        return Scale(name, {row: own for row, own in values.items() if row in rows}, higher_is_better)

    def papers(name: str, column: str | None, *, higher_is_better: bool = False) -> Scale:
        figures = {row.name: row.published.get(column or "") for row in table.rows}
        values = {row: (figure,) for row, figure in figures.items() if isinstance(figure, float)}
        return Scale(name, values, higher_is_better)

    at = "our early loss" if results.early_at is None else f"our loss at {results.early_at:.3g} of the steps"
    early = ours(at, results.early())
    final = ours("our score" if score else "our final loss", results.final(), higher_is_better=score)
    baselines = table.baselines_of(results.rows)
    loss_baselines = baselines if score else table.loss_baselines_of(results.rows)
    pairs = [(early, final, loss_baselines)]
    if larger is not None:
        pairs += [(early, larger, loss_baselines), (final, larger, loss_baselines)]
    elif not score:
        early_paper, final_paper = (papers(name, column) for column, name in PUBLISHED.items())
        pairs += [(scale, final_paper, loss_baselines) for scale in (early, final, early_paper)]
    for column in columns_of(table, results) if larger is None else ():
        scores = ours(f"our {column.title}", results.values(column.name + SCORE), higher_is_better=True)
        paper = papers(f"the paper's {column.heading}", column.published, higher_is_better=True)
        pairs += [(final, scores, loss_baselines), (scores, paper, baselines)]
    return [decision for pair in pairs if (decision := decide(*pair)) is not None]


def is_of_study(path: Path) -> bool:
    """Whether a file of points is a study's, with sizes and budgets, and not a table's."""
    header = set(next(iter(read_csv(path)), {}))
    return header >= set(STUDY_COLUMNS) and "early_at" not in header


def of_study(path: Path, rows: Collection[str]) -> list[Decision]:
    """What each smaller size and budget of a study that compares these rows decides for the largest."""
    cells: dict[tuple[float, float], dict[str, list[float]]] = {}
    size = "N"
    for number, line in enumerate(read_csv(path), 2):
        size = "width" if "width" in line else "N"
        if line["status"] == FINISHED and line["row"] in rows:
            columns = "loss", size if line[size] else "N", "D"
            loss, value, D = (number_of(line, name, float, path, number) for name in columns)
            cells.setdefault((value, D), {}).setdefault(line["row"], []).append(loss)
    if not cells:
        raise ScalingError("no run of a row of the table is finished", file=path, fix="`scaling study` trains them")
    scales = [Scale(f"{size}={short(value)} D={short(D)}", cells[value, D]) for value, D in sorted(cells)]
    return [decision for small in scales[:-1] if (decision := decide(small, scales[-1])) is not None]


def shown(made: Sequence[Decision]) -> list[Shown]:
    """The decisions as a table of text."""
    heads = ("decided by", "for", "rows", "pairs", "decision accuracy", "by the seeds")
    ties = [f"{decision.ties} pairs have no winner in {decision.large}." for decision in made if decision.ties]
    notes = [MEANING, *dict.fromkeys(ties)]
    return [Shown("Decisions.", heads, [decision.cells() for decision in made], (0, 1), notes)]
