"""Text for people: tables of aligned columns, spans of time, bytes, intervals."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def columns(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as text. Numbers are aligned to the right, a column of text to the left; None is an empty cell."""
    cells = [list(map(cell, row)) for row in rows]
    numeric = [all(_is_numeric(row[place]) for row in cells) and bool(cells) for place in range(len(titles))]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    lines = (
        "  ".join(
            f"{text:>{w}}" if right else f"{text:<{w}}" for text, w, right in zip(line, widths, numeric, strict=True)
        )
        for line in [titles, *cells]
    )
    return "\n".join(line.rstrip() for line in lines)


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


def interval(bounds: Mapping[str, Any] | None, digits: str = ".4f") -> str:
    """`[low, high]`; an end that is open is said to be."""
    if bounds is None:
        return ""
    low, high = ("open" if bounds[end] is None else f"{bounds[end]:{digits}}" for end in ("low", "high"))
    return f"[{low}, {high}]"


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
