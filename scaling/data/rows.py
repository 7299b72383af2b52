"""Rows of local files, with the file, and the line or the byte, of each mistake.

A row is a record by name: of JSON lines and tables their columns, of plain text the field `text`. Files may be
compressed (.gz, .zst).
"""

from __future__ import annotations

import codecs
import csv
import glob
import hashlib
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise, zip_longest
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import IO, Any, Literal

from scaling.base import json_lines
from scaling.base.errors import ScalingError, check_regular, plural, refuse
from scaling.config.files import SAVED

Row = Mapping[str, Any]
Piece = Sequence[Any]
"""A file and the range of it that is read, in bytes from one unit to another, or in row groups of Parquet; `[file, 0,
None]` is the whole file.
"""
Unit = Literal["line", "paragraph", "file"]

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
SEPARATORS = {".csv": ",", ".tsv": "\t"}
FORMATS = {".jsonl": "json", ".ndjson": "json", ".json": "json", ".parquet": "parquet"}
FORMATS |= dict.fromkeys(SEPARATORS, "separated")  # anything else is text
OF_FOLDERS = (*FORMATS, ".txt", ".text", ".md", ".rst", ".tex")  # endings of the files that are read of a folder

PART = 1 << 28  # bytes of files that one job reads, at least
_MOST = 4096  # parts
_BLOCK = 10 << 20  # characters of a text that are read at once
_ROWS = 256  # rows of Parquet that are in memory at once
_LONGEST = 1 << 26  # characters of a field: a quote that is never closed would take in the rest of the file
_LINE = re.compile(rb"\n")  # a record or a paragraph begins behind these bytes, wherever the file is cut
_PARAGRAPH = re.compile(rb"[^\r\n](?:\n\n|\r\n\r\n)")


# --- which files ---


def find(patterns: str | Sequence[str], key: str, endings: Sequence[str] = OF_FOLDERS) -> list[Path]:
    """The files that paths, globs or folders name, sorted within each; of folders those with one of some endings."""
    files: dict[Path, None] = {}
    for pattern in _listed(patterns):
        matches = _matches(pattern, endings)
        if not matches:
            raise _no_file(pattern, key, endings)
        files |= dict.fromkeys(matches)
    refuse(not files, "it names no file", "give a path or a glob of files", key=key, value=patterns)
    others = [file for file in files if str(file).encode(errors="ignore").decode() != str(file)]
    refuse(others, "its name is not UTF-8", "rename the file or its folder", file=min(others, default=None))
    return list(files)


def check_apart(train: Sequence[Path], held_out: Sequence[Path]) -> None:
    """Refuse a file that is named for both splits."""
    both = {file.resolve() for file in train} & {file.resolve() for file in held_out}
    if both:
        raise ScalingError("it is named for training and for validation", file=min(both))


def _listed(patterns: str | Sequence[str] | None) -> Sequence[str]:
    return [patterns] if isinstance(patterns, str) else patterns or ()


def _matches(pattern: str, endings: Sequence[str]) -> list[Path]:
    path = Path(os.path.expanduser(pattern))
    if os.path.isdir(path):
        files = [] if is_saved(path) else [file for file in _within(path) if _plain(file).suffix in endings]
    else:
        names = [path] if os.path.exists(path) else sorted(glob.glob(str(path), recursive=True))
        files = [Path(name) for name in names if os.path.exists(name) and not os.path.isdir(name)]
    # A link keeps its name, whose ending is the format.
    return [file.parent.resolve() / file.name for file in files]


