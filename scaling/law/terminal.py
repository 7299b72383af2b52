"""The account of a fit for the terminal: what was counted, the estimates, what they predict, and what to doubt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from scaling.law.joint import VARIANT
from scaling.law.picture.words import short

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def show(document: Mapping[str, Any], console: Console) -> None:
    """Print the account of a law, of IsoFLOP minima, or of an envelope."""

    def say(line: str, style: str = "") -> None:
        console.print(line, style=style, markup=False)

    say(f"{document['law']}  {document['formula']}", "bold")
    say(document["citation"], "dim")
    points = document["points"]
    where = f"{points['source']}: " if points["source"] else ""
    say(where + points["count"])
    for name, definition in points["definitions"].items():
        say(f"  {name}: {definition}", "dim")
    for part in (_estimates, _minima, _held_out, _predictions, _optima):
        table = part(document)
        if table is not None:
            console.print()
            console.print(table)
    say("")
    for line, style in _doubts(document):
        say(line, style)


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        inner = 0 < index < len(columns) - 1  # numbers, which a narrow terminal must not cut; names and units may wrap
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=inner)
    return table


def _estimates(document: Mapping[str, Any]) -> Table:
    levels = {interval["level"] for interval in document["intervals"].values()}
    title = f"{levels.pop():.0%} interval" if levels else ""
    table = _table("", "estimate", title, "unit")
    units = document.get("units", {})
    names = list(document["estimates"]) + [name for name in document["intervals"] if name not in document["estimates"]]
    for name in names:
        interval = document["intervals"].get(name)
        estimate = document["estimates"][name] if name in document["estimates"] else interval["estimate"]
        held = name in document.get("fixed", {})
        value = "not identified" if estimate is None else f"{estimate:.5g}"
        table.add_row(name, value, "held" if held else _ends(interval), units.get(name, ""))
    return table


def _ends(interval: Mapping[str, Any] | None) -> str:
    if interval is None:
        return ""
    low, high = (f"{end:.4g}" if end is not None else "open" for end in (interval["low"], interval["high"]))
    return f"{low} to {high}"


def _minima(document: Mapping[str, Any]) -> Table | None:
    if "minima" not in document:
        return None
    table = _table("C (FLOPs)", "N*", "D*", "loss")
    for row in document["minima"]:
        if row["refused"]:
            table.add_row(short(row["C"]), row["refused"])
        else:
            table.add_row(short(row["C"]), short(row["N"]), short(row["D"]), f"{row['loss']:.4f}")
    return table


def _held_out(document: Mapping[str, Any]) -> Table | None:
    tested = document["held_out"]
    if tested is None:
        return None
    apart = ("run", "predicted", "relative_error", "interval", VARIANT)
    inputs = [name for name in tested["points"][0] if name not in apart]
    table = _table("held out", *inputs, "predicted", "interval", "error")
    for row in tested["points"]:
        cells = [short(row[name]) for name in inputs[:-1]]
        table.add_row(
            row["run"] or "",
            *cells,
            f"{row[inputs[-1]]:.4f}",
            f"{row['predicted']:.4f}",
            _ends(row["interval"]),
            f"{row['relative_error']:+.2%}",
        )
    return table


def _predictions(document: Mapping[str, Any]) -> Table | None:
    rows = document.get("predictions")
    if not rows:
        return None
    *inputs, target = (name for name in rows[0] if name != "interval")
    table = _table(*(f"at {name}" for name in inputs), target, "interval")
    for row in rows:
        table.add_row(*(short(row[name]) for name in inputs), f"{row[target]:.4f}", _ends(row["interval"]))
    return table


def _optima(document: Mapping[str, Any]) -> Table | None:
    rows = document.get("optima")
    if not rows:
        return None
    table = _table("best at C", "N", "interval", "D", "interval", "loss", "interval")
    for row in rows:
        cells: list[str] = []
        for name, form in (("N", short), ("D", short), ("loss", "{:.4f}".format)):
            low, high = (row[name].get(end) for end in ("low", "high"))
            bounded = "method" in row[name]
            ends = " to ".join("open" if end is None else form(end) for end in (low, high)) if bounded else ""
            cells += [form(row[name]["estimate"]), ends]
        table.add_row(short(row["C"]), *cells)
    return table


def _doubts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Lines and their style: how the optimum was reached, and what speaks against believing it."""
    if document["held_out"] is not None:
        tested = document["held_out"]
        largest, covered = tested["largest_relative_error"], tested["covered"]
        yield f"held out: largest error {abs(largest):.2%}; {covered:.0%} of the runs inside the 95% interval", ""
    if document["objective"] is not None:
        agreeing = f"{document['starts_agreeing']:.0%} of the refined starts agree"
        condition = document["condition_number"]
        condition = "condition unbounded" if condition is None else f"condition {condition:.2g}"
        scale = f"scale of the residuals {document['residual_scale']:.2g}"
        yield f"{document['objective_kind']} {document['objective']:.8g}; {agreeing}; {condition}; {scale}", ""
    pooled = document["points"]["pooled"]
    if pooled:
        kinds = ", ".join(f"{count} values of {name}" for name, count in pooled.items())
        yield f"! {kinds} are pooled as if they were one: choose with --where", "yellow"
    for sentence in (*document.get("not_identified", ()), *document.get("unreliable", ())):
        yield f"! {sentence}", "yellow"
    silent = document.get("checklist", {}).get("missing", ())
    if silent:
        yield "a referee would ask, and nobody has said:", "dim"
    for question in silent:
        yield f"  {question}", "dim"
