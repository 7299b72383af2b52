"""The report of a fit as Markdown or LaTeX, by the tables that the terminal shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scaling.fit_report.tables import Table, diagnostics, heading, tables

LATEX = {
    **{character: "\\" + character for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "[": "{[}",  # after a line's end it would open an option
    "±": r"$\pm$",
    "×": r"$\times$",
    "–": "--",
    "²": "$^2$",
    "≥": r"$\geq$",
}
GREEK = {
    letter: f"$\\{name}$"
    for name, letter in {"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "eta": "η"}.items()
}
MARKDOWN = {**{character: "\\" + character for character in "\\|*`"}, "<": "&lt;"}


def markdown(document: Mapping[str, Any]) -> str:
    """GitHub's Markdown."""
    law, *lines = map(markdown_text, heading(document))
    parts = [f"**{law}**", "  \n".join(lines)]
    for table in tables(document):
        parts += [markdown_text(table.caption), markdown_table(table), *map(markdown_text, table.notes)]
    parts.append("\n".join(f"- {markdown_text(line)}" for line, _ in diagnostics(document)))
    return "\n\n".join(parts).rstrip() + "\n"


def latex(document: Mapping[str, Any]) -> str:
    """A tabular of booktabs for each table; everything else as comments."""
    lines = [f"% {line}" for line in heading(document)]
    for table in tables(document):
        lines += [f"% {table.caption}", latex_table(table), *(f"% {note}" for note in table.notes)]
    return "\n".join([*lines, *(f"% {line}" for line, _ in diagnostics(document))]).rstrip() + "\n"


def markdown_table(table: Table) -> str:
    marks = ["---" if place in table.words else "---:" for place in range(len(table.titles))]
    lines = [map(markdown_text, table.titles), marks, *(map(markdown_text, row) for row in table.rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def latex_table(table: Table) -> str:
    columns = "".join("l" if place in table.words else "r" for place in range(len(table.titles)))
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", _ampersands(table.titles), r"\midrule"]
    return "\n".join([*lines, *map(_ampersands, table.rows), r"\bottomrule", r"\end{tabular}"])


def _ampersands(cells: Sequence[str]) -> str:
    return " & ".join(map(latex_text, cells)) + r" \\"


def latex_text(text: str) -> str:
    return text.translate(str.maketrans(LATEX | GREEK))


def markdown_text(text: str) -> str:
    return text.translate(str.maketrans(MARKDOWN))


FORMATS: dict[str, Callable[[Mapping[str, Any]], str]] = {"markdown": markdown, "latex": latex}
