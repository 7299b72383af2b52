"""Lines: a table's figures of each row: the paper's, our counts and our runs' results, side by side."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scaling.errors import plural
from scaling.tables.count import Counted
from scaling.tables.downstream import Downstream, merged
from scaling.tables.results import Results, Runs
from scaling.tables.statistics import Agreement, Comparison, Difference, Mean, Scatter, agreement, compare
from scaling.tables.table import Table


@dataclass(frozen=True)
class Scored:
    """The scores of a row on the tasks of a column, by seed."""

    values: tuple[float, ...]
    mean: Mean | None
    difference: Difference | None

    def to_json(self) -> dict[str, Any]:
        return {
            "scores": self.values,
            "mean": _plain(self.mean),
            "difference": _plain(self.difference),
            "verdict": None if self.difference is None else self.difference.verdict,
        }


@dataclass(frozen=True)
class Measured:
    """A column of scores: what its verdicts rest on, and how the rows' order by it agrees with that by the paper's
    column and by our loss. None of them has a value where nothing was measured.
    """

    column: Downstream
    comparison: Comparison | None = None
    with_paper: Agreement | None = None
    with_loss: Agreement | None = None

    def to_json(self) -> dict[str, Any]:
        agreements = {"published": self.with_paper, "loss": self.with_loss}
        comparison = self.comparison
        return {
            **self.column.to_json(),
            "name": self.column.name,
            "pools": {} if comparison is None else _pools(comparison),
            "own_scatter": [] if comparison is None else list(comparison.strange),
            "agreement": {name: agreed and vars(agreed) for name, agreed in agreements.items()},
        }


@dataclass(frozen=True)
class Line:
    """A row as it is printed."""

    counted: Counted
    runs: Runs | None = None
    early: Mean | None = None
    final: Mean | None = None
    difference: Difference | None = None
    scores: Mapping[str, Scored] = field(default_factory=dict)  # by the names of the columns that were measured

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
            **({"downstream": {name: scored.to_json() for name, scored in self.scores.items()}} if self.scores else {}),
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
    downstream: Sequence[Measured] = ()

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
        pools = _pools(self.comparison)
        downstream = {"downstream": [measured.to_json() for measured in self.downstream]} if self.downstream else {}
        return document | {
            "judged_by": self.table.judged_by,
            "studies": list(self.studies),
            "early_at": self.early_at,
            "pooled": next(iter(pools.values())) if len(pools) == 1 else None,
            "pools": pools,
            "own_scatter": list(self.comparison.strange),
            "agreement": {column: vars(agreement) for column, agreement in self.agreements.items()},
            **downstream,
            "said": notes(self),
        }


def printed(table: Table, counted: Sequence[Counted], results: Results | None = None) -> Printed:
    """The counts next to the runs' results, where runs are requested."""
    if results is None:
        unmeasured = [Measured(column) for column in table.downstream]
        return Printed(table, [Line(line) for line in counted], downstream=unmeasured)
    baselines = table.baselines_of(results.rows)
    score = table.judged_by == "score"
    loss_baselines = table.loss_baselines_of(results.rows)
    final = compare(
        {row: runs.final for row, runs in results.rows.items()},
        baselines if score else loss_baselines,
        higher_is_better=score,
    )
    early = compare({row: runs.early for row, runs in results.rows.items()}, loss_baselines)
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
    means = {of: results.means(of) for of in table.compares}
    agreements = {
        column: agreed
        for of, column in table.compares.items()
        if (agreed := _of_both(means[of], _published(lines, column))) is not None
    }
    measured, scores = _scored(lines, table, results, baselines, loss_baselines)
    lines = [replace(line, scores=scores.get(line.counted.row.name, {})) for line in lines]
    return Printed(table, lines, results.settings, results.studies, results.early, final, agreements, measured)


def _scored(
    lines: Sequence[Line],
    table: Table,
    results: Results,
    baselines: Mapping[str, str],
    loss_baselines: Mapping[str, str],
) -> tuple[list[Measured], dict[str, dict[str, Scored]]]:
    """The columns of scores, those of the table first, and each row's scores by the columns' names. A loss is ranked
    with the scores where it is compared with the baseline of the row.
    """
    scores: dict[str, dict[str, Scored]] = {}
    measured = []
    for column in merged(table.downstream, results.downstream):
        name, values = column.name, results.scores(column)
        if not values:
            measured.append(Measured(replace(column, metric=None)))
            continue
        comparison = compare(values, baselines, higher_is_better=True)
        for row, own in values.items():
            scored = Scored(own, comparison.means.get(row), comparison.differences.get(row))
            scores.setdefault(row, {})[name] = scored
        means = {row: mean.value for row, mean in comparison.means.items()}
        losses = {
            row: line.final.value
            for line in lines
            if line.final is not None and loss_baselines.get(row := line.counted.row.name) == baselines.get(row)
        }
        measured.append(
            Measured(
                column,
                comparison,
                _of_both(means, _published(lines, column.published)),
                _of_both(losses, means) if table.judged_by == "loss" else None,
            )
        )
    return measured, scores


