"""Decision accuracy: how often the better of two rows at a small scale is the better one at a larger scale.

Magnusson et al. 2025, DataDecide (arXiv 2504.11393), section 3: of all pairs of rows, the fraction for which the winner
at the small scale is the winner at the target. The scales here are an early evaluation and the end of the same runs,
two sizes of a study, our runs and the paper's figures, or two kept tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtr

from scaling.base.errors import refuse
from scaling.base.printing import Table as Shown
from scaling.base.printing import short, titled
from scaling.laws.points import load_points
from scaling.studies.tasks import SCORE
from scaling.tables.results import Results
from scaling.tables.statistics import LEVEL, compare
from scaling.tables.table import read_csv

DRAWS, SEED = 1000, 0
FEWEST = 5
"""The fewest rows for an interval."""
STUDY_COLUMNS = ("row", "loss", "status", "N", "D")
MEANING = (
    "Decision accuracy is the fraction of pairs whose winner is the same at both, with its 95% interval over rows. "
    "Ties are further pairs, without a winner at the second scale. 'By the seeds' is the accuracy that the noise of "
    "the first scale would leave if the true order were the same."
)

Decision = dict[str, Any]
"""How the winners at the scale `small` predict those at `large`, in the document of `scaling decide` (docs/json.md)."""


class Scale(NamedTuple):
    """The losses of each row at one scale, one for each seed; scores, of which more is better, have the other sign."""

    name: str
    losses: Mapping[str, Sequence[float]]


def decide(small: Scale, large: Scale, baselines: Mapping[str, str] | None = None) -> Decision | None:
    """The decisions that one scale makes for another; None without two common rows, or without a pair.

    Rows are those of `baselines`, where these are given. Rows of two baselines are not compared: they have two tasks,
    or losses of two objectives. `ties` are pairs without a winner at the larger scale, which are left out. `by_seeds`
    is None where no row has two runs.
    """
    baselines = dict.fromkeys(small.losses, "") if baselines is None else baselines
    rows = [row for row in small.losses if row in baselines and small.losses[row] and large.losses.get(row)]
    of = {row: baselines[row] for row in rows}
    pairs = [(i, j) for (i, one), (j, other) in combinations(enumerate(of.values()), 2) if one == other]
    first, second = np.array(pairs, dtype=int).reshape(-1, 2).T
    ours, theirs = (np.array([np.mean(scale.losses[row]) for row in of]) for scale in (small, large))
    compared = theirs[second] != theirs[first]
    ties = int((~compared).sum())
    first, second = first[compared], second[compared]
    if not len(first):
        return None
    lead, target = ours[second] - ours[first], theirs[second] - theirs[first]
    won = np.where(lead == 0, 0.5, (lead > 0) == (target > 0))
    low, high = _interval(won, first, second, len(of))
    return {
        "small": small.name,
        "large": large.name,
        "rows": len(of),
        "pairs": len(first),
        "ties": ties,
        "accuracy": float(won.mean()),
        "low": low,
        "high": high,
        "by_seeds": _by_seeds(small, of, np.abs(lead), first, second),
    }


def _by_seeds(
    scale: Scale, of: Mapping[str, str], lead: np.ndarray, first: np.ndarray, second: np.ndarray
) -> float | None:
    """The accuracy that the seeds of a scale would give if the true order were the same at both scales.

    The error of a row's mean is by the scatter pooled over the rows of its baseline, or by its own where it scatters
    more than these. None where a baseline has no row with two runs, or none of them scatters.
    """
    comparison = compare({row: scale.losses[row] for row in of}, of)
    pools = [pool for baseline in of.values() if (pool := comparison.pools[baseline]) is not None and pool.variance]
    if len(pools) < len(of):
        return None
    errors = np.sqrt([comparison.scatter[row].variance / len(scale.losses[row]) for row in of])
    freedom = np.array([pool.freedom for pool in pools])
    return float(stdtr(freedom[first], lead / np.hypot(errors[first], errors[second])).mean())


def _interval(
    won: np.ndarray, first: np.ndarray, second: np.ndarray, rows: int
) -> tuple[float, float] | tuple[None, None]:
    """The percentile interval of the accuracy over rows that are drawn again, since pairs of one row belong together;
    where all pairs agree, as for pairs that share no row.
    """
    if rows < FEWEST:
        return None, None
    accuracy = float(won.mean())
    if accuracy in (0.0, 1.0):
        bound = ((1.0 - LEVEL) / 2.0) ** (1.0 / (rows // 2))
        return (bound, 1.0) if accuracy else (0.0, 1.0 - bound)
    rng = np.random.Generator(np.random.Philox(SEED))
    counts = rng.multinomial(rows, np.full(rows, 1.0 / rows), DRAWS)
    weights = counts[:, first] * counts[:, second]
    is_drawn = weights.sum(1) > 0
    values = (weights[is_drawn] @ won) / weights[is_drawn].sum(1)
    low, high = np.quantile(values, [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0])
    return float(low), float(high)


def decisions(results: Results, larger: Scale | None = None) -> list[Decision]:
    """The decisions of early for final losses, and of both for the paper's figures or for `larger` runs."""
    table, is_score = results.table, results.table.judged_by == "score"

    def papers(name: str, column: str | None, sign: int = 1) -> Scale:
        return Scale(name, {row: (sign * figure,) for row, figure in table.figures(column).items()})

    at = "our early loss" if results.early_at is None else f"our loss at {results.early_at:.3g} of the steps"
    early, final = Scale(at, results.early()), final_scale("our score" if is_score else "our final loss", results)
    baselines, result_baselines = (
        {row.name: of[row.name] for row in table.rows} for of in (table.baselines, table.result_baselines)
    )
    pairs = [(early, final, result_baselines)]
    if larger is not None:
        pairs += [(scale, larger, result_baselines) for scale in (early, final)]
    elif not is_score:
        end = papers("the paper's final loss", "final_loss")
        scales = early, final, papers("the paper's early loss", "early_loss")
        pairs += [(scale, end, result_baselines) for scale in scales]
    for column in results.columns if larger is None else ():
        scores = Scale(f"our {column.title}", _negative(results.values(column.name + SCORE)))
        paper = papers(f"the paper's {column.heading}", column.published, sign=-1)
        pairs += [(final, scores, result_baselines), (scores, paper, baselines)]
    return [decision for pair in pairs if (decision := decide(*pair)) is not None]


