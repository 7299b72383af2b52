"""Document: a table as JSON. Each row has the paper's figures, our counts, and what its runs show."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from scaling.errors import plural
from scaling.studies.tasks import SCORE
from scaling.tables.count import Counted
from scaling.tables.downstream import Downstream
from scaling.tables.results import FINISHED, Results
from scaling.tables.statistics import Agreement, Comparison, Difference, Mean, agreement, compare
from scaling.tables.table import Table

Document = dict[str, Any]


def document(table: Table, counted: Sequence[Counted], results: Results | None = None) -> Document:
    """The counts of a table's rows, and where there are results, the rows' means, differences and verdicts."""
    rows: dict[str, Document] = {
        line.row.name: {
            "row": line.row.name,
            "heading": line.row.heading,
            "parameters": line.parameters,
            "ops": line.ops,
            "flops_forward": line.flops,
            "published": dict(line.row.published),
            **({"measured": dict(line.measured)} if line.measured else {}),
        }
        for line in counted
    }
    whole: Document = {
        "table": table.name,
        "title": table.title,
        "source": table.source,
        "baseline": table.baseline,
        "settings": [] if results is None else list(results.settings),
        "rows": list(rows.values()),
    }
    if results is None:
        return whole
    score = table.judged_by == "score"
    baselines, loss_baselines = table.baselines_of(results.rows), table.loss_baselines_of(results.rows)
    values, early_values = results.final(), results.early()
    final = compare(values, baselines if score else loss_baselines, higher_is_better=score)
    early = compare(early_values, loss_baselines)
    hardware = {run["hardware"] for run in results.runs if run["steps_per_second"]}
    for name, row in rows.items():
        runs = results.rows.get(name, [])
        speeds = [run["steps_per_second"] for run in runs if run["steps_per_second"]]
        unfinished = Counter(run["status"] for run in runs if run["status"] != FINISHED)
        row |= {
            "runs": {"planned": len(runs), "finished": len(values.get(name, ())), **unfinished},
            "steps_per_second": statistics.median(speeds) if speeds and len(hardware) == 1 else None,
            "early_losses": early_values.get(name, []),
            "final_losses": values.get(name, []),
            "early": _plain(early.means.get(name)),
            "final": _plain(final.means.get(name)),
            **_difference(final, name),
        }
    agreements = {}
    for column, theirs in table.compares.items():
        means = {row: statistics.mean(own) for row, own in results.values(column).items() if own}
        agreements[theirs] = agreement(means, _published(rows, theirs))
    # A loss is ranked with the scores where both have one baseline.
    losses = {row: mean.value for row, mean in final.means.items() if row in rows and not score}
    ranked = {row: loss for row, loss in losses.items() if loss_baselines[row] == baselines[row]}
    columns = [_scored(column, results, rows, baselines, ranked) for column in columns_of(table, results)]
    whole |= {
        "judged_by": table.judged_by,
        "studies": list(results.studies),
        "early_at": results.early_at,
        "pooled": next(iter(pools.values())) if len(pools := _pools(final)) == 1 else None,
        "pools": pools,
        "compared": len(final.differences),
        "own_scatter": list(final.strange),
        "agreement": {theirs: vars(agreed) for theirs, agreed in agreements.items() if agreed is not None},
        **({"downstream": columns} if columns else {}),
    }
    return whole | {"said": _notes(table, whole)}


def columns_of(table: Table, results: Results) -> list[Downstream]:
    """The columns of a table, and those that were measured; where a column is both, its published one is the table's
    present one.
    """
    columns = {column.name: replace(column, metric=None) for column in table.downstream}
    for column in results.downstream:
        present = columns.get(column.name, column)
        columns[column.name] = replace(column, heading=present.heading, published=present.published)
    return list(columns.values())


def _scored(
    column: Downstream,
    results: Results,
    rows: Mapping[str, Document],
    baselines: Mapping[str, str],
    losses: Mapping[str, float],
) -> Document:
    """A column of scores, which the rows get too."""
    values = {row: scores for row, scores in results.values(column.name + SCORE).items() if scores}
    comparison = compare(values, baselines, higher_is_better=True)
    for row in values.keys() & rows.keys():
        mean, difference = _plain(comparison.means.get(row)), _difference(comparison, row)
        scored = rows[row].setdefault("downstream", {})
        scored[column.name] = {"scores": values[row], "mean": mean, **difference}
    means = {row: mean.value for row, mean in comparison.means.items()}
    agreements: dict[str, Agreement | None] = {
        "published": agreement(means, _published(rows, column.published)),
        "loss": agreement(losses, means),
    }
    return {
        **(column if values else replace(column, metric=None)).to_json(),
        "name": column.name,
        "pools": _pools(comparison),
        "compared": len(comparison.differences),
        "own_scatter": list(comparison.strange),
        "agreement": {name: agreed and vars(agreed) for name, agreed in agreements.items()},
    }


def _published(rows: Mapping[str, Document], column: str | None) -> dict[str, float]:
    """The paper's numbers of a column, by row."""
    figures = {name: row["published"].get(column) for name, row in rows.items()}
    return {name: figure for name, figure in figures.items() if isinstance(figure, float)}


