"""Document: a table as JSON, printed, and as a page that is kept: of each row the paper's figures, our counts, and what
its runs show.
"""

from __future__ import annotations

import math
import shlex
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from scaling.base import atomic
from scaling.base.errors import plural, refuse
from scaling.base.printing import Table as Printed
from scaling.base.printing import markdown_text, scientific, span
from scaling.config.files import find
from scaling.studies.tasks import SCORE
from scaling.tables.results import FINISHED, MISSING, TYPES, Results, write_points
from scaling.tables.statistics import Comparison, agreement, compare
from scaling.tables.table import ALL, MEASURES, Downstream, Table

Document = dict[str, Any]
NOTHING, UNMEASURED = "–", "not measured"
READING = "reading.md"


def document(table: Table, counted: Sequence[Document], results: Results | None = None) -> Document:
    """The counts of a table's rows, and where there are results, the rows' means, differences and verdicts."""
    rows = {line["row"]: {key: value for key, value in line.items() if key != "by_slot"} for line in counted}
    result: Document = {
        "table": table.name,
        "title": table.title,
        "source": table.source,
        "baseline": table.baseline,
        "settings": [] if results is None else list(results.settings),
        "rows": list(rows.values()),
    }
    if results is None:
        return result
    is_score, baselines = table.judged_by == "score", table.result_baselines
    values, early_values = results.final(), results.early()
    final, early = compare(values, baselines, higher_is_better=is_score), compare(early_values, baselines)
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
            "early": early.means.get(name),
            "final": final.means.get(name),
            "difference": final.differences.get(name),
            "verdict": final.verdicts.get(name),
        }
    agreements = {
        theirs: agreement(_means(results, column), table.figures(theirs)) for column, theirs in table.compares.items()
    }
    # A loss is ranked with the scores where both have one baseline.
    ranked = {
        row: mean["value"]
        for row, mean in final.means.items()
        if row in rows and not is_score and baselines[row] == table.baselines[row]
    }
    columns = [_of_scores(column, results, rows, ranked) for column in results.columns]
    basis = _basis_of(final)
    result |= {
        "judged_by": table.judged_by,
        "studies": list(results.studies),
        "early_at": results.early_at,
        "pooled": next(iter(basis["pools"].values())) if len(basis["pools"]) == 1 else None,
        **basis,
        "agreement": {column: agreed for column, agreed in agreements.items() if agreed is not None},
        **({"downstream": columns} if columns else {}),
    }
    return result | {"said": _notes(table, result)}


def _means(results: Results, column: str) -> dict[str, float]:
    return {row: statistics.mean(values) for row, values in results.values(column).items() if values}


def _of_scores(
    column: Downstream, results: Results, rows: Mapping[str, Document], losses: Mapping[str, float]
) -> Document:
    """A column of scores, which are added to the rows, and their rank correlations."""
    scores = {row: of_row for row, of_row in results.values(column.name + SCORE).items() if of_row}
    comparison = compare(scores, results.table.baselines, higher_is_better=True)
    for row in scores.keys() & rows.keys():
        rows[row].setdefault("downstream", {})[column.name] = {
            "scores": scores[row],
            "mean": comparison.means[row],
            "difference": comparison.differences.get(row),
            "verdict": comparison.verdicts.get(row),
        }
    means = {row: mean["value"] for row, mean in comparison.means.items()}
    published = agreement(means, results.table.figures(column.published))
    return {
        **column.to_json(),
        "name": column.name,
        **_basis_of(comparison),
        "agreement": {"published": published, "loss": agreement(losses, means)},
    }


def _basis_of(comparison: Comparison) -> Document:
    """The basis of the intervals and the verdicts of a comparison."""
    return {
        "pools": {
            baseline: pool and {"deviation": math.sqrt(pool.variance), "freedom": pool.freedom}
            for baseline, pool in comparison.pools.items()
        },
        "compared": len(comparison.differences),
        "own_scatter": list(comparison.strange),
    }


def _notes(table: Table, whole: Document) -> list[str]:
    """The notes below the table: the basis of its figures, and missing runs."""
    rows = whole["rows"]
    if not whole["studies"]:
        return [f"No study of {table.name} is here: nothing of it was trained."]
    basis = _basis(whole)
    untested = "No row has two finished runs, so no difference can be tested."
    notes = [f"Intervals are of 95%, by {basis}." if basis else untested]
    if others := [row for row in whole["pools"] if row not in table.baselines.values()]:
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
    if left:
        notes.append(f"Rows with fewer finished runs than planned: {'; '.join(left).replace(' ()', ' (not planned)')}.")
    return [*notes, *(note for column in whole.get("downstream", ()) for note in _notes_of_scores(column, rows))]


