"""Forms: a table's document as a printed table, and as a page that is kept."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scaling import atomic
from scaling.config import find, table_file
from scaling.errors import ScalingError, plural
from scaling.printing import Table as Printed
from scaling.printing import markdown_text, scientific, span
from scaling.tables.document import Document
from scaling.tables.downstream import ALL, Downstream
from scaling.tables.results import MISSING, Results, write_points
from scaling.tables.table import MEASURES, Table

NOTHING, UNMEASURED = "–", "not measured"
READING = "reading.md"


def printed(table: Table, document: Document) -> Printed:
    """The rows under their headings in the paper's order, the paper's figures next to ours; no column is empty."""
    rows, trained = document["rows"], "studies" in document
    typical = statistics.median(row["ops"] for row in rows)  # tera, as the paper prints, or what fits a smaller table
    unit, scale = next((each for each in (("T", 1e12), ("G", 1e9)) if typical >= each[1]), ("M", 1e6))
    titles, columns = [""], [[row["row"] for row in rows]]

    def add(title: str, cell: Callable[[Document], str | None], of: Sequence[Document] = rows) -> None:
        texts = [NOTHING if (text := cell(row)) is None else text for row in of]
        if set(texts) != {NOTHING}:
            titles.append(title)
            columns.append(texts)

    def add_published(title: str, column: str | None, form: str = "{}") -> None:
        add(title, lambda row: _form(row["published"].get(column), form))

    for column, title in table.columns.items():
        add_published(title, column)
    for name in table.measures:
        form = "{:.1e}" if name == "training" else "{:,}"
        add(MEASURES[name], lambda row, name=name, form=form: form.format(row["measured"][name]).replace("e+", "e"))
    add_published("Parameters (M), paper", "params_millions", "{:g}")
    add("Parameters (M), ours", lambda row: f"{(n := row['parameters']) / 1e6:,.{1 if n >= 1e7 else 4}f}")
    add_published("Operations (T), paper", "ops_tera", "{:g}")
    add(f"Operations ({unit}), ours", lambda row: f"{row['ops'] / scale:.3f}")
    add(f"Operations ({unit}), as run", lambda row: f"{row['flops_forward'] / 2 / scale:.3f}")
    if trained:
        add_published("Steps/s, paper", "step_per_s", "{:.2f}")
        add("Steps/s, ours", lambda row: _form(row["steps_per_second"], "{:.2f}"))
        add("Early loss, paper", lambda row: _early(*map(row["published"].get, ("early_loss", "early_loss_std"))))
        add("Early loss, ours", lambda row: _early(row["early"] and row["early"]["value"], _std(row["early_losses"])))
        add_published("Final loss, paper", "final_loss", "{:.3f}")
        add("Score" if table.judged_by == "score" else "Final loss, ours", lambda row: _interval(row["final"]))
        add("Difference from the baseline", lambda row: _interval(row["difference"], "+.4f"))
        add("Verdict", lambda row: row["verdict"])
        add("Runs", lambda row: str(row["runs"]["finished"]))
    for column in document.get("downstream", [each.to_json() for each in table.downstream]):
        add_published(f"{column['heading']}, paper", column["published"])
        if trained:
            title, name = f"{Downstream.of_json(column).title}, ours", column["name"]
            scores = [row.get("downstream", {}).get(name, {}) for row in rows]
            add(title, lambda score: _interval(score.get("mean")) or UNMEASURED, scores)
            if any(scores):
                add(f"{column['heading']}, verdict", lambda score: score.get("verdict"), scores)
    lines: list[list[str]] = []
    for place, cells in enumerate(zip(*columns, strict=True)):
        heading = rows[place]["heading"]
        if heading and (not place or heading != rows[place - 1]["heading"]):
            lines.append([heading])
        lines.append(list(cells))
    return Printed("", titles, lines)


def _form(value: Any, form: str) -> str | None:
    return None if value is None else form.format(value)


def _early(value: float | None, deviation: float | None) -> str | None:
    return None if value is None else f"{value:.3f}" + ("" if deviation is None else f" ± {deviation:.3f}")


def _std(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def _interval(figure: Mapping[str, Any] | None, form: str = ".4f") -> str | None:
    if figure is None:
        return None
    text = format(figure["value"], form)
    return text if figure["low"] is None else f"{text} ± {(figure['high'] - figure['low']) / 2:.4f}"


def keep(table: Table, document: Document, results: Results, page: Path) -> None:
    """Write a page of Markdown that is read without the ledger; points.csv lies in a folder of its name beside it, and
    so may reading.md, written by hand, which says what the table shows and is taken into the page.
    """
    if not results.studies:
        what = "nothing of this table was trained, so there is nothing to keep"
        raise ScalingError(what, key="--keep", value=str(page))
    file, beside = table_file(table.config), page.with_suffix("")
    name, reading = file.name.removeprefix("table/"), beside / READING
    points = f"{beside.name}/points.csv"
    write_points(results, beside / "points.csv")
    lines = [
        f"# {table.title}",
        f"`scaling table {name} --train {_words(table, results)}`\n({_effort(results, len(file.rows))})",
        reading.read_text(encoding="utf-8").strip() if reading.exists() else None,
        "## The table",
        printed(table, document).markdown(),
        "\n".join(f"- {markdown_text(note)}" for note in document["said"]),
        f"[Its runs]({points}) are enough to print it again: `scaling table {name} --from {page.parent / points}`.",
        "## What was asked",
        f"```yaml\n{find('table', name).read_text(encoding='utf-8').strip()}\n```",
    ]
    atomic.write(page, "\n\n".join(line for line in lines if line) + "\n")


def _words(table: Table, results: Results) -> str:
    """The overrides, the number of seeds, and the option of the tasks that were measured."""
    planned = {row: len(runs) for row, runs in results.rows.items()}
    others = max((count for row, count in planned.items() if not table.is_baseline(row)), default=1)
    words = [*results.settings, f"seeds={{baseline: {planned.get(table.baseline, others)}, others: {others}}}"]
    measured = [column.name for column in results.downstream if column.metric is not None]
    if measured:
        of_all = set(measured) == {column.name for column in table.downstream if column.tasks}
        words += ["--downstream", ALL if of_all else ",".join(measured)]
    return " ".join(map(shlex.quote, words))


def _effort(results: Results, rows: int) -> str:
    """How much was trained, on which hardware, in which time. What no run tells is left out."""
    done = [run for run in results.runs if run["status"] != MISSING]
    timed = [run["worker_seconds"] for run in done if run["worker_seconds"] is not None]
    hardware, versions = (
        "; ".join(dict.fromkeys(run[it] for run in done if run[it])) for it in ("hardware", "versions")
    )
    parts = [f"{len(results.rows)} of {plural(rows, 'row')}", f"{len(done)} of {plural(len(results.runs), 'run')} done"]
    if flops := sum(run["flops"] or 0 for run in done):
        parts.append(f"{scientific(flops)} FLOPs")
    if timed:
        some = "" if len(timed) == len(done) else f" in {len(timed)} of them, the others' is not known,"
        parts.append(f"{span(sum(timed))} of worker time{some}{hardware and f' on {hardware}'}")
    if finetuned := [run for run in done if run["finetuning_flops"] is not None]:
        seconds = sum(run["finetuning_worker_seconds"] or 0 for run in finetuned)
        flops = scientific(sum(run["finetuning_flops"] for run in finetuned))
        parts.append(f"{len(finetuned)} of them finetuned in {flops} FLOPs and {span(seconds)}")
    days = [run["day"] for run in done if run["day"]]
    return (f"{min(days)}: " if days else "") + ", ".join(parts) + (versions and f"; {versions}")