def _difference(comparison: Comparison, row: str) -> Document:
    difference = comparison.differences.get(row)
    return {"difference": _plain(difference), "verdict": difference and difference.verdict}


def _plain(figure: Mean | Difference | None) -> Document | None:
    """The figure as JSON; an end of an interval that is open is None."""
    return figure and {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in vars(figure).items()
        if key != "higher_is_better"
    }


def _pools(comparison: Comparison) -> dict[str, Document | None]:
    return {
        baseline: pool and {"deviation": pool.deviation, "freedom": pool.freedom}
        for baseline, pool in comparison.pools.items()
    }


def _notes(table: Table, whole: Document) -> list[str]:
    """The notes below the table: the basis of its figures, and what is missing."""
    rows, studies = whole["rows"], whole["studies"]
    if basis := _basis(whole):
        notes = [f"Intervals are of 95%, by {basis}."]
    elif studies:
        notes = ["No row has two finished runs, so no difference can be tested."]
    else:
        notes = [f"No study of {table.name} is here: nothing of it was trained."]
    if others := [row for row in whole["pools"] if not table.is_baseline(row)]:
        notes.append(
            f"Losses of two objectives are not of the same tokens: rows of another one than the baseline's are "
            f"compared with the first of them ({'; '.join(others)})."
        )
    if whole["early_at"] is not None:
        at = f"{whole['early_at']:.3g} of the steps"
        notes.append(f"Early losses were read at {at}, ± the standard deviation of the runs.")
    for column, agreed in whole["agreement"].items():
        title = table.columns.get(column, column.replace("_", " ")).removesuffix(", paper")
        notes.append(f"Rank correlation with the paper's {title} {_ranks(agreed)}.")
    left = [
        f"{row['row']} ({', '.join(f'{count} {status}' for status, count in row['runs'].items() if count)})"
        for row in rows
        if not row["runs"]["finished"] or row["runs"]["finished"] < row["runs"]["planned"]
    ]
    if studies and left:
        notes.append(f"Rows with fewer finished runs than planned: {'; '.join(left).replace(' ()', ' (not planned)')}.")
    for column in whole.get("downstream", ()):
        notes += _notes_of_scores(column, rows)
    return notes


def _notes_of_scores(column: Document, rows: Sequence[Document]) -> list[str]:
    heading = column["heading"]
    scores = {row["row"]: row.get("downstream", {}).get(column["name"]) for row in rows}
    if not any(scores.values()):
        return []
    basis = _basis(column)
    by = f"intervals are of 95%, by {basis}" if basis else "no row has two scores, so no difference can be tested"
    notes = [f"{Downstream.of_json(column).title}: {by}."]
    if agreed := column["agreement"]["published"]:
        notes.append(f"{heading}: rank correlation of our score with the paper's {_ranks(agreed)}.")
    if agreed := column["agreement"]["loss"]:
        meaning = "; -1 is the same order of rows, since a lower loss is better"
        notes.append(f"{heading}: rank correlation of our final loss with our score {_ranks(agreed)}{meaning}.")
    fewer = [
        f"{row['row']} ({count} of {plural(row['runs']['finished'], 'run')})"
        for row in rows
        if (count := len((scores[row["row"]] or {"scores": ()})["scores"])) < row["runs"]["finished"]
    ]
    return [*notes, *([f"{heading}: not scored: {'; '.join(fewer)}."] if fewer else [])]


def _basis(compared: Document) -> str:
    """What the intervals and the verdicts rest on: the standard deviation of a run, for each pool of rows; empty where
    there is none.
    """
    pools = {baseline: pool for baseline, pool in compared["pools"].items() if pool is not None}
    scatter = "; ".join(
        f"{pool['deviation']:.4f} of a run pooled over "
        f"{'all rows' if len(compared['pools']) == 1 else f'the rows compared with {baseline}'} "
        f"({plural(pool['freedom'], 'degree')} of freedom)"
        for baseline, pool in pools.items()
    )
    own = (
        f"; their own runs for {', '.join(compared['own_scatter'])}, which scatter more"
        if compared["own_scatter"]
        else ""
    )
    correction = f"verdicts are after Holm's correction over {plural(compared['compared'], 'row')}"
    return f"a standard deviation of {scatter}{own}; {correction}" if pools else ""


def _ranks(agreed: Mapping[str, Any]) -> str:
    bounds = f"interval {agreed['low']:.2f} to {agreed['high']:.2f}"
    return f"over {agreed['rows']} rows (Spearman): {agreed['value']:.2f}, {bounds}"
