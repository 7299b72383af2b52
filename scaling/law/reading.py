"""Read points from a file: CSV, JSON lines, parquet, or the folder of a study that holds a `points.csv`."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scaling.errors import ScalingError, from_os, nearest
from scaling.law.columns import from_columns
from scaling.law.points import POSITIVE, Points


def read(path: str | Path, **choices: Any) -> Points:
    """The points of a file; `choices` are those of `from_columns` (rename, where, define, pool)."""
    path = Path(path)
    if path.is_dir():
        path = path / "points.csv"
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise ScalingError(
            f"no reader for {path.suffix or 'a file without a suffix'}", file=path, mend=f"give {', '.join(READERS)}"
        )
    try:
        columns = reader(path)
    except FileNotFoundError:
        raise ScalingError("there is no such file", file=path, mend=_neighbour(path)) from None
    except OSError as error:
        raise from_os(error, "cannot be read").at(file=path) from None
    except UnicodeDecodeError:
        raise ScalingError("is not text in UTF-8", file=path, mend="save it as UTF-8") from None
    if not columns or not len(next(iter(columns.values()))):
        raise ScalingError("holds no rows", file=path, mend="give a table with a header and a row a run")
    return from_columns(columns, source=str(path), **choices)


def _csv(path: Path) -> dict[str, list[str]]:
    with path.open(newline="", encoding="utf-8-sig") as lines:
        reader = csv.reader(lines, strict=True)
        try:
            header = [name.strip() for name in next(reader, [])]
            _refuse_repeated(header, path)
            columns: dict[str, list[str]] = {name: [] for name in header}
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise ScalingError(
                        f"has {len(row)} cells under a header of {len(header)}",
                        file=path,
                        line=reader.line_num,
                        mend="mend the line",
                    )
                for name, cell in zip(header, row, strict=True):
                    if name in POSITIVE:
                        _refuse_word(cell, name, path, reader.line_num)
                    columns[name].append(cell)
        except csv.Error as error:
            raise ScalingError(f"is not CSV ({error})", file=path, line=reader.line_num, mend="mend the line") from None
    return columns


def _refuse_repeated(header: list[str], path: Path) -> None:
    for name in header:
        if header.count(name) > 1:
            raise ScalingError(f"two columns are called {name!r}", file=path, line=1, mend="rename one")


def _refuse_word(cell: str, name: str, path: Path, line: int) -> None:
    """Say the line while it is known; an empty cell is a missing value, judged when a law asks for it."""
    try:
        float(cell or "nan")
    except ValueError:
        raise ScalingError(
            "is not a number", file=path, line=line, key=name, value=cell, mend="mend the cell"
        ) from None


def _json_lines(path: Path) -> dict[str, list[Any]]:
    records = []
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise ScalingError(f"is not JSON ({error.msg})", file=path, line=number, mend="mend the line") from None
            if not isinstance(record, dict):
                raise ScalingError("is not a record", file=path, line=number, mend='write {"N": …, "loss": …} a line')
            records.append(record)
    names = list(dict.fromkeys(name for record in records for name in record))
    return {name: [record.get(name) for record in records] for name in names}


def _parquet(path: Path) -> dict[str, list[Any]]:
    import pyarrow
    import pyarrow.parquet

    if not path.exists():
        raise FileNotFoundError(path)
    try:
        return pyarrow.parquet.read_table(path).to_pydict()
    except pyarrow.ArrowInvalid as error:
        reason = str(error).splitlines()[0]
        raise ScalingError(f"is not parquet ({reason})", file=path, mend="write it again") from None


READERS: dict[str, Callable[[Path], dict[str, list[Any]]]] = {
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".parquet": _parquet,
}


def _neighbour(path: Path) -> str:
    folder = path.parent
    names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    return nearest(path.name, [name for name in names if Path(name).suffix in READERS])
