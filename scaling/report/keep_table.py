"""Keep a table's results where they are read without their ledger: a page of Markdown, and the points behind it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from scaling import atomic
from scaling.config import find, table_file
from scaling.errors import ScalingError
from scaling.ledger import Ledger
from scaling.report.made import made
from scaling.report.numbers import plural, scientific, span
from scaling.study.record import entered
from scaling.table import points
from scaling.table.form import markdown
from scaling.table.lines import Printed
from scaling.table.results import Results

READING = "reading.md"


def keep_table(show: Printed, found: Results, ledger: Ledger, page: Path) -> None:
    """Write the page; points.csv lies in a folder of its name beside it, and so may reading.md, written by hand, which
    says what the table shows and is taken into the page.
    """
    if not found.studies:
        raise ScalingError("it holds no run of this table", file=ledger.root, key="table", value=show.table.name)
    file, beside = table_file(show.table.config), page.with_suffix("")
    name = file.name.removeprefix("table/")
    points.write(found, beside / "points.csv")
    reading = beside / READING
    lines = [
        f"# {show.table.title}",
        f"`scaling table {name} --train {_words(show, found)}`\n({_made(found, ledger, len(file.rows))})",
        reading.read_text(encoding="utf-8").strip() if reading.exists() else None,
        "## The table",
        markdown(show).partition("\n\n")[2].strip(),
        f"[Its runs]({beside.name}/points.csv) are enough to print it again: "
        f"`scaling table {name} --from {page.parent / beside.name}/points.csv`.",
        "## What was asked",
        f"```yaml\n{find('table', name).read_text(encoding='utf-8').strip()}\n```",
    ]
    atomic.write(page, "\n\n".join(line for line in lines if line) + "\n")


def _words(show: Printed, found: Results) -> str:
    """The overrides, and for how many seeds was asked."""
    planned = {row: runs.planned for row, runs in found.rows.items()}
    others = max((count for row, count in planned.items() if row != show.table.baseline), default=1)
    seeds = f"seeds={{baseline: {planned.get(show.table.baseline, others)}, others: {others}}}"
    return " ".join(map(shlex.quote, [*found.settings, seeds]))


def _made(found: Results, ledger: Ledger, rows: int) -> str:
    """How much was trained, on which hardware, in which time. A run that two studies share was trained once."""
    plans = [entered(ledger, study) for study in found.studies]
    runs = {one.run: one for plan in plans for one in plan.runs}
    trunks = {name: trunk for plan in plans for name, trunk in plan.trunks.items()}
    how = made(ledger, replace(plans[0], runs=tuple(runs.values()), trunks=trunks))
    hardware = "; ".join(how.hardware)
    versions = ", ".join(f"{name} {'/'.join(values)}" for name, values in how.versions.items())
    done = f"{sum(how.hardware.values())} of {plural(len(runs), 'run')} done"
    spent = f"{scientific(how.flops)} FLOPs, {span(how.worker_seconds)} of worker time on {hardware}"
    return f"{how.day}: {len(found.rows)} of {plural(rows, 'row')}, {done}, {spent}; {versions}"