def _of_both(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Agreement | None:
    """The agreement over the rows that have both."""
    rows = [row for row in ours if row in theirs]
    return agreement([ours[row] for row in rows], [theirs[row] for row in rows])


def _published(lines: Sequence[Line], column: str | None) -> dict[str, float]:
    """The paper's figures of a column, by row."""
    figures = {line.counted.row.name: line.counted.row.published.get(column or "") for line in lines}
    return {row: value for row, value in figures.items() if isinstance(value, float)}


def notes(table: Printed) -> list[str]:
    """The notes below the table: what the figures rest on, and what is missing."""
    comparison = table.comparison
    if comparison is None:
        return []
    sentences = []
    if pooled := _deviations(comparison):
        sentences.append(
            f"Intervals are of 95%, by a standard deviation of {pooled}; verdicts are after Holm's correction over "
            f"{plural(len(comparison.differences), 'row')}."
        )
    elif not table.studies:
        sentences.append(f"No study of {table.table.name} is here: nothing of it was trained.")
    else:
        sentences.append("No row has two finished runs, so no difference can be tested.")
    if others := [row for row in comparison.pools if not table.table.is_baseline(row)]:
        sentences.append(
            f"Losses of two objectives are not of the same tokens: rows of another one than the baseline's are "
            f"compared with the first of them ({_list(others)})."
        )
    if comparison.strange:
        sentences.append(
            f"These scatter more than the rest and are judged by their own runs: {_list(comparison.strange)}."
        )
    if table.early_at is not None:
        sentences.append(
            f"Early losses were read at {table.early_at:.3g} of the steps, ± the standard deviation of the runs."
        )
    for column, agreed in table.agreements.items():
        title = table.table.columns.get(column, column.replace("_", " ")).removesuffix(", paper")
        sentences.append(
            f"Rank correlation with the paper's {title} over {agreed.rows} rows (Spearman): "
            f"{agreed.value:.2f}, interval {agreed.low:.2f} to {agreed.high:.2f}."
        )
    return sentences + _missing(table) + [note for measured in table.downstream for note in _of_scores(measured, table)]


def _of_scores(measured: Measured, table: Printed) -> list[str]:
    """What a column of scores rests on, and what is missing of it."""
    column, comparison = measured.column, measured.comparison
    if comparison is None:
        return []
    scatter = _deviations(comparison)
    tested = f"; verdicts are after Holm's correction over {plural(len(comparison.differences), 'row')}"
    interval = f"intervals are of 95%, by a standard deviation of {scatter}{tested}"
    sentences = [f"{column.title}: {interval if scatter else 'no row has two scores, so no difference can be tested'}."]
    if comparison.strange:
        sentences.append(
            f"{column.heading}: these scatter more than the rest and are judged by their own runs: "
            f"{_list(comparison.strange)}."
        )
    for agreed, what, meaning in (
        (measured.with_paper, "our score with the paper's", ""),
        (
            measured.with_loss,
            "our final loss with our score",
            "; -1 is the same order of rows, since a lower loss is better",
        ),
    ):
        if agreed is not None:
            sentences.append(
                f"{column.heading}: rank correlation of {what} over {agreed.rows} rows (Spearman): {agreed.value:.2f}, "
                f"interval {agreed.low:.2f} to {agreed.high:.2f}{meaning}."
            )
    counts = [
        (line.counted.row.name, len(line.scores[column.name].values) if column.name in line.scores else 0, done)
        for line in table.lines
        if (done := len(line.runs.final) if line.runs else 0)
    ]
    fewer = [f"{row} ({scored} of {plural(done, 'run')})" for row, scored, done in counts if scored < done]
    return [*sentences, *([f"{column.heading}: not scored: {_list(fewer)}."] if fewer else [])]


def _deviations(comparison: Comparison) -> str:
    """The standard deviation of a run, for each pool of rows; empty where there is none."""
    scatter = [(baseline, pool) for baseline, pool in comparison.pools.items() if pool is not None]
    one = len(comparison.pools) == 1
    return "; ".join(
        f"{pool.deviation:.4f} of a run pooled over {'all rows' if one else f'the rows compared with {baseline}'} "
        f"({plural(pool.freedom, 'degree')} of freedom)"
        for baseline, pool in scatter
    )


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


def _pools(comparison: Comparison) -> dict[str, Any]:
    return {baseline: _scatter(pool) for baseline, pool in comparison.pools.items()}


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
