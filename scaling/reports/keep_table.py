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
from scaling.tables import points
from scaling.tables.cells import markdown
from scaling.tables.downstream import ALL
from scaling.tables.lines import Printed
from scaling.tables.results import MISSING, Point, Results

READING = "reading.md"


def keep_table(show: Printed, results: Results, page: Path) -> None:
    """Write the page; points.csv lies in a folder of its name beside it, and so may reading.md, written by hand, which
    says what the table shows and is taken into the page.
    """
    if not results.studies:
        raise ScalingError(
            "nothing of this table was trained, so there is nothing to keep", key="--keep", value=str(page)
        )
    file, beside = table_file(show.table.config), page.with_suffix("")
    name = file.name.removeprefix("table/")
    points.write(results, beside / "points.csv")
    reading = beside / READING
    lines = [
        f"# {show.table.title}",
        f"`scaling table {name} --train {_words(show, results)}`\n({_effort(results, len(file.rows))})",
        reading.read_text(encoding="utf-8").strip() if reading.exists() else None,
        "## The table",
        markdown(show).partition("\n\n")[2].strip(),
        f"[Its runs]({beside.name}/points.csv) are enough to print it again: "
        f"`scaling table {name} --from {page.parent / beside.name}/points.csv`.",
        "## What was asked",
        f"```yaml\n{find('table', name).read_text(encoding='utf-8').strip()}\n```",
    ]
    atomic.write(page, "\n\n".join(line for line in lines if line) + "\n")


def _words(show: Printed, results: Results) -> str:
    """The overrides, and for how many seeds was asked."""
    planned = {row: runs.planned for row, runs in results.rows.items()}
    others = max((count for row, count in planned.items() if not show.table.is_baseline(row)), default=1)
    seeds = f"seeds={{baseline: {planned.get(show.table.baseline, others)}, others: {others}}}"
    return " ".join(map(shlex.quote, [*results.settings, seeds, *_downstream(show, results)]))


def _downstream(show: Printed, results: Results) -> list[str]:
    """The option of the tasks that were measured."""
    measured = [column.name for column in results.downstream if column.metric is not None]
    own = [column.name for column in show.table.downstream if column.tasks]
    return ["--downstream", ALL if set(measured) == set(own) else ",".join(measured)] if measured else []


def _effort(results: Results, rows: int) -> str:
    """How much was trained, on which hardware, in which time. What no run tells is left out."""
    done = [point for point in results.points if point.status != MISSING]
    timed = [point.worker_seconds for point in done if point.worker_seconds is not None]
    how = [f"{len(results.rows)} of {plural(rows, 'row')}", f"{len(done)} of {plural(len(results.points), 'run')} done"]
    how += [f"{scientific(flops)} FLOPs"] if (flops := sum(point.flops or 0 for point in done)) else []
    how += [f"{span(sum(timed))} of worker time" + _of(timed, done) + _each(" on ", done, "hardware")] if timed else []
    finetuned = [point for point in done if point.finetuning_flops is not None]
    if finetuned:
        took = sum(point.finetuning_worker_seconds or 0 for point in finetuned)
        flops = scientific(sum(point.finetuning_flops or 0 for point in finetuned))
        how += [f"{len(finetuned)} of them finetuned in {flops} FLOPs and {span(took)}"]
    days = [point.day for point in done if point.day]
    return (f"{min(days)}: " if days else "") + ", ".join(how) + _each("; ", done, "versions")


def _of(timed: Sequence[float], done: Sequence[Point]) -> str:
    return "" if len(timed) == len(done) else f" in {len(timed)} of them, the others' is not known,"


def _each(before: str, done: Sequence[Point], name: str) -> str:
    """What all points tell under a name, once each."""
    values = dict.fromkeys(value for point in done if (value := getattr(point, name)))
    return before + "; ".join(values) if values else ""
