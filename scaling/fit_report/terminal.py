"""The report of a fit on the terminal: what was counted, the estimates, the predictions and the diagnostics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from scaling.fit_report import tables

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

UNBOUNDED = 10_000
"""Columns of a terminal on which every table is whole."""


def show(document: Mapping[str, Any], console: Console) -> None:
    """Print the report of a law, of IsoFLOP minima, or of an envelope."""
    for line, style in zip(tables.heading(document), chain(("bold", "dim", ""), repeat("dim"))):
        console.print(line, style=style, markup=False)
    show_tables(tables.tables(document), console)
    console.print("")
    for line, style in tables.diagnostics(document):
        console.print(line, style=style, markup=False)


def show_tables(shown: Iterable[tables.Table], console: Console) -> None:
    """Print tables, each with its notes below it."""
    from rich.measure import Measurement

    width = console.width
    for table in shown:
        rich_table = _table(table)
        if table.words == (0,):  # numbers are not cut: what is wider than the terminal goes on in its next line
            console.width = max(
                width, Measurement.get(console, console.options.update(max_width=UNBOUNDED), rich_table).maximum
            )
        console.print()
        console.print(rich_table)
        console.width = width
        for note in table.notes:
            console.print(note, style="dim", markup=False)


def _table(table: tables.Table) -> Table:
    from rich.markup import escape
    from rich.table import Table

    rich_table = Table(box=None, pad_edge=False, header_style="bold")
    for index, title in enumerate(table.titles):
        # Two lines of title over an interval leave room on eighty columns. Words may wrap, numbers may not.
        broken = title.replace(" interval of ", " interval\nof ")
        rich_table.add_column(broken, justify="left" if index == 0 else "right", no_wrap=index not in table.words)
    for row in table.rows:
        rich_table.add_row(*map(escape, row))
    return rich_table
