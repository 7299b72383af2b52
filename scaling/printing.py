"""Text for people: tables of aligned columns, spans of time, bytes, intervals."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

_NAMES = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "kappa", "lambda", "sigma", "omega")
GREEK: Mapping[str, str] = dict(zip(_NAMES, "αβγδεζηκλσω", strict=True))
"""Letters of parameters by the names that options and JSON have."""
SIGNS = {"±": "pm", "×": "times", "∝": "propto", "≥": "geq", "→": "to", **{sign: name for name, sign in GREEK.items()}}
LATEX = str.maketrans(
    {character: "\\" + character for character in "&%$#_{}"}
    | {
        character: rf"\text{name}{{}}"
        for character, name in zip("\\~^<>", ("backslash", "asciitilde", "asciicircum", "less", "greater"))
    }
    | {sign: rf"$\{name}$" for sign, name in SIGNS.items()}
    | {"–": "--", "²": "$^2$", "[": "{[}"}  # a bracket after a line's end would open an option
)
MARKDOWN = str.maketrans({**{character: "\\" + character for character in "\\|*`"}, "<": "&lt;"})


@dataclass(frozen=True)
class Table:
    """Titled columns of text. The first column names its rows; columns in `words` hold text, the others numbers."""

    caption: str
    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[int] = (0,)
    notes: Sequence[str] = ()

    def text(self) -> str:
        """The table for a terminal; a title over an interval takes two lines."""
        titles = [title.replace(" interval of ", " interval\nof ").split("\n") for title in self.titles]
        depth = max(map(len, titles))
        heads = zip(*([""] * (depth - len(title)) + title for title in titles), strict=True)
        return _aligned([*heads, *self.rows], [place not in self.words for place in range(len(titles))])

    def markdown(self) -> str:
        """GitHub's Markdown, without caption and notes."""
        marks = ["---" if place in self.words else "---:" for place in range(len(self.titles))]
        lines = [map(markdown_text, self.titles), marks, *(map(markdown_text, row) for row in self.rows)]
        return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)

    def latex(self) -> str:
        """A tabular of booktabs, without caption and notes."""
        kinds = "".join("l" if place in self.words else "r" for place in range(len(self.titles)))
        head, *body = (" & ".join(map(latex_text, line)) + r" \\" for line in (self.titles, *self.rows))
        lines = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule"]
        return "\n".join([*lines, r"\end{tabular}"])


class TableResult:
    """A result of lines and tables that prints itself: on a terminal, in a notebook, as Markdown or LaTeX."""

    formats: ClassVar = ("terminal", "markdown", "latex")

    def heading(self) -> Iterable[str]:
        """Return the lines above the tables; the first is the title."""
        return ()

    def tables(self) -> Iterable[Table]:
        return ()

    def remarks(self) -> Iterable[str]:
        """Return the lines below the tables."""
        return ()

    def format(self, name: str) -> str:
        """The text of `--format`: `terminal`, `markdown` or `latex`."""
        heading, tables, remarks = list(self.heading()), list(self.tables()), list(self.remarks())
        if name == "markdown":
            title = [f"**{markdown_text(line)}**" for line in heading[:1]]
            parts = [*title, "  \n".join(map(markdown_text, heading[1:]))]
            for table in tables:
                parts += [markdown_text(table.caption), table.markdown(), *map(markdown_text, table.notes)]
            return "\n\n".join(filter(None, [*parts, "\n".join(f"- {markdown_text(line)}" for line in remarks)]))
        if name == "latex":
            lines = [f"% {line}" for line in heading]
            for table in tables:
                lines += [f"% {table.caption}", table.latex(), *(f"% {note}" for note in table.notes)]
            return "\n".join([*lines, *(f"% {line}" for line in remarks)])
        blocks = ("\n".join([table.text(), *table.notes]) for table in tables)
        return "\n\n".join(filter(None, ["\n".join(heading), *blocks, "\n".join(remarks)]))

    def _repr_html_(self) -> str:
        parts = [f"<p>{html.escape(line)}</p>" for line in self.heading()]
        for table in self.tables():
            parts += [f"<p>{html.escape(table.caption)}</p>", html_table(table.titles, table.rows)]
            parts += [f"<p>{html.escape(note)}</p>" for note in table.notes]
        return "\n".join([*parts, *(f"<p>{html.escape(line)}</p>" for line in self.remarks())])

    def __str__(self) -> str:
        return self.format("terminal")


def latex_text(text: str) -> str:
    return text.translate(LATEX)


def markdown_text(text: str) -> str:
    return text.translate(MARKDOWN)


def columns(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as text. Numbers are aligned to the right, a column of text to the left; None is an empty cell."""
    cells = [list(map(cell, row)) for row in rows]
    numeric = [all(_is_numeric(row[place]) for row in cells) and bool(cells) for place in range(len(titles))]
    return _aligned([titles, *cells], numeric)


def _aligned(lines: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """Lines of cells in columns as wide as their widest cell, aligned to the left or the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = (
        "  ".join(f"{text:>{w}}" if is_right else f"{text:<{w}}" for text, w, is_right in zip(line, widths, right))
        for line in lines
    )
    return "\n".join(line.rstrip() for line in aligned)


def cell(value: Any) -> str:
    """A value in a table: whole numbers with separators, others with four digits after the point."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def _is_numeric(text: str) -> bool:
    return not text or text[0].isdigit() or (text[0] in "-+±." and len(text) > 1)


def html_table(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table for a notebook."""
    head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell(value))}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def csv_text(rows: Sequence[Mapping[str, Any]], titles: Sequence[str] = ()) -> str:
    """Rows as CSV, the same bytes for the same rows; a column that only some of them have is empty in the others. Text
    that a spreadsheet would take for a formula is quoted.
    """
    text = io.StringIO()
    header = titles or list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(text, header, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(
        {key: f"'{cell}" if str(cell)[:1] in ("=", "@") else cell for key, cell in row.items()} for row in rows
    )
    return text.getvalue()


def interval(bounds: Mapping[str, Any] | None, digits: str = ".4f") -> str:
    """`[low, high]`; an end that is open is said to be."""
    if bounds is None:
        return ""
    low, high = ("open" if bounds[end] is None else f"{bounds[end]:{digits}}" for end in ("low", "high"))
    return f"[{low}, {high}]"


def short(value: float) -> str:
    """Three digits with the letter of thousands; powers of ten where letters end."""
    if value >= 1e15 or 0 < value < 1e-3:
        mantissa, power = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(power)}"
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size * 0.9995:  # what rounds to 1000 of one letter is 1 of the next
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def percent(level: float) -> str:
    """A level as people write it: 95%, 99.9%."""
    return f"{100 * level:.10g}%"


def byte_size(count: float) -> str:
    """Bytes in a readable unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def span(seconds: float | None) -> str:
    """A span of time in a readable unit."""
    if seconds is None:
        return "?"
    for length, unit in ((31557600, "years"), (86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.1f} s"