def final_scale(name: str, results: Results) -> Scale:
    """The final losses or scores of the runs."""
    values = results.final()
    return Scale(name, _negative(values) if results.table.judged_by == "score" else values)


def _negative(scores: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    return {row: [-score for score in values] for row, values in scores.items()}


def of_study(path: Path, rows: Collection[str]) -> list[Decision] | None:
    """What each smaller size and budget decides for the largest, in a study's points that compare these rows; None
    where the points are no study's, with sizes and budgets.
    """
    header = {column for line in read_csv(path)[:1] for column in line}
    if not header >= set(STUDY_COLUMNS) or "early_at" in header:
        return None
    points, size = load_points(path), "width" if "width" in header else "N"
    cells: dict[tuple[float, float], dict[str, list[float]]] = {}
    for row, value, D, loss in zip(points["row"], *map(points.numbers, (size, "D", "loss")), strict=True):
        if row in rows:
            cells.setdefault((value, D), {}).setdefault(row, []).append(loss)
    refuse(not cells, "no run of a row of the table is finished", "`scaling study` trains them", file=path)
    scales = [Scale(f"{size}={short(value)} D={short(D)}", cells[value, D]) for value, D in sorted(cells)]
    return [decision for small in scales[:-1] if (decision := decide(small, scales[-1])) is not None]


def shown(made: Sequence[Decision]) -> Shown | None:
    """The decisions as a table of text."""
    rows = [
        [
            ("decided by", one["small"]),
            ("for", one["large"]),
            *((count, str(one[count])) for count in ("rows", "pairs", "ties")),
            ("decision accuracy", _accuracy(one)),
            ("by the seeds", "" if one["by_seeds"] is None else f"{one['by_seeds']:.1%}"),
        ]
        for one in made
    ]
    return titled("Decisions.", rows, (0, 1), [MEANING])


def _accuracy(made: Decision) -> str:
    bounds = "" if made["low"] is None else f" ({made['low']:.1%} to {made['high']:.1%})"
    return f"{made['accuracy']:.1%}{bounds}"
