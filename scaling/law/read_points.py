"""Read points from a file (CSV, TSV, JSON lines, parquet), or from the folder of a study, a sweep or a ledger."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from scaling import json_lines
from scaling.errors import ScalingError, check_regular, from_os, nearest
from scaling.law.columns import from_columns
from scaling.law.parse_number import is_empty, parse_number
from scaling.law.points import POSITIVE, Points

TABLE = "points.csv"
WITHIN = ("report/" + TABLE, "studies/*/report/" + TABLE, "sweeps/*/" + TABLE)
"""Where a study's folder, a ledger of studies and one of sweeps hold their tables."""

LONGEST_CELL = 2**24  # characters: W&B exports whole configs in a cell


def read_points_file(path: str | Path, **choices: Any) -> Points:
    """The points of a file; `choices` are those of `from_columns` (rename, where, define, pool, best_by)."""
    path = Path(path)
    if path.is_dir():
        path = table_of(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise ScalingError(
            f"no reader for {path.suffix or 'a file without a suffix'}", file=path, fix=f"give {', '.join(READERS)}"
        )
    check_regular(path)
    try:
        columns = reader(path)
    except FileNotFoundError:
        raise ScalingError("there is no such file", file=path, fix=_neighbour(path)) from None
    except OSError as error:
        raise from_os(error, "cannot be read").at(file=path) from None
    except UnicodeDecodeError:
        raise ScalingError("is not text in UTF-8", file=path, fix="save it as UTF-8") from None
    if not columns or not len(next(iter(columns.values()))):
        raise ScalingError("holds no rows", file=path, fix="give a table with a header and a row a run")
    return from_columns(columns, source=str(path), **choices)


def table_of(folder: Path) -> Path:
    """The one table of a folder: its own, or that of the one study or sweep in it."""
    if (folder / TABLE).exists():
        return folder / TABLE
    tables = sorted(path for pattern in WITHIN for path in folder.glob(pattern))
    if len(tables) == 1:
        return tables[0]
    if tables:
        shown = ", ".join(str(path.relative_to(folder)) for path in tables[:6])
        more = f" and {len(tables) - 6} more" if len(tables) > 6 else ""
        raise ScalingError(f"holds {len(tables)} tables", file=folder, fix=f"name one of them: {shown}{more}")
    return folder / TABLE  # its reader reports that there is no such file


def _separated(path: Path) -> dict[str, list[str]]:
    """CSV or TSV: the header decides which. A semicolon is the comma of countries with a decimal comma."""
    with path.open(newline="", encoding="utf-8-sig") as lines:
        first = lines.readline()
        counts = {sign: first.count(sign) for sign in (",", "\t", ";")}
        lines.seek(0)
        delimiter = "\t" if path.suffix.lower() == ".tsv" else max(counts, key=lambda sign: counts[sign])
        before = csv.field_size_limit(LONGEST_CELL)
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        try:
            header = [name.strip() for name in next(reader, [])]
            _refuse_repeated(header, path)
            rows, places = [], []
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise ScalingError(
                        f"has {len(row)} cells under a header of {len(header)}",
                        file=path,
                        line=reader.line_num,
                        fix="correct the line" + ("; put 1,000 in quotes" if delimiter == "," else ""),
                    )
                rows.append(row)
                places.append(reader.line_num)
        except csv.Error as error:
            raise ScalingError(
                f"is not CSV ({error})", file=path, line=reader.line_num, fix="correct the line"
            ) from None
        finally:
            csv.field_size_limit(before)
    columns = {name: list(cells) for name, cells in zip(header, zip(*rows, strict=True))}
    for name in POSITIVE & columns.keys():
        _refuse_word(columns[name], name, path, places)
    return columns


def _refuse_repeated(header: list[str], path: Path) -> None:
    for name in header:
        if header.count(name) > 1:
            raise ScalingError(f"two columns are called {name!r}", file=path, line=1, fix="rename one")


def _refuse_word(cells: list[str], name: str, path: Path, places: list[int]) -> None:
    """State the line while it is known; an empty cell is a missing value, judged when a law asks for it."""
    with suppress(ValueError):
        np.array(cells, dtype=float)
        return
    for cell, place in zip(cells, places, strict=True):
        # A cell of digits may be 10M, 1,000 or a decimal comma: the whole column decides.
        digits = cell.strip().replace(".", "").replace(",", "").isdigit()
        if not is_empty(cell) and parse_number(cell) is None and not digits:
            raise ScalingError("is not a number", file=path, line=place, key=name, value=cell, fix="correct the cell")


def _json_lines(path: Path) -> dict[str, list[Any]]:
    with path.open("rb") as lines:
        records = [dict(_flat(record)) for _, record in json_lines.records(lines, path, nan=True)]
    names = list(dict.fromkeys(name for record in records for name in record))
    return {name: [record.get(name) for record in records] for name in names}


def _flat(record: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Nested records under dotted names, as W&B's exports of a run's config and summary are: `config.N`."""
    for name, value in record.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{name}.")
        else:
            yield above + name, value


def _parquet(path: Path) -> dict[str, list[Any]]:
    import pyarrow
    import pyarrow.parquet

    if not path.exists():
        raise FileNotFoundError(path)
    try:
        return pyarrow.parquet.read_table(path).to_pydict()
    except pyarrow.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        raise ScalingError(f"is not parquet ({reason})", file=path, fix="write it again") from None


READERS: dict[str, Callable[[Path], dict[str, list[Any]]]] = {
    ".csv": _separated,
    ".tsv": _separated,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".parquet": _parquet,
}


def _neighbour(path: Path) -> str:
    folder = path.parent
    names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    return nearest(path.name, [name for name in names if Path(name).suffix in READERS])
