"""Forms: a table's document as text for a terminal, Markdown, LaTeX, CSV and HTML."""

from __future__ import annotations

import html
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from scaling import printing
from scaling.printing import latex_text, markdown_text
from scaling.tables.document import Document
from scaling.tables.downstream import Downstream
from scaling.tables.table import MEASURES, Table

NOTHING, UNMEASURED = "–", "not measured"


def columns(table: Table, document: Document) -> list[tuple[str, list[str]]]:
    """Each title with the cells of all rows, the paper's figures next to ours; no column is empty."""
    rows, trained = document["rows"], "studies" in document
    typical = statistics.median(row["ops"] for row in rows)  # tera, as the paper prints, or what fits a smaller table
    unit, scale = next((each for each in (("T", 1e12), ("G", 1e9)) if typical >= each[1]), ("M", 1e6))
    cells: list[tuple[str, list[str]]] = []

    def add(title: str, cell: Callable[[Document], str | None], of: Sequence[Document] = rows) -> None:
        texts = [NOTHING if (text := cell(row)) is None else text for row in of]
        if set(texts) != {NOTHING}:
            cells.append((title, texts))

    def add_published(title: str, column: str | None, form: str = "{}") -> None:
        add(title, lambda row: _form(row["published"].get(column), form))

    for column, title in table.columns.items():
        add_published(title, column)
    for name in table.measures:
        add(MEASURES[name], lambda row, name=name: _measured(name, row["measured"][name]))
    add_published("Parameters (M), paper", "params_millions", "{:g}")
    add("Parameters (M), ours", lambda row: _millions(row["parameters"]))
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
    return cells


def _form(value: Any, form: str) -> str | None:
    return None if value is None else form.format(value)


def _measured(name: str, value: float) -> str:
    if name == "training":
        return f"{value:.1e}".replace("e+", "e")
    return f"{value:.2f}" if name.endswith("_growth") else f"{value:,}"


def _millions(parameters: int) -> str:
    return f"{parameters / 1e6:,.{1 if parameters >= 1e7 else 4}f}"


def _early(value: float | None, deviation: float | None) -> str | None:
    return None if value is None else f"{value:.3f}" + ("" if deviation is None else f" ± {deviation:.3f}")


def _std(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def _interval(figure: Mapping[str, Any] | None, form: str = ".4f") -> str | None:
    if figure is None:
        return None
    text = format(figure["value"], form)
    return text if figure["low"] is None else f"{text} ± {(figure['high'] - figure['low']) / 2:.4f}"


Lines = tuple[list[str], list[tuple[str, list[list[str]]]], Sequence[str]]


def lines(table: Table, document: Document) -> Lines:
    """The titles, the rows of cells under each heading in the paper's order, and the notes."""
    cells = columns(table, document)
    groups: list[tuple[str, list[list[str]]]] = []
    for row, *texts in zip(document["rows"], *(texts for _, texts in cells), strict=True):
        if not groups or groups[-1][0] != row["heading"]:
            groups.append((row["heading"], []))
        groups[-1][1].append([row["row"], *texts])
    return ["", *(title for title, _ in cells)], groups, document.get("said", ())


def terminal(table: Table, document: Document) -> str:
    """Columns as wide as their widest cell, for whatever width the terminal scrolls to."""
    titles, groups, notes = lines(table, document)
    head, *rest = printing.columns(titles, [row for _, rows in groups for row in rows]).split("\n")
    text = [table.title, "", head]
    for heading, rows in groups:
        text += ["", heading] if heading else []
        text += [rest.pop(0) for _ in rows]
    return "\n".join([*text, "", *notes]).rstrip() + "\n"


def markdown(table: Table, document: Document) -> str:
    """GitHub's tables, a heading as a line in bold."""
    titles, groups, notes = lines(table, document)
    empty = [""] * (len(titles) - 1)
    body = [list(map(markdown_text, titles)), ["---", *["---:"] * len(empty)]]
    for heading, rows in groups:
        body += [[f"**{markdown_text(heading)}**", *empty]] if heading else []
        body += [list(map(markdown_text, row)) for row in rows]
    text = [f"**{markdown_text(table.title)}**", "", *(f"| {' | '.join(row)} |" for row in body)]
    return "\n".join([*text, "", *(f"- {note}" for note in notes)]).rstrip() + "\n"


def latex(table: Table, document: Document) -> str:
    """A table with a caption and a label, whose tabular is of booktabs."""
    titles, groups, notes = lines(table, document)
    body: Iterator[str] = (" & ".join(map(latex_text, row)) + r" \\" for row in (titles, *_rows(groups)))
    text = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_text(table.title)}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(titles) - 1)}}}",
        r"\toprule",
        next(body),
    ]
    for heading, rows in groups:
        text += [r"\midrule"]
        text += [rf"\multicolumn{{{len(titles)}}}{{l}}{{\emph{{{latex_text(heading)}}}}} \\"] if heading else []
        text += [next(body) for _ in rows]
    text += [r"\bottomrule", r"\end{tabular}", r"\end{table}", *(f"% {note}" for note in notes)]
    return "\n".join(text) + "\n"


def _rows(groups: Sequence[tuple[str, list[list[str]]]]) -> Iterator[list[str]]:
    return (row for _, rows in groups for row in rows)


def page(table: Table, document: Document) -> str:
    """One self-contained table of HTML, without a page around it."""
    titles, groups, notes = lines(table, document)
    text = ["<table>", f"<caption>{html.escape(table.title)}</caption>", "<thead>", _html(titles, "th")]
    text += ["</thead>", "<tbody>"]
    for heading, rows in groups:
        text += [f'<tr><th colspan="{len(titles)}">{html.escape(heading)}</th></tr>'] if heading else []
        text += [_html(row, "td") for row in rows]
    items = [f"<li>{html.escape(note)}</li>" for note in notes]
    return "\n".join([*text, "</tbody>", "</table>", *(["<ul>", *items, "</ul>"] if items else [])]) + "\n"


def _html(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def flat(figures: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The numbers and texts of nested figures under plain names; lists are left out."""
    cells: dict[str, Any] = {}
    for key, value in figures.items():
        if isinstance(value, dict):
            cells |= flat(value, f"{above}{key}_")
        elif not isinstance(value, list) and value is not None:
            cells[above + key] = value
    return cells


FORMS: dict[str, Callable[[Table, Document], str]] = {
    "terminal": terminal,
    "markdown": markdown,
    "latex": latex,
    "csv": lambda _, document: printing.csv_text([flat(row) for row in document["rows"]]),
    "html": page,
}