def _within(folder: Path) -> list[Path]:
    """The files of a folder and of its subfolders, except hidden ones."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return sorted(file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts))


def _no_file(pattern: str, key: str, endings: Sequence[str]) -> ScalingError:
    """Why a pattern names no file to read."""
    folder = Path(os.path.expanduser(pattern))
    what, fix = "there is no such file", "give a path or a glob of files"
    if os.path.isdir(folder) and is_saved(folder):
        what = "the folder holds a data set that `save_to_disk` wrote"
        fix = f"write data.corpus='{{kind: Saved, path: {pattern}}}'"
    elif os.path.isdir(folder):
        others = sorted({file.suffix or file.name for file in _within(folder)})
        beside = f"; it holds {', '.join(others[:6])}" if others else ""
        what = f"the folder holds no file of {', '.join(endings)}{beside}"
        fix = f"name the files by a glob, as in {pattern.rstrip('/')}/**/*{(others or endings)[0]}"
    return ScalingError(what, key=key, value=pattern, fix=fix)


def is_saved(folder: Path) -> bool:
    """Whether `datasets.save_to_disk` wrote the folder."""
    return any((folder / name).is_file() for name in SAVED)


def _plain(file: Path) -> Path:
    """The name without the suffix of a compression."""
    return file.with_suffix("") if file.suffix in COMPRESSIONS else file


def format_of(file: Path) -> str:
    """The format of a file by its suffix before that of a compression: json, parquet, separated or text."""
    return FORMATS.get(_plain(file).suffix, "text")


# --- whether files are what they were ---


def sha256(file: Path) -> str:
    check_regular(file)
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def seen(file: Path) -> list[Any]:
    """Size and time of change of a file."""
    status = file.stat()
    return [status.st_size, status.st_mtime_ns]


def hashed(file: Path, known: Sequence[Any] = ()) -> list[Any]:
    """Size, time of change and SHA-256 of a file, which is not read if size and time are those in `known`."""
    now = seen(file)
    return [*known] if now == [*known[:-1]] else [*now, sha256(file)]


def stamp(files: Sequence[Path]) -> dict[str, Any]:
    """Size, time of change and SHA-256 of each file."""
    with ThreadPoolExecutor() as pool:  # hashing releases the interpreter's lock
        return {"files": dict(zip(map(str, files), pool.map(hashed, files)))}


def changed(stamped: Mapping[str, Any], *patterns: str | Sequence[str] | None) -> Path | None:
    """The first file that differs from its stamp, or that only `patterns` name; one that is gone does not differ."""
    files = stamped.get("files", {})
    for name, known in files.items():
        if Path(name).exists() and hashed(Path(name), known)[-1] != known[-1]:
            return Path(name)
    named = (file for listed in patterns for pattern in _listed(listed) for file in _matches(pattern, OF_FOLDERS))
    return next((file for file in named if str(file) not in files), None)


# --- in which parts they are read ---


def parts(files: Sequence[Path], unit: Unit = "paragraph") -> list[dict[str, Any]]:
    """Files of one format in parts, each the `pieces` that one job reads: several files, or a range of a large one.
    Ranges are cut between the lines of JSON lines, units of plain text and row groups of Parquet.
    """
    formats = {format_of(file) for file in files}
    what = f"files of several formats: {', '.join(sorted(formats))}"
    refuse(len(formats) > 1, what, "name files of one format, as in text/**/*.txt")
    sizes = [file.stat().st_size for file in files]
    part_size = max(PART, sum(sizes) // _MOST)
    listed: list[dict[str, Any]] = []
    for file, size in zip(files, sizes):
        pieces = _pieces(file, size, -(-size // part_size), unit)
        for piece in pieces:
            if not listed or listed[-1]["bytes"] + size // len(pieces) > part_size:
                listed.append({"pieces": [], "bytes": 0})
            listed[-1]["pieces"].append(piece)
            listed[-1]["bytes"] += size // len(pieces)
    return listed


def spread(total: int, count: int) -> list[tuple[int, int]]:
    """The ranges of `count` parts of about one size, in their order."""
    count = max(1, min(count, total))
    return list(pairwise(total * part // count for part in range(count + 1)))


def _pieces(file: Path, size: int, count: int, unit: Unit) -> list[Piece]:
    """The ranges of about one size in which a file is read, as many as `count` where it can be cut."""
    form, bounds = format_of(file), [0, None]
    is_units = file.suffix in (".jsonl", ".ndjson") or (form == "text" and unit != "file")
    if count > 1 and form == "parquet":
        with _parquet_file(file) as content:
            bounds = [0, *(stop for _, stop in spread(content.num_row_groups, count))]
    elif count > 1 and is_units and file.suffix not in COMPRESSIONS:
        mark = _PARAGRAPH if form == "text" and unit == "paragraph" else _LINE
        with file.open("rb") as content, mmap(content.fileno(), 0, access=ACCESS_READ) as view:
            ends = [mark.search(view, stop) for _, stop in spread(size, count)]
            bounds = [0, *(end.end() if end else size for end in ends)]
    return [[str(file), *piece] for piece in pairwise(bounds)]


# --- what is in them ---


@contextmanager
def opened(file: Path, start: int = 0, stop: int | None = None) -> Iterator[IO[bytes]]:
    """The bytes of a file, without its compression, or those of a range. Bytes that are damaged, or no UTF-8 where a
    text is read of them, are refused with their place.
    """
    check_regular(file)
    try:
        with _stream(file, start, stop) as content:
            yield content
    except ScalingError as error:
        if start and error.line is not None:
            with _stream(file, 0, start) as content:
                error.line += sum(1 for _ in content)
        raise
    except UnicodeDecodeError:
        for _ in lines(file):  # refuses the line with the byte
            pass
        raise
    except OSError as error:
        if error.errno is None and file.suffix in COMPRESSIONS:
            what, fix = f"it cannot be decompressed: {error}", "copy or compress it again"
            raise ScalingError(what, file=file, fix=fix) from error
        raise


def _stream(file: Path, start: int, stop: int | None) -> IO[bytes]:
    import pyarrow  # whose reader, unlike that of zstandard, refuses a file that is cut off

    stream: Any = pyarrow.input_stream(str(file), compression=COMPRESSIONS.get(file.suffix))
    return io.BufferedReader(stream if stop is None else stream.get_stream(start, stop - start), 1 << 20)


def read(name: str | Path, start: int = 0, stop: int | None = None, unit: Unit = "paragraph") -> Iterator[Row]:
    """The rows of a file, or of a range of it; plain text is cut into units."""
    file = Path(name)
    match format_of(file):
        case "json":
            return _json(file, start, stop)
        case "parquet":
            return _parquet(file, start, stop)
        case "separated":
            return separated(file)
    return _text(file, start, stop, unit)


def read_pieces(pieces: Sequence[Piece], unit: Unit = "paragraph") -> Iterator[Row]:
    """The rows of several files, or of ranges of them, one after another."""
    return (row for piece in pieces for row in read(*piece, unit=unit))


def separated(file: Path, names: Sequence[str] | None = None, quotes: bool = True) -> Iterator[Row]:
    """The rows of CSV or TSV by the names of its columns, `names` where the first row does not name them.

    A field may be quoted, and then holds separators, line breaks and doubled quotes; without `quotes` a quote is a
    character like any other. Every value is text, as it is written; an empty field is not a value.
    """
    separator = SEPARATORS[_plain(file).suffix]
    namer = "the first row" if names is None else "the key columns"
    quoting, line = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE, 1
    csv.field_size_limit(_LONGEST)
    with opened(file) as content:
        # The mark that Excel writes in front of UTF-8 is not part of the first name.
        text = io.TextIOWrapper(content, encoding="utf-8-sig", newline="")
        table = csv.reader(text, delimiter=separator, strict=True, quoting=quoting)
        try:
            for fields in table:
                if fields and names is None:
                    names = fields
                    twice = {name for name in names if names.count(name) > 1}
                    refuse(twice, f"columns of one name: {', '.join(twice)}", "rename one", file=file, line=line)
                elif fields and names is not None:
                    if len(fields) != len(names):
                        what = f"the row has {plural(len(fields), 'field')}, and {namer} names {len(names)}"
                        fix = "quote fields that hold a separator or a line break"
                        raise ScalingError(what, file=file, line=line, fix=fix)
                    yield {name: field or None for name, field in zip(names, fields)}
                line = table.line_num + 1
        except csv.Error as error:
            fix = f'separate fields by {separator!r}, write "" for a quote within a quoted field, and close every quote'
            raise ScalingError(f"the row cannot be read: {error}", file=file, line=line, fix=fix) from error
    refuse(names is None, "it is empty", "its first row must name the columns", file=file)


def pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """The lines of two files, side by side."""
    for number, (left, right) in enumerate(zip_longest(lines(source), lines(target), fillvalue=""), 1):
        if not (left.strip() and right.strip()):
            what, fix = "the pair has one side: this line is empty or missing", "give both files a line for each pair"
            raise ScalingError(what, file=target if left.strip() else source, line=number, fix=fix)
        yield left, right


def lines(file: Path) -> Iterator[str]:
    """The lines of a text without what ends them."""
    with opened(file) as content:
        for number, line in enumerate(content, 1):
            yield json_lines.decoded(line, file, number).rstrip("\r\n")


def _text(file: Path, start: int, stop: int | None, unit: Unit) -> Iterator[Row]:
    """Lines, paragraphs between empty lines, or the whole of a plain text."""
    with opened(file, start, stop) as content:
        text = io.TextIOWrapper(content, encoding="utf-8" if start else "utf-8-sig")
        if unit == "file":
            yield {"text": text.read()}
        elif unit == "line":
            yield from ({"text": line.rstrip("\n")} for line in text)
        else:
            last = ""
            while block := text.read(_BLOCK):
                *paragraphs, last = (last + block).split("\n\n")
                yield from ({"text": paragraph} for paragraph in paragraphs if paragraph)
            if last:
                yield {"text": last}


def _json(file: Path, start: int, stop: int | None) -> Iterator[Row]:
    """JSON lines; of a .json file also one array of records, or of texts."""
    with opened(file, start, stop) as content:
        head = content.peek(64).removeprefix(codecs.BOM_UTF8).lstrip()  # type: ignore[attr-defined]
        if _plain(file).suffix != ".json" or not head.startswith(b"["):
            for block in json_lines.blocks(content, file):
                yield from block
            return
        values = json_lines.whole(content.read(), file)
    records = []
    for number, value in enumerate(values, 1):
        record = {"text": value} if isinstance(value, str) else value
        records.append(json_lines.record(record, file, None, f"element {number} of the array "))
    yield from json_lines.completed(records)


def _parquet(file: Path, start: int, stop: int | None) -> Iterator[Row]:
    with _parquet_file(file) as content:
        groups = range(start, content.num_row_groups if stop is None else stop)
        for batch in content.iter_batches(_ROWS, row_groups=groups):
            yield from batch.to_pylist()


@contextmanager
def _parquet_file(file: Path) -> Iterator[Any]:
    import pyarrow.parquet

    check_regular(file)
    try:
        with pyarrow.parquet.ParquetFile(file) as content:
            yield content
    except (ValueError, OSError) as error:
        raise ScalingError(f"this is not a whole Parquet file: {error}", file=file) from error
