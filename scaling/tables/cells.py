"""Cells of a table: what a run's numbers are, and how they are written."""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from scaling import printing
from scaling.printing import latex_text, markdown_text
from scaling.tables.lines import Line, Measured, Printed, notes
from scaling.tables.measure import MEASURES
from scaling.tables.statistics import Mean

NOTHING, UNMEASURED = "–", "not measured"
Column = tuple[str, Callable[[Line], str]]


def columns(printed: Printed) -> list[Column]:
    """The paper's columns with ours next to them; those of runs only where there are runs."""
    unit, scale = _unit(printed)
    theirs = [(title, partial(_published, column=column, form="{}")) for column, title in printed.table.columns.items()]
    shown: list[Column] = [
        *theirs,
        *((MEASURES[name].title, partial(_measured, name=name)) for name in printed.table.measures),
        ("Params (M), paper", lambda line: _published(line, "params_millions", "{:g}")),
        (
            "Params (M), ours",
            lambda line: f"{line.counted.parameters / 1e6:,.{_decimals(line.counted.parameters / 1e6)}f}",
        ),
        ("Ops (T), paper", lambda line: _published(line, "ops_tera", "{:g}")),
        (f"Ops ({unit}), ours so counted", lambda line: f"{line.counted.ops / scale:.3f}"),
        (f"Ops ({unit}), as run", lambda line: f"{line.counted.flops / 2 / scale:.3f}"),
    ]
    if not printed.trained:
        shown += [_of_paper(measured) for measured in printed.downstream]
        return [column for column in shown if _is_shown(column, printed)]
    speeds = {line.counted.row.name: line.runs.steps_per_second for line in printed.lines if line.runs}
    baselines = printed.table.baselines
    final = "Score" if printed.table.judged_by == "score" else "Final loss, ours"
    shown += [
        ("Step/s, paper", lambda line: _published(line, "step_per_s", "{:.2f}")),
        ("Step/s, ours", lambda line: _number(line.runs.steps_per_second if line.runs else None, ".2f")),
        ("to the baseline's", lambda line: _ratio(line, speeds, baselines)),
        ("Early loss, paper", _early_published),
        ("Early loss, ours", _early),
        ("Final loss, paper", lambda line: _published(line, "final_loss", "{:.3f}")),
        (final, lambda line: _interval(line.final)),
        ("difference", _difference),
        ("verdict", lambda line: line.difference.verdict if line.difference else NOTHING),
        ("runs", lambda line: f"{len(line.runs.final)}" if line.runs else "0"),
        *(column for measured in printed.downstream for column in _downstream(measured)),
    ]
    return [column for column in shown if _is_shown(column, printed)]


def _downstream(measured: Measured) -> list[Column]:
    """The paper's scores, ours and what they show; of what was not measured only that."""
    name, ours = measured.column.name, f"{measured.column.title}, ours"
    if measured.comparison is None:
        return [_of_paper(measured), (ours, lambda _: UNMEASURED)]
    return [
        _of_paper(measured),
        (ours, lambda line: _interval(line.scores[name].mean) if name in line.scores else UNMEASURED),
        (f"{measured.column.heading}, verdict", partial(_verdict, name=name)),
    ]


def _of_paper(measured: Measured) -> Column:
    published = measured.column.published or ""
    return f"{measured.column.heading}, paper", partial(_published, column=published, form="{}")


def _verdict(line: Line, name: str) -> str:
    difference = line.scores[name].difference if name in line.scores else None
    return NOTHING if difference is None else difference.verdict


def _is_shown(column: Column, printed: Printed) -> bool:
    """Whether a column has a value in any row."""
    return any(column[1](line) != NOTHING for line in printed.lines)


def _unit(printed: Printed) -> tuple[str, float]:
    """Tera, as the paper prints, or what fits a smaller table."""
    typical = statistics.median(line.counted.ops for line in printed.lines)
    return next((unit for unit in (("T", 1e12), ("G", 1e9)) if typical >= unit[1]), ("M", 1e6))


def _decimals(millions: float) -> int:
    return 1 if millions >= 10 else 4


def _published(line: Line, column: str, form: str) -> str:
    value = line.counted.row.published.get(column)
    return NOTHING if value is None else form.format(value)


def _measured(line: Line, name: str) -> str:
    return MEASURES[name].form(line.counted.measured[name])


def _number(value: float | None, form: str) -> str:
    return NOTHING if value is None else format(value, form)


def _ratio(line: Line, speeds: Mapping[str, float | None], baselines: Mapping[str, str]) -> str:
    own, baseline = (speeds.get(row) for row in (line.counted.row.name, baselines[line.counted.row.name]))
    return NOTHING if own is None or baseline is None else f"{own / baseline:.2f}"


def _early_published(line: Line) -> str:
    value, std = (line.counted.row.published.get(column) for column in ("early_loss", "early_loss_std"))
    return NOTHING if value is None else f"{value:.3f}" + ("" if std is None else f" ± {std:.3f}")


def _early(line: Line) -> str:
    if line.early is None or line.runs is None:
        return NOTHING
    early = line.runs.early
    return f"{line.early.value:.3f}" + (f" ± {statistics.stdev(early):.3f}" if len(early) > 1 else "")


def _interval(mean: Mean | None) -> str:
    if mean is None:
        return NOTHING
    half = (mean.high - mean.low) / 2
    return f"{mean.value:.4f}" + (f" ± {half:.4f}" if math.isfinite(half) else "")


def _difference(line: Line) -> str:
    difference = line.difference
    return NOTHING if difference is None else f"{difference.value:+.4f} ± {(difference.high - difference.low) / 2:.4f}"


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
