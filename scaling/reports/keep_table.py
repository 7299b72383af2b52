"""Keep a table's results where they are read without their ledger: a page of Markdown, and the points behind it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from scaling import atomic
from scaling.config import find, table_file
from scaling.errors import ScalingError, plural
from scaling.printing import span
from scaling.reports.markup import scientific
from scaling.tables.document import Document
from scaling.tables.downstream import ALL
from scaling.tables.forms import markdown
from scaling.tables.results import MISSING, Record, Results, write_points
from scaling.tables.table import Table

READING = "reading.md"


def keep_table(table: Table, document: Document, results: Results, page: Path) -> None:
    """Write the page; points.csv lies in a folder of its name beside it, and so may reading.md, written by hand, which
    says what the table shows and is taken into the page.
    """
    if not results.studies:
        what = "nothing of this table was trained, so there is nothing to keep"
        raise ScalingError(what, key="--keep", value=str(page))
    file, beside = table_file(table.config), page.with_suffix("")
    name = file.name.removeprefix("table/")
    write_points(results, beside / "points.csv")
    reading = beside / READING
    lines = [
        f"# {table.title}",
        f"`scaling table {name} --train {_words(table, results)}`\n({_effort(results, len(file.rows))})",
        reading.read_text(encoding="utf-8").strip() if reading.exists() else None,
        "## The table",
        markdown(table, document).partition("\n\n")[2].strip(),
        f"[Its runs]({beside.name}/points.csv) are enough to print it again: "
        f"`scaling table {name} --from {page.parent / beside.name}/points.csv`.",
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
    parts = [f"{len(results.rows)} of {plural(rows, 'row')}", f"{len(done)} of {plural(len(results.runs), 'run')} done"]
    if flops := sum(run["flops"] or 0 for run in done):
        parts.append(f"{scientific(flops)} FLOPs")
    if timed:
        some = "" if len(timed) == len(done) else f" in {len(timed)} of them, the others' is not known,"
        parts.append(f"{span(sum(timed))} of worker time{some}{_each(' on ', done, 'hardware')}")
    if finetuned := [run for run in done if run["finetuning_flops"] is not None]:
        seconds = sum(run["finetuning_worker_seconds"] or 0 for run in finetuned)
        flops = scientific(sum(run["finetuning_flops"] for run in finetuned))
        parts.append(f"{len(finetuned)} of them finetuned in {flops} FLOPs and {span(seconds)}")
    days = [run["day"] for run in done if run["day"]]
    return (f"{min(days)}: " if days else "") + ", ".join(parts) + _each("; ", done, "versions")


def _each(before: str, done: Sequence[Record], name: str) -> str:
    """The different values of a column, once each."""
    values = dict.fromkeys(run[name] for run in done if run[name])
    return before + "; ".join(values) if values else ""
