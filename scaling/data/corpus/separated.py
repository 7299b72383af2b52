"""Tables of separated values: CSV and TSV, a row at a time, with the file and the line of each mistake.

The first row names the columns. A field may be quoted, and then holds separators, line breaks and doubled quotes. Every
value is text, as it is written; an empty field is no value.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scaling.data.corpus.document import COMPRESSIONS, opened
from scaling.errors import ScalingError, plural

SEPARATORS = {".csv": ",", ".tsv": "\t"}
_LONGEST = 1 << 26  # characters of a field: a quote that is never closed would take in the rest of the file
_OTHERS = ";\t|,"  # separators that a file may have under the wrong name


def rows(file: Path, names: Sequence[str] | None = None, quotes: bool = True) -> Iterator[Mapping[str, str | None]]:
    """The rows of one file by the names of its columns, `names` where the first row does not name them. Without
    `quotes` a quote is a character like any other.
    """
    plain = file.with_suffix("") if file.suffix in COMPRESSIONS else file
    with opened(file) as content:
        # The mark that Excel writes in front of UTF-8 is no part of the first name.
        lines = io.TextIOWrapper(content, encoding="utf-8-sig", newline="")
        quoting = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
        reader = csv.reader(lines, delimiter=SEPARATORS[plain.suffix], strict=True, quoting=quoting)
        table = _fields(file, reader)
        namer = "the key columns"
        if names is None:
            namer = "the first row"
            line, names = next(table, (1, []))
            _check_names(file, line, names, SEPARATORS[plain.suffix])
        for line, fields in table:
            if len(fields) != len(names):
                what = f"the row has {plural(len(fields), 'field')}, and {namer} names {len(names)}"
                raise ScalingError(what, file=file, line=line, fix="quote fields that hold a separator or a line break")
            yield {name: field or None for name, field in zip(names, fields)}


def _fields(file: Path, table: Any) -> Iterator[tuple[int, list[str]]]:
    """Each row that is not blank, and the line at which it begins."""
    csv.field_size_limit(_LONGEST)
    while True:
        line = table.line_num + 1
        try:
            fields = next(table)
        except StopIteration:
            return
        except csv.Error as error:
            fix = 'write "" for a quote within a quoted field, and close every quote'
            raise ScalingError(f"the row cannot be read: {error}", file=file, line=line, fix=fix) from error
        if fields:
            yield line, fields


def _check_names(file: Path, line: int, names: list[str], separator: str) -> None:
    if not names:
        raise ScalingError("it is empty", file=file, fix="its first row must name the columns")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ScalingError(f"there are two columns {twice!r}", file=file, line=line, fix="rename one of them")
    other = next(
        (delimiter for delimiter in _OTHERS if len(names) == 1 and delimiter != separator and delimiter in names[0]),
        None,
    )
    if other is not None:
        what = f"the first row has no {separator!r}, and is separated by {other!r}"
        fix = "separate the fields of a .csv file by commas, those of a .tsv file by tabs"
        raise ScalingError(what, file=file, line=line, fix=fix)
