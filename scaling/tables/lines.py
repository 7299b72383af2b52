"""Lines: a table's figures of each row: the paper's, our counts and our runs' results, side by side."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scaling.number import plural
from scaling.tables.count import Counted
from scaling.tables.results import Results, Runs
from scaling.tables.statistics import Agreement, Comparison, Difference, Mean, Scatter, agreement, compare
from scaling.tables.table import Table


@dataclass(frozen=True)
class Line:
    """A row as it is printed."""

    counted: Counted
    runs: Runs | None = None
    early: Mean | None = None
    final: Mean | None = None
    difference: Difference | None = None

    def to_json(self) -> dict[str, Any]:
        row, runs = self.counted.row, self.runs
        document: dict[str, Any] = {
            "row": row.name,
            "heading": row.heading,
            "parameters": self.counted.parameters,
            "ops": self.counted.ops,
            "flops_forward": self.counted.flops,
            "published": dict(row.published),
        }
        if self.counted.measured:
            document["measured"] = dict(self.counted.measured)
        if runs is None:
            return document
        return document | {
            "runs": {"planned": runs.planned, "finished": len(runs.final), **runs.unfinished},
            "steps_per_second": runs.steps_per_second,
            "early_losses": runs.early,
            "final_losses": runs.final,
            "early": _plain(self.early),
            "final": _plain(self.final),
            "difference": _plain(self.difference),
            "verdict": None if self.difference is None else self.difference.verdict,
        }


@dataclass(frozen=True)
class Printed:
    """A whole table: its lines, and the notes below them."""

    table: Table
    lines: Sequence[Line]
    settings: Sequence[str] = ()
    studies: Sequence[str] = ()
    early_at: float | None = None
    comparison: Comparison | None = None
    agreements: Mapping[str, Agreement] = field(default_factory=dict)  # by the published column

    @property
    def trained(self) -> bool:
        return self.comparison is not None

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "table": self.table.name,
            "title": self.table.title,
            "source": self.table.source,
            "baseline": self.table.baseline,
            "settings": list(self.settings),
            "rows": [line.to_json() for line in self.lines],
        }
        if self.comparison is None:
            return document
        pools = {baseline: _scatter(pool) for baseline, pool in self.comparison.pools.items()}
        return document | {
            "judged_by": self.table.judged_by,
            "studies": list(self.studies),
            "early_at": self.early_at,
            "pooled": next(iter(pools.values())) if len(pools) == 1 else None,
            "pools": pools,
            "own_scatter": list(self.comparison.strange),
            "agreement": {column: vars(agreement) for column, agreement in self.agreements.items()},
            "said": notes(self),
        }


def printed(table: Table, counted: Sequence[Counted], results: Results | None = None) -> Printed:
    """The counts next to the runs' results, where runs are requested."""
    if results is None:
        return Printed(table, [Line(line) for line in counted])
    baselines = {row: table.baselines.get(row, table.baseline) for row in results.rows}
    score = table.judged_by == "score"
    final = compare({row: runs.final for row, runs in results.rows.items()}, baselines, higher_is_better=score)
    early = compare({row: runs.early for row, runs in results.rows.items()}, baselines)
    lines = [
        Line(
            line,
            results.rows.get(line.row.name, Runs(0, (), (), {}, None)),
            early.means.get(line.row.name),
            final.means.get(line.row.name),
            final.differences.get(line.row.name),
        )
        for line in counted
    ]
    agreements = {
        column: agreed
        for column, of in ((("early_loss", "early"), ("final_loss", "final")) if not score else ())
        if (agreed := _agreement(lines, column, of)) is not None
    }
    return Printed(table, lines, results.settings, results.studies, results.early, final, agreements)


def _agreement(lines: Sequence[Line], column: str, of: str) -> Agreement | None:
    pairs = [
        (getattr(line, of).value, float(line.counted.row.published[column]))
        for line in lines
        if getattr(line, of) is not None and column in line.counted.row.published
    ]
    return agreement([ours for ours, _ in pairs], [theirs for _, theirs in pairs])


def notes(table: Printed) -> list[str]:
    """The notes below the table: what the figures rest on, and what is missing."""
    comparison = table.comparison
    if comparison is None:
        return []
    sentences = []
    if scatter := [(baseline, pool) for baseline, pool in comparison.pools.items() if pool is not None]:
        rows = {baseline: f"the rows compared with {baseline}" for baseline, _ in scatter}
        pooled = "; ".join(
            f"{pool.deviation:.4f} of a run pooled over {'all rows' if len(comparison.pools) == 1 else rows[baseline]} "
            f"({pool.freedom} degrees of freedom)"
            for baseline, pool in scatter
        )
        sentences.append(
            f"Intervals are of 95%, by a standard deviation of {pooled}; verdicts are after Holm's correction over "
            f"{plural(len(comparison.differences), 'row')}."
        )
    elif not table.studies:
        sentences.append(f"No study of {table.table.name} is here: nothing of it was trained.")
    else:
        sentences.append("No row has two finished runs, so no difference can be tested.")
    if comparison.strange:
        sentences.append(
            f"These scatter more than the rest and are judged by their own runs: {_list(comparison.strange)}."
        )
    if table.early_at is not None:
        sentences.append(
            f"Early losses were read at {table.early_at:.3g} of the steps, ± the standard deviation of the runs."
        )
    for column, agreed in table.agreements.items():
        sentences.append(
            f"Rank correlation with the paper's {column.replace('_', ' ')} over {agreed.rows} rows (Spearman): "
            f"{agreed.value:.2f}, interval {agreed.low:.2f} to {agreed.high:.2f}."
        )
    return sentences + _missing(table)


def _missing(table: Printed) -> list[str]:
    sentences = []
    runs = [(line.counted.row.name, line.runs) for line in table.lines if line.runs is not None]
    none = [row for row, done in runs if not done.final]
    if none and table.studies:
        sentences.append(f"Without a finished run: {_list(none)}.")
    ended = [f"{row} ({count} {how})" for row, done in runs for how, count in done.unfinished.items()]
    if ended:
        sentences.append(f"Planned runs that did not finish: {_list(ended)}.")
    counts = [len(done.final) for row, done in runs if done.final and not table.table.is_baseline(row)]
    usual = statistics.mode(counts) if counts else 0
    fewer = [f"{row} ({len(done.final)})" for row, done in runs if done.final and len(done.final) < usual]
    if fewer:
        sentences.append(f"With fewer seeds than the usual {usual}: {_list(fewer)}.")
    return sentences


def _list(names: Sequence[str]) -> str:
    return "; ".join(names)


def _scatter(pool: Scatter | None) -> dict[str, Any] | None:
    return None if pool is None else {"deviation": pool.deviation, "freedom": pool.freedom}


def _plain(figure: Mean | Difference | None) -> dict[str, Any] | None:
    """As JSON: an interval without ends has none."""
    if figure is None:
        return None
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in vars(figure).items()
        if key != "higher_is_better"
    }
