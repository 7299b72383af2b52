"""Points: a table's runs as a small file, a line a run, from which the table is printed again without its ledger."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scaling import atomic
from scaling.errors import ScalingError, from_os
from scaling.printing import csv_text
from scaling.studies.tasks import SCORE
from scaling.tables.downstream import Downstream
from scaling.tables.results import Point, Results
from scaling.tables.table import Table

OF_ALL = ("studies", "settings")  # lists in JSON, the same in every line
TYPES: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("row", "run", "status"), str),
    **dict.fromkeys(("seed", "steps", "tokens"), int),
    **dict.fromkeys(("early_at", "early", "loss", "steps_per_second", "flops", "worker_seconds"), float),
    **dict.fromkeys(("day", "hardware", "versions"), str),
    **dict.fromkeys(("score", "finetuning_flops", "finetuning_worker_seconds"), float),
}
# Written where a run has them: points kept before these were columns stay as they are.
OPTIONAL = frozenset({"score", "finetuning_flops", "finetuning_worker_seconds"})
DOWNSTREAM = "downstream"  # the columns of scores, in JSON as `OF_ALL`, where there are any


def write(results: Results, path: Path) -> None:
    """The points as CSV: the same bytes for the same runs."""
    rows = [asdict(point) | _scores(point, results.downstream) for point in results.points]
    columns = [name for name in TYPES if name not in OPTIONAL or any(row[name] is not None for row in rows)]
    of_all = {name: json.dumps(getattr(results, name)) for name in OF_ALL}
    if results.downstream:
        of_all[DOWNSTREAM] = json.dumps([column.to_json() for column in results.downstream])
    scores = [column.name + SCORE for column in results.downstream]
    atomic.write(path, csv_text([{**row, **of_all} for row in rows], [*columns, *scores, *of_all]))


def _scores(point: Point, columns: Sequence[Downstream]) -> dict[str, float | None]:
    return {column.name + SCORE: point.scores.get(column.name) for column in columns}


def read(path: Path, table: Table) -> Results:
    """What `write` wrote of this table's runs."""
    try:
        lines = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    except OSError as error:
        raise from_os(error, f"{path} cannot be read") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ScalingError(f"not a CSV file: {error}", file=path) from None
    downstream = _downstream(lines[0], path) if lines and DOWNSTREAM in lines[0] else ()
    own = {DOWNSTREAM, *(column.name + SCORE for column in downstream)} if downstream else set()
    columns = {*TYPES, *OF_ALL, *own}
    if not lines or not columns - OPTIONAL <= set(lines[0]) <= columns:
        listed = ", ".join([*TYPES, *OF_ALL])
        raise ScalingError("these are no points of a table", file=path, fix=f"its columns are {listed}")
    _check_lines(lines, path)
    points = tuple(_point(line, downstream, path, number) for number, line in enumerate(lines, 2))
    if not {point.row for point in points} & {row.name for row in table.rows}:
        raise ScalingError(f"it has no row of {table.name}", file=path, key="row", value=points[0].row)
    of_all = {name: _words(lines[0], name, path) for name in OF_ALL}
    return Results(**of_all, points=points, judged_by=table.judged_by, downstream=downstream)


def _check_lines(lines: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Refuse a line that was cut off, one that is there twice, and one of another table's points."""
    of_all = [name for name in (*OF_ALL, DOWNSTREAM) if name in lines[0]]
    seen: dict[tuple[str, str], int] = {}
    for number, line in enumerate(lines, 2):
        if None in line or None in line.values():
            raise ScalingError(f"expected {len(lines[0])} cells", file=path, line=number, fix="keep the table again")
        key = line["row"], line["seed"]
        if seen.setdefault(key, number) != number:
            what = f"the run of {key[0]}, seed {key[1]}, is in line {seen[key]} too"
            raise ScalingError(what, file=path, line=number, key="run", value=line["run"], fix="delete one of them")
        for name in of_all:
            if line[name] != lines[0][name]:
                what, fix = "is another than in the first line, and is one for all", "keep one table a file"
                raise ScalingError(what, file=path, line=number, key=name, value=line[name], fix=fix)


def _point(line: Mapping[str, str], downstream: Sequence[Downstream], path: Path, number: int) -> Point:
    scores = {column.name: column.name + SCORE for column in downstream}
    types = {**TYPES, **dict.fromkeys(scores.values(), float)}
    fields: dict[str, Any] = {}
    for column in [column for column in types if column in line]:
        try:
            fields[column] = types[column](line[column]) if line[column] else None
        except (TypeError, ValueError):
            raise ScalingError("not a number", file=path, line=number, key=column, value=line[column]) from None
    own = {name: fields.pop(column) for name, column in scores.items()}
    return Point(**fields, scores={name: score for name, score in own.items() if score is not None})


def _downstream(line: Mapping[str, str], path: Path) -> tuple[Downstream, ...]:
    try:
        return tuple(map(Downstream.of_json, json.loads(line[DOWNSTREAM])))
    except (TypeError, ValueError, KeyError):
        what = "no columns of scores in JSON"
        raise ScalingError(what, file=path, line=2, key=DOWNSTREAM, value=line[DOWNSTREAM]) from None


def _words(line: Mapping[str, str], column: str, path: Path) -> tuple[str, ...]:
    try:
        return tuple(map(str, json.loads(line[column])))
    except (TypeError, ValueError):
        raise ScalingError("not a list in JSON", file=path, line=2, key=column, value=line[column]) from None