def _notes_of_scores(column: Document, rows: Sequence[Document]) -> list[str]:
    """The notes on a column of scores; none where nothing is scored."""
    heading, basis, agreed = column["heading"], _basis(column), column["agreement"]
    counts = {row["row"]: len(_scored(row, column).get("scores", ())) for row in rows}
    if not any(counts.values()):
        return []
    by = f"intervals are of 95%, by {basis}" if basis else "no row has two scores, so no difference can be tested"
    notes = [f"{Downstream.of_json(column).title}: {by}."]
    if agreed["published"]:
        notes.append(f"{heading}: rank correlation of our score with the paper's {_ranks(agreed['published'])}.")
    if agreed["loss"]:
        meaning = "; -1 is the same order of rows, since a lower loss is better"
        notes.append(f"{heading}: rank correlation of our final loss with our score {_ranks(agreed['loss'])}{meaning}.")
    fewer = [
        f"{row['row']} ({counts[row['row']]} of {plural(row['runs']['finished'], 'run')})"
        for row in rows
        if counts[row["row"]] < row["runs"]["finished"]
    ]
    if fewer:
        notes.append(f"{heading}: not scored: {'; '.join(fewer)}.")
    return notes


def _scored(row: Document, column: Document) -> Document:
    """The scores of a row in a column; empty where there are none."""
    return row.get("downstream", {}).get(column["name"], {})


def _basis(compared: Document) -> str:
    """The basis of the intervals and verdicts: the standard deviation of a run for each pool of rows; empty without
    one.
    """
    pools = {baseline: pool for baseline, pool in compared["pools"].items() if pool is not None}
    scatter = "; ".join(
        f"{pool['deviation']:.4f} of a run pooled over "
        f"{'all rows' if len(compared['pools']) == 1 else f'the rows compared with {baseline}'} "
        f"({plural(pool['freedom'], 'degree')} of freedom)"
        for baseline, pool in pools.items()
    )
    names = ", ".join(compared["own_scatter"])
    own = names and f"; their own runs for {names}, which scatter more"
    correction = f"verdicts are after Holm's correction over {plural(compared['compared'], 'row')}"
    return f"a standard deviation of {scatter}{own}; {correction}" if pools else ""


def _ranks(agreed: Mapping[str, Any]) -> str:
    bounds = f"interval {agreed['low']:.2f} to {agreed['high']:.2f}"
    return f"over {agreed['rows']} rows (Spearman): {agreed['value']:.2f}, {bounds}"


def printed(table: Table, document: Document) -> Printed:
    """The rows under their headings in the paper's order, the paper's figures next to ours; no column is empty."""
    rows = document["rows"]
    filled = [column for column in _columns(table, document) if any(cell is not None for cell in column[1])]
    titles, columns = zip(("", [row["row"] for row in rows]), *filled, strict=True)
    lines: list[list[str]] = []
    for heading, group in groupby(zip(rows, zip(*columns, strict=True)), key=lambda pair: pair[0]["heading"]):
        lines += [[heading]] if heading else []
        lines += [[NOTHING if cell is None else cell for cell in cells] for _, cells in group]
    return Printed("", titles, lines)


def _columns(table: Table, document: Document) -> list[tuple[str, list[str | None]]]:
    """The columns in their order: the title and the cells of each."""
    rows = document["rows"]
    typical = statistics.median(row["ops"] for row in rows)  # tera, as the paper prints, or what fits a smaller table
    unit, scale = next((each for each in (("T", 1e12), ("G", 1e9)) if typical >= each[1]), ("M", 1e6))

    def papers(column: str | None, form: str = "") -> list[str | None]:
        return [_text(row["published"].get(column), form) for row in rows]

    counts = [
        *((title, papers(column)) for column, title in table.columns.items()),
        *((MEASURES[name], [_measure(name, row["measured"][name]) for row in rows]) for name in table.measures),
        ("Parameters (M), paper", papers("params_millions", "g")),
        ("Parameters (M), ours", [f"{(n := row['parameters']) / 1e6:,.{1 if n >= 1e7 else 4}f}" for row in rows]),
        ("Operations (T), paper", papers("ops_tera", "g")),
        (f"Operations ({unit}), ours", [f"{row['ops'] / scale:.3f}" for row in rows]),
        (f"Operations ({unit}), as run", [f"{row['flops_forward'] / 2 / scale:.3f}" for row in rows]),
    ]
    if "studies" not in document:
        return [*counts, *((f"{column.heading}, paper", papers(column.published)) for column in table.downstream)]
    early, deviations = papers("early_loss", ".3f"), papers("early_loss_std", ".3f")
    runs = [
        ("Steps/s, paper", papers("step_per_s", ".2f")),
        ("Steps/s, ours", [_text(row["steps_per_second"], ".2f") for row in rows]),
        ("Early loss, paper", [loss and " ± ".join(filter(None, (loss, std))) for loss, std in zip(early, deviations)]),
        ("Early loss, ours", [_early(row) for row in rows]),
        ("Final loss, paper", papers("final_loss", ".3f")),
        ("Score" if table.judged_by == "score" else "Final loss, ours", [_interval(row["final"]) for row in rows]),
        ("Difference from the baseline", [_interval(row["difference"], "+.4f") for row in rows]),
        ("Verdict", [row["verdict"] for row in rows]),
        ("Runs", [str(row["runs"]["finished"]) for row in rows]),
    ]
    for column in document.get("downstream", ()):
        title, heading, scores = Downstream.of_json(column).title, column["heading"], [_scored(r, column) for r in rows]
        runs += [
            (f"{heading}, paper", papers(column["published"])),
            (f"{title}, ours", [_interval(score.get("mean")) or UNMEASURED for score in scores]),
            (f"{heading}, verdict", [score.get("verdict") for score in scores]),
        ]
    return [*counts, *runs]


