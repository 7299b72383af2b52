"""Points: a table's runs as a small file, a line a run, from which the table is printed again without its ledger."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scaling import atomic
from scaling.errors import ScalingError, from_os
from scaling.tables.results import Point, Results
from scaling.tables.table import Table

OF_ALL = ("studies", "settings")  # lists in JSON, the same in every line
TYPES: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("row", "run", "status"), str),
    **dict.fromkeys(("seed", "steps", "tokens"), int),
    **dict.fromkeys(("early_at", "early", "loss", "steps_per_second", "flops", "worker_seconds"), float),
    **dict.fromkeys(("day", "hardware", "versions"), str),
    "score": float,
}
OPTIONAL = frozenset({"score"})  # written where a run has it: points kept before it was a column stay as they are


def write(results: Results, path: Path) -> None:
    """The points as CSV: the same bytes for the same runs."""
    text = io.StringIO()
    rows = [asdict(point) for point in results.points]
    columns = [name for name in TYPES if name not in OPTIONAL or any(row[name] is not None for row in rows)]
    writer = csv.DictWriter(text, [*columns, *OF_ALL], lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    of_all = {name: json.dumps(getattr(results, name)) for name in OF_ALL}
    writer.writerows({**row, **of_all} for row in rows)
    atomic.write(path, text.getvalue())


def read(path: Path, table: Table) -> Results:
    """What `write` wrote of this table's runs."""
    try:
        lines = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    except OSError as error:
        raise from_os(error, f"{path} cannot be read") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ScalingError(f"not a CSV file: {error}", file=path) from None
    columns = {*TYPES, *OF_ALL}
    if not lines or not columns - OPTIONAL <= set(lines[0]) <= columns:
        listed = ", ".join([*TYPES, *OF_ALL])
        raise ScalingError("these are no points of a table", file=path, fix=f"its columns are {listed}")
    points = tuple(_point(line, path, number) for number, line in enumerate(lines, 2))
    if not {point.row for point in points} & {row.name for row in table.rows}:
        raise ScalingError(f"it has no row of {table.name}", file=path, key="row", value=points[0].row)
    of_all = {name: _words(lines[0], name, path) for name in OF_ALL}
    return Results(**of_all, points=points, judged_by=table.judged_by)


def _point(line: Mapping[str, str], path: Path, number: int) -> Point:
    fields: dict[str, Any] = {}
    for column in [column for column in TYPES if column in line]:
        try:
            fields[column] = TYPES[column](line[column]) if line[column] else None
        except (TypeError, ValueError):
            raise ScalingError("not a number", file=path, line=number, key=column, value=line[column]) from None
    return Point(**fields)


def _words(line: Mapping[str, str], column: str, path: Path) -> tuple[str, ...]:
    try:
        return tuple(map(str, json.loads(line[column])))
    except (TypeError, ValueError):
        raise ScalingError("not a list in JSON", file=path, line=2, key=column, value=line[column]) from None
