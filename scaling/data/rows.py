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
from itertools import islice, pairwise
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import IO, Any, Literal

from scaling.base import json_lines
from scaling.base.errors import ScalingError, check_regular, plural, refuse
from scaling.config.files import SAVED

Row = Mapping[str, Any]
Piece = Sequence[Any]
"""A file and the range of it that is read, in bytes from one unit to another, or in row groups of Parquet; `[file, 0,
None]` is all of it.
"""
Unit = Literal["line", "paragraph", "file"]

COMPRESSIONS = (".gz", ".zst")
SEPARATORS = {".csv": ",", ".tsv": "\t"}
FORMATS = {".jsonl": "json", ".ndjson": "json", ".json": "json", ".parquet": "parquet"}
FORMATS |= dict.fromkeys(SEPARATORS, "separated")  # anything else is text
# What is read of a folder: these are text or a table of it, and the folder's other files may be anything.
OF_FOLDERS = (*FORMATS, ".txt", ".text", ".md", ".rst", ".tex")

PART = 1 << 28  # bytes of files that one job reads, at least
_MOST = 4096  # parts
_BLOCK = 10 << 20  # characters of a text that are read at once
_ROWS = 256  # of Parquet that are in memory at once
_LONGEST = 1 << 26  # characters of a field: a quote that is never closed would take in the rest of the file
_OTHERS = ";\t|,"  # separators that a file may have under the wrong name
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
    if all(file.stat().st_size == 0 for file in files):
        raise ScalingError("the corpus is empty", file=next(iter(files)), fix="name files that hold something")
    return list(files)


def is_saved(folder: Path) -> bool:
    """Whether `datasets.save_to_disk` wrote the folder."""
    return any((folder / name).is_file() for name in SAVED)


def format_of(file: Path) -> str:
    """The format of a file by its suffix under that of the compression: json, parquet, separated or text."""
    return FORMATS.get(_plain(file).suffix, "text")


def stamp(files: Sequence[Path]) -> dict[str, Any]:
    """Size, time of change and SHA-256 of each file."""
    status = [file.stat() for file in files]
    with ThreadPoolExecutor() as pool:  # hashing releases the interpreter's lock
        hashes = list(pool.map(sha256, files))
    return {"files": {str(f): [of.st_size, of.st_mtime_ns, digest] for f, of, digest in zip(files, status, hashes)}}


def changed(stamped: Mapping[str, Any], *patterns: str | Sequence[str] | None) -> Path | None:
    """The first file that differs from its stamp, or that only `patterns` name; one that is gone does not differ."""
    files = stamped.get("files", {})
    for name, (size, time, digest) in files.items():
        file = Path(name)
        if not file.exists():
            continue
        status = file.stat()
        # Hashing is for files that were touched: the time of change alone proves nothing.
        if (status.st_size, status.st_mtime_ns) != (size, time) and (status.st_size != size or sha256(file) != digest):
            return file
    named = (pattern for listed in patterns for pattern in _listed(listed or ()))
    return next((file for pattern in named for file in _matches(pattern, OF_FOLDERS) if str(file) not in files), None)


def sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _listed(patterns: str | Sequence[str]) -> Sequence[str]:
    return [patterns] if isinstance(patterns, str) else patterns


def _matches(pattern: str, endings: Sequence[str]) -> list[Path]:
    files: list[Path] = []
    whole = str(Path(os.path.expanduser(pattern)))
    for name in [whole] if os.path.exists(whole) else sorted(glob.glob(whole, recursive=True)):
        path = Path(name)
        if path.is_file():
            files.append(path)
        elif path.is_dir() and name == whole and not is_saved(path):
            files += [file for file in _within(path) if _plain(file).suffix in endings]
    # A link keeps its name, whose ending is the format.
    return [file.parent.resolve() / file.name for file in files]


