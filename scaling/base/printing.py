"""Text for people: tables for terminal, Markdown, LaTeX, HTML and CSV; spans of time, bytes, intervals."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
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
_NUMBER = re.compile(r"$|[-+±]*\.?\d[\d.,:]*(e[-+]?\d+)?[kMBT%×x]?(\s|$)")  # no hash that begins with a digit
MARKDOWN = str.maketrans({**{character: "\\" + character for character in "\\|*`"}, "<": "&lt;"})


class Html(str):
    """Markup. Every other string is text, and is escaped when it is put into an element."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: str | float | None) -> Html:
    """An element of HTML. Attributes of None are left out; `class_` is class, and `data_run` is data-run."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{written}>" + ("" if name == "meta" else f"{join(*children)}</{name}>"))


def join(*children: str | None) -> Html:
    """Siblings, without an element around them."""
    texts = (child if isinstance(child, Html) else html.escape(child) for child in children if child is not None)
    return Html("".join(texts))


@dataclass(frozen=True)
class Table:
    """Titled columns of text, of which those in `words` hold text, the others numbers. A row of one cell is a heading.
    Cells may be `Html` where a table is written as HTML alone; `ids` are those of its rows.
    """

    caption: str
    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[int] = (0,)
    notes: Sequence[str] = ()
    ids: Sequence[str] = ()

    def text(self) -> str:
        """The table for a terminal; a title over an interval takes two lines."""
        titles = [title.replace(" interval of ", " interval\nof ").split("\n") for title in self.titles]
        depth = max(map(len, titles))
        heads = list(zip(*([""] * (depth - len(title)) + title for title in titles), strict=True))
        lines = [*heads, *(row for row in self.rows if len(row) == len(titles))]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

        def aligned(line: Sequence[str]) -> str:
            cells = (
                f"{cell:<{w}}" if i in self.words else f"{cell:>{w}}" for i, (cell, w) in enumerate(zip(line, widths))
            )
            return "  ".join(cells).rstrip()

        return "\n".join(aligned(line) if len(line) == len(titles) else f"\n{line[0]}" for line in (*heads, *self.rows))

    def markdown(self) -> str:
        """GitHub's Markdown, without caption and notes."""
        marks = ["---" if place in self.words else "---:" for place in range(len(self.titles))]
        empty = [""] * (len(marks) - 1)
        body = (
            [f"**{markdown_text(row[0])}**", *empty] if len(row) < len(marks) else map(markdown_text, row)
            for row in self.rows
        )
        return "\n".join(f"| {' | '.join(cells)} |" for cells in (map(markdown_text, self.titles), marks, *body))

    def latex(self, title: str = "") -> str:
        """A table with a caption, or else the title, and a label; its tabular is of booktabs."""
        count, caption = len(self.titles), self.caption.rstrip(".") or title
        kinds = "".join("l" if place in self.words else "r" for place in range(count))
        label = re.sub(r"\W+", "-", caption.lower()).strip("-")
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{latex_text(caption)}}}", rf"\label{{tab:{label}}}"]
        lines += [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", " & ".join(map(latex_text, self.titles)) + r" \\"]
        lines += [r"\midrule"] if self.rows and len(self.rows[0]) == count else []
        for row in self.rows:
            heading = [r"\midrule", rf"\multicolumn{{{count}}}{{l}}{{\emph{{{latex_text(row[0])}}}}} \\"]
            lines += heading if len(row) < count else [" & ".join(map(latex_text, row)) + r" \\"]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"])

    def html(self) -> Html:
        """The table with its caption, without notes."""
        count, kinds = len(self.titles), ["words" if place in self.words else None for place in range(len(self.titles))]
        head = (tag("th", title, scope="col", class_=kind) for title, kind in zip(self.titles, kinds, strict=True))
        body = (
            tag("tr", tag("th", row[0], scope="row", colspan=count))
            if len(row) < count
            else tag(
                "tr",
                tag("th", row[0], scope="row"),
                *(tag("td", cell, class_=kind) for cell, kind in zip(row[1:], kinds[1:], strict=True)),
                id=name,
            )
            for row, name in zip_longest(self.rows, self.ids)
        )
        caption = tag("caption", tag("span", self.caption)) if self.caption else None
        return tag("table", caption, tag("thead", tag("tr", *head)), tag("tbody", *body))


def _comment(line: str) -> str:
    """A line of LaTeX that is none of its text; a name may hold a line break."""
    return f"% {' '.join(line.split())}"


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
            lines = [*map(_comment, heading)]
            for table in tables:
                lines += [table.latex(*heading[:1]), *map(_comment, table.notes)]
            return "\n".join([*lines, *map(_comment, remarks)])
        blocks = ("\n".join([table.text(), *table.notes]) for table in tables)
        return "\n\n".join(filter(None, ["\n".join(heading), *blocks, "\n".join(remarks)]))

    def _repr_html_(self) -> str:
        parts = [tag("p", line) for line in self.heading()]
        for table in self.tables():
            parts += [table.html(), *(tag("p", note) for note in table.notes)]
        return "\n".join([*parts, *(tag("p", line) for line in self.remarks())])

    def __str__(self) -> str:
        return self.format("terminal")


def latex_text(text: str) -> str:
    return text.translate(LATEX)


def markdown_text(text: str) -> str:
    return text.translate(MARKDOWN)


def titled(
    caption: str, rows: Sequence[Sequence[tuple[str, str]]], words: Sequence[int] = (0,), notes: Sequence[str] = ()
) -> Table | None:
    """A table of rows of titles with cells, where there are rows; each has the same titles."""
    if not rows:
        return None
    return Table(caption, [title for title, _ in rows[0]], [[cell for _, cell in row] for row in rows], words, notes)


def tabulate(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A table of values. Numbers are aligned to the right, a column of text to the left; None is an empty cell."""
    cells = [list(map(cell, row)) for row in rows]
    numeric = [all(_NUMBER.match(row[place]) for row in cells) and bool(cells) for place in range(len(titles))]
    return Table("", titles, cells, [place for place, is_number in enumerate(numeric) if not is_number])


def cell(value: Any) -> str:
    """A value in a table: whole numbers with separators, others with four digits after the point."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def csv_text(rows: Sequence[Mapping[str, Any]], titles: Sequence[str] = ()) -> str:
    """Rows as CSV, the same bytes for the same rows; a column that only some of them have is empty in the others. A
    text that a spreadsheet would run as a formula begins with an apostrophe.
    """
    text = io.StringIO()
    header = titles or list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(text, header, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows({key: f"'{c}" if _is_formula(c) else c for key, c in row.items()} for row in rows)
    return text.getvalue()


def csv_rows(text: str) -> list[dict[str, str]]:
    """The rows that `csv_text` wrote. Under None are the cells beyond the header; a cell that a line lacks is None."""
    return [{key: unescaped(cell) for key, cell in row.items()} for row in csv.DictReader(io.StringIO(text))]


def unescaped(cell: Any) -> Any:
    """A cell that `csv_text` wrote, as it was."""
    return cell[1:] if cell and cell[0] == "'" and _is_formula(cell[1:]) else cell


def _is_formula(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("=", "@"))


def scientific(value: float, digits: int = 2) -> str:
    """`1.3 × 10¹²` in one word of text."""
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa} × 10{raised}".replace("-", "−")


def interval(bounds: Mapping[str, Any], digits: str = ".4f") -> str:
    """`[low, high]`; an end that is open is said to be."""
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
