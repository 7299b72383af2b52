"""Forms: a table's cells as text for a terminal's reader, a paper or a page."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from scaling import printing
from scaling.printing import latex_text, markdown_text
from scaling.tables.cells import columns
from scaling.tables.lines import Line, Printed, notes

Headed = tuple[str, list[list[str]]]


def headed(printed: Printed) -> Iterator[Headed]:
    """Lines of cells under each heading, in the paper's order."""
    shown = columns(printed)
    groups: list[Headed] = []
    for line in printed.lines:
        if not groups or groups[-1][0] != line.counted.row.heading:
            groups.append((line.counted.row.heading, []))
        groups[-1][1].append(_cells(line, shown))
    yield from groups


def _cells(line: Line, shown: Sequence[tuple[str, Callable[[Line], str]]]) -> list[str]:
    return [line.counted.row.name, *(cell(line) for _, cell in shown)]


def titles(printed: Printed) -> list[str]:
    return ["", *(title for title, _ in columns(printed))]


def terminal(printed: Printed) -> str:
    """Columns as wide as their widest cell, for whatever width the terminal scrolls to."""
    groups = list(headed(printed))
    head, *rest = printing.columns(titles(printed), [row for _, rows in groups for row in rows]).split("\n")
    lines = [printed.table.title, "", head]
    for heading, rows in groups:
        lines += ["", heading] if heading else []
        lines += [rest.pop(0) for _ in rows]
    return "\n".join([*lines, "", *notes(printed)]).rstrip() + "\n"


def markdown(printed: Printed) -> str:
    """GitHub's tables, a heading as a line in bold."""
    width = len(titles(printed))
    head = [markdown_text(title) for title in titles(printed)]
    lines = [f"**{markdown_text(printed.table.title)}**", "", _bars(head), _bars(["---", *["---:"] * (width - 1)])]
    for heading, rows in headed(printed):
        lines += [_bars([f"**{markdown_text(heading)}**", *[""] * (width - 1)])] if heading else []
        lines += [_bars([markdown_text(cell) for cell in row]) for row in rows]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes(printed))]).rstrip() + "\n"


def _bars(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def latex(printed: Printed) -> str:
    """A tabular of booktabs."""
    width = len(titles(printed))
    lines = [r"\begin{tabular}{l" + "r" * (width - 1) + "}", r"\toprule", _ampersands(titles(printed)), r"\midrule"]
    for index, (heading, rows) in enumerate(headed(printed)):
        lines += [r"\midrule"] if index else []
        lines += [rf"\multicolumn{{{width}}}{{l}}{{\emph{{{latex_text(heading)}}}}} \\"] if heading else []
        lines += [_ampersands(row) for row in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", *(f"% {note}" for note in notes(printed))]) + "\n"


def _ampersands(cells: Sequence[str]) -> str:
    return " & ".join(map(latex_text, cells)) + r" \\"


def table_csv(printed: Printed) -> str:
    """A line a row with plain numbers, published figures under their own names."""
    return printing.csv_text([flat(line) for line in printed.lines])


def flat(line: Line) -> dict[str, object]:
    """A line's figures under plain names."""
    return _flat(line.to_json())


def _flat(figures: Mapping[str, Any], above: str = "") -> dict[str, object]:
    cells: dict[str, object] = {}
    for key, value in figures.items():
        if isinstance(value, dict) and any(isinstance(inner, dict) for inner in value.values()):
            for name, inner in value.items():
                cells |= _flat(inner, f"{above}{key}_{name}_")
        elif isinstance(value, dict):
            cells |= {f"{above}{key}_{inner}": cell for inner, cell in value.items()}
        elif not isinstance(value, tuple) and value is not None:
            cells[above + key] = value
    return cells


def page(printed: Printed) -> str:
    """One self-contained table of HTML, without a page around it."""
    width = len(titles(printed))
    lines = [
        "<table>",
        f"<caption>{html.escape(printed.table.title)}</caption>",
        "<thead>",
        _row(titles(printed), "th"),
    ]
    lines += ["</thead>", "<tbody>"]
    for heading, rows in headed(printed):
        lines += [f'<tr><th colspan="{width}">{html.escape(heading)}</th></tr>'] if heading else []
        lines += [_row(row, "td") for row in rows]
    items = [f"<li>{html.escape(note)}</li>" for note in notes(printed)]
    return "\n".join([*lines, "</tbody>", "</table>", *(["<ul>", *items, "</ul>"] if items else [])]) + "\n"


def _row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"


FORMS: dict[str, Callable[[Printed], str]] = {
    "terminal": terminal,
    "markdown": markdown,
    "latex": latex,
    "csv": table_csv,
    "html": page,
}