def _within(folder: Path) -> list[Path]:
    """The files of a folder and of those in it, but for hidden ones."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return sorted(file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts))


def _plain(file: Path) -> Path:
    """The name under that of the compression."""
    return file.with_suffix("") if file.suffix in COMPRESSIONS else file


def _no_file(pattern: str, key: str, endings: Sequence[str]) -> ScalingError:
    """Why a pattern names no file to read."""
    folder = Path(os.path.expanduser(pattern))
    if not folder.exists():
        what, fix = "there is no such file", "give a path or a glob of files"
    elif not folder.is_dir():
        what, fix = "it is not a regular file", "write its content to a file, and name that"
    elif endings == OF_FOLDERS and is_saved(folder):
        what = "the folder holds a data set that `save_to_disk` wrote"
        fix = f"write data.corpus='{{kind: Saved, path: {pattern}}}'"
    else:
        others = sorted({file.suffix or file.name for file in _within(folder)})
        beside = f"; it holds {', '.join(others[:6])}{' …' if len(others) > 6 else ''}" if others else ""
        what = f"the folder holds no file of {', '.join(endings)}{beside}"
        fix = f"name the files by a glob, as in {pattern.rstrip('/')}/**/*{others[0] if others else endings[0]}"
    return ScalingError(what, key=key, value=pattern, fix=fix)


# --- what is in them ---


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
    form = format_of(file)
    if count > 1 and form == "parquet":
        with _parquet_file(file) as content:
            return [[str(file), *bounds] for bounds in spread(content.num_row_groups, count)]
    has_units = unit != "file" if form == "text" else file.suffix in (".jsonl", ".ndjson")
    if count < 2 or not has_units or file.suffix in COMPRESSIONS:
        return [[str(file), 0, None]]
    mark = _PARAGRAPH if form == "text" and unit == "paragraph" else _LINE
    cuts = [0]
    with file.open("rb") as content, mmap(content.fileno(), 0, access=ACCESS_READ) as view:
        for _, place in spread(size, count):  # the first unit that begins behind it
            match = mark.search(view, place)
            cuts.append(match.end() if match else size)
    return [[str(file), *bounds] for bounds in pairwise(cuts)]


@contextmanager
def opened(file: Path, start: int = 0, stop: int | None = None) -> Iterator[IO[bytes]]:
    """The bytes of a file, without its compression, or those of a range. Bytes that are damaged, or no UTF-8 where a
    text is read of them, are refused with their place.
    """
    check_regular(file)
    try:
        with _decompressed(file) as content:
            yield content if stop is None else io.BufferedReader(_Range(content, start, stop))
    except ScalingError as error:
        if start and error.line is not None:
            with file.open("rb") as content:
                error.line += sum(1 for _ in io.BufferedReader(_Range(content, 0, start)))
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


class _Range(io.RawIOBase):
    """Bytes of a file from `start` to `stop`."""

    def __init__(self, content: IO[bytes], start: int, stop: int):
        self.content, self.left = content, stop - start
        content.seek(start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self.content.read(min(len(buffer), self.left))
        buffer[: len(block)] = block
        self.left -= len(block)
        return len(block)


def _decompressed(file: Path) -> IO[bytes]:
    if file.suffix not in COMPRESSIONS:
        return file.open("rb")
    import pyarrow

    stream: Any = pyarrow.input_stream(str(file), compression="detect")  # refuses one that is cut off
    return io.BufferedReader(stream, 1 << 20)


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
        lines = io.TextIOWrapper(content, encoding="utf-8-sig", newline="")
        table = csv.reader(lines, delimiter=separator, strict=True, quoting=quoting)
        try:
            for fields in table:
                if fields and names is None:
                    names = _names(file, line, fields, separator)
                elif fields and names is not None:
                    if len(fields) != len(names):
                        what = f"the row has {plural(len(fields), 'field')}, and {namer} names {len(names)}"
                        fix = "quote fields that hold a separator or a line break"
                        raise ScalingError(what, file=file, line=line, fix=fix)
                    yield {name: field or None for name, field in zip(names, fields)}
                line = table.line_num + 1
        except csv.Error as error:
            fix = 'write "" for a quote within a quoted field, and close every quote'
            raise ScalingError(f"the row cannot be read: {error}", file=file, line=line, fix=fix) from error
    if names is None:
        raise ScalingError("it is empty", file=file, fix="its first row must name the columns")


def _names(file: Path, line: int, names: list[str], separator: str) -> list[str]:
    """The first row, whose fields have to be the names of columns."""
    twice = next((name for name in names if names.count(name) > 1), None)
    refuse(twice is not None, f"there are two columns {twice!r}", "rename one of them", file=file, line=line)
    other = next((each for each in _OTHERS if len(names) == 1 and each != separator and each in names[0]), None)
    if other is not None:
        what = f"the first row has no {separator!r}, and is separated by {other!r}"
        fix = "separate the fields of a .csv file by commas, those of a .tsv file by tabs"
        raise ScalingError(what, file=file, line=line, fix=fix)
    return names


def count_pairs(source: Path, target: Path) -> int:
    """The number of lines of two files, which is one."""
    counts = [sum(1 for _ in lines(file)) for file in (source, target)]
    if counts[0] != counts[1]:
        (few, short), (many, long) = sorted(zip(counts, (source, target), strict=True), key=lambda side: side[0])
        what = f"it has {plural(few, 'line')}, and {long.name} has {many:,}: line {few + 1} there has no partner"
        raise ScalingError(what, file=short, line=few + 1, fix="give both files a line for each pair, in one order")
    return counts[0]


def pairs(source: Path, target: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[str, str]]:
    """The lines of two files, side by side; without `stop`, files of unequal length are refused before the first."""
    stop = count_pairs(source, target) if stop is None else stop
    sides = (islice(lines(file), start, stop) for file in (source, target))
    for number, (left, right) in enumerate(zip(*sides), start + 1):
        if not (left.strip() and right.strip()):
            fix = "remove this line from both files, or write the sentence"
            file = target if left.strip() else source
            raise ScalingError("the line is empty, so the pair has one side", file=file, line=number, fix=fix)
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
    records = [
        {"text": value}
        if isinstance(value, str)
        else json_lines.record(value, file, None, f"element {number} of the array ")
        for number, value in enumerate(values, 1)
    ]
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