def _measure(name: str, value: float) -> str:
    return f"{value:.1e}".replace("e+", "e") if name == "training" else f"{value:,}"


def _text(value: Any, form: str) -> str | None:
    """A number in a form; words of the paper as they are."""
    return value if value is None or isinstance(value, str) else format(value, form)


def _early(row: Document) -> str | None:
    """The mean of the early losses, ± their standard deviation."""
    if row["early"] is None:
        return None
    deviation = f" ± {statistics.stdev(row['early_losses']):.3f}" if len(row["early_losses"]) > 1 else ""
    return f"{row['early']['value']:.3f}{deviation}"


def _interval(figure: Mapping[str, Any] | None, form: str = ".4f") -> str | None:
    if figure is None:
        return None
    text = format(figure["value"], form)
    return text if figure["low"] is None else f"{text} ± {(figure['high'] - figure['low']) / 2:.4f}"


def keep(document: Document, results: Results, page: Path) -> None:
    """Write a page of Markdown that is read without the ledger; points.csv lies in a folder of its name beside it, and
    so may reading.md, written by hand, which says what the table shows and is taken into the page.
    """
    what = "nothing of this table was trained, so there is nothing to keep"
    refuse(not results.studies, what, key="--keep", value=str(page))
    name, beside = results.table.config.removeprefix("table/"), page.with_suffix("")
    reading = beside / READING
    points = f"{beside.name}/points.csv"
    again = shlex.join([name, "--from", str(page.parent / points)])
    write_points(results, beside / "points.csv")
    lines = [
        f"# {results.table.title}",
        f"`scaling table {shlex.quote(name)} --train {_words(results)}`\n({_effort(results)})",
        reading.read_text(encoding="utf-8").strip() if reading.exists() else None,
        "## The table",
        printed(results.table, document).markdown(),
        "\n".join(f"- {markdown_text(note)}" for note in document["said"]),
        f"[Its runs]({quote(points)}) are enough to print it again: `scaling table {again}`.",
        "## What was asked",
        f"```yaml\n{find('table', name).read_text(encoding='utf-8').strip()}\n```",
    ]
    atomic.write(page, "\n\n".join(line for line in lines if line) + "\n")


def _words(results: Results) -> str:
    """The overrides, the number of seeds, and the option of the tasks that were measured."""
    table, planned = results.table, {row: len(runs) for row, runs in results.rows.items()}
    others = max((count for row, count in planned.items() if row not in table.baselines.values()), default=1)
    words = [*results.settings, f"seeds={{baseline: {planned.get(table.baseline, others)}, others: {others}}}"]
    if measured := [column.name for column in results.measured]:
        is_all = set(measured) == {column.name for column in table.downstream if column.tasks}
        words += ["--downstream", ALL if is_all else ",".join(measured)]
    return shlex.join(words)


def _effort(results: Results) -> str:
    """The number of trained tokens, the hardware and the time, as far as the runs state them."""
    done = [run for run in results.runs if run["status"] != MISSING]
    columns = {name: [run[name] for run in done if run[name] is not None] for name in TYPES}
    hardware, versions = ("; ".join(dict.fromkeys(columns[name])) for name in ("hardware", "versions"))
    rows, runs = plural(len(results.table.baselines), "row"), plural(len(results.runs), "run")
    parts = [f"{len(results.rows)} of {rows}", f"{len(done)} of {runs} done"]
    if flops := sum(columns["flops"]):
        parts.append(f"{scientific(flops)} FLOPs")
    if timed := columns["worker_seconds"]:
        some = "" if len(timed) == len(done) else f" in {len(timed)} of them, the others' is not known,"
        parts.append(f"{span(sum(timed))} of worker time{some}{hardware and f' on {hardware}'}")
    if finetuned := columns["finetuning_flops"]:
        effort = f"{scientific(sum(finetuned))} FLOPs and {span(sum(columns['finetuning_worker_seconds']))}"
        parts.append(f"{len(finetuned)} of them finetuned in {effort}")
    days = min(columns["day"], default="")
    return (days and f"{days}: ") + ", ".join(parts) + (versions and f"; {versions}")
