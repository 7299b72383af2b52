"""Rows of local files, with errors that name the file, and the line or the byte."""

from __future__ import annotations

import glob
import hashlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from scaling import json_lines
from scaling.config import SAVED
from scaling.data.corpus import separated
from scaling.data.corpus.document import COMPRESSIONS, diagnose, opened
from scaling.errors import ScalingError

BUILDERS = {".jsonl": "json", ".ndjson": "json", ".json": "json", ".parquet": "parquet"}
BUILDERS |= dict.fromkeys(separated.SEPARATORS, "separated")  # anything else is text
# What is read of a folder: these are text or a table of it, and the folder's other files may be anything.
OF_FOLDERS = (*BUILDERS, ".txt", ".text", ".md", ".rst", ".tex")


def quiet_datasets() -> ModuleType:
    """`datasets`, set to print nothing and to count no downloads."""
    import datasets
    import datasets.config

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    return datasets


def find(patterns: str | Sequence[str], key: str, endings: Sequence[str] = OF_FOLDERS) -> list[Path]:
    """The files that paths, globs or folders name, sorted within each; of folders those with one of some endings."""
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        if not _matches(pattern, endings):
            raise _none(pattern, key, endings)
    files = _matches(patterns, endings)
    if all(file.stat().st_size == 0 for file in files):
        raise ScalingError("the corpus is empty", file=files[0], fix="name files that hold something")
    return files


def _none(pattern: str, key: str, endings: Sequence[str]) -> ScalingError:
    """Why a pattern names no file to read."""
    folder = Path(pattern).expanduser()
    if not folder.is_dir():
        if folder.exists():
            fix = "write its content to a file, and name that"
            return ScalingError("it is no regular file", key=key, value=pattern, fix=fix)
        return ScalingError("there is no such file", key=key, value=pattern, fix="give a path or a glob of files")
    if endings == OF_FOLDERS and is_saved(folder):
        fix = f"write data.corpus='{{kind: Saved, path: {pattern}}}'"
        return ScalingError("the folder holds a data set that `save_to_disk` wrote", key=key, value=pattern, fix=fix)
    others = sorted({file.suffix or file.name for file in _within(folder)})
    beside = f"; it holds {', '.join(others[:6])}{' …' if len(others) > 6 else ''}" if others else ""
    fix = f"name the files by a glob, as in {pattern.rstrip('/')}/**/*{others[0] if others else endings[0]}"
    return ScalingError(f"the folder holds no file of {', '.join(endings)}{beside}", key=key, value=pattern, fix=fix)


def is_saved(folder: Path) -> bool:
    """Whether `datasets.save_to_disk` wrote the folder."""
    return any((folder / name).is_file() for name in SAVED)


def _matches(patterns: str | Sequence[str], endings: Sequence[str] = OF_FOLDERS) -> list[Path]:
    files: list[Path] = []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        for name in sorted(glob.glob(str(Path(pattern).expanduser()), recursive=True)):
            path = Path(name)
            if path.is_file():
                files.append(path.resolve())
            elif path.is_dir() and pattern.rstrip("/") == name.rstrip("/") and not is_saved(path):
                files += [file.resolve() for file in _within(path) if _plain(file).suffix in endings]
    return list(dict.fromkeys(files))


def _within(folder: Path) -> list[Path]:
    """The files of a folder and of those in it, but for hidden ones."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return sorted(file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts))


def _plain(file: Path) -> Path:
    """The name under that of the compression."""
    return file.with_suffix("") if file.suffix in COMPRESSIONS else file


def builder(file: Path) -> str:
    """Which reader a file needs, by its suffix under that of the compression."""
    return BUILDERS.get(_plain(file).suffix, "text")


def rows(files: Sequence[Path], **options: Any) -> Iterator[Mapping[str, Any]]:
    """The rows of `files`, all of one format; `options` are for the reader of plain text."""
    kinds = {builder(file) for file in files}
    if len(kinds) > 1:
        raise ScalingError(
            f"files of several formats: {', '.join(sorted(kinds))}",
            fix="name files of one format, as in text/**/*.txt",
        )
    kind = kinds.pop()
    try:
        if kind in _READERS:
            for file in files:
                yield from _READERS[kind](file)
            return
        yield from quiet_datasets().load_dataset(
            kind,
            data_files=[glob.escape(str(file)) for file in files],
            split="train",
            streaming=True,
            **(options if kind == "text" else {}),
        )
    except ScalingError:
        raise
    except Exception as error:  # each compression has an exception of its own
        raise diagnose(files, kind, error) from error


def _json(file: Path) -> Iterator[Mapping[str, Any]]:
    """JSON lines; of a .json file also one array of records, or of texts."""
    with opened(file) as content:
        array = _plain(file).suffix == ".json" and content.read(64).removeprefix(BOM_UTF8).lstrip().startswith(b"[")
    with opened(file) as content:
        if not array:
            for block in json_lines.blocks(content, file):
                yield from block
            return
        values = json_lines.whole(content.read(), file)
    rows = [{"text": value} if isinstance(value, str) else value for value in values]
    yield from json_lines.completed(
        [json_lines.record(row, file, None, f"element {number} of the array ") for number, row in enumerate(rows, 1)]
    )


_READERS: Mapping[str, Callable[[Path], Iterator[Mapping[str, Any]]]] = {"json": _json, "separated": separated.rows}


def stamp(files: Sequence[Path]) -> dict[str, Any]:
    """Size, time of change and SHA-256 of each file."""
    return {str(file): _stamp(file) for file in files}


def changed(stamps: Mapping[str, Any], *patterns: str | Sequence[str] | None) -> Path | None:
    """The first file that differs from its stamp, or that `patterns` name and no stamp does. One that is gone
    is no contradiction.
    """
    for name, (size, time, digest) in stamps.items():
        file = Path(name)
        if not file.exists():
            continue
        status = file.stat()
        # Hashing is for files that were touched: the time of change alone proves nothing.
        if (status.st_size, status.st_mtime_ns) != (size, time) and (status.st_size != size or sha256(file) != digest):
            return file
    return next((file for named in patterns for file in _matches(named or ()) if str(file) not in stamps), None)


def sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _stamp(file: Path) -> list[Any]:
    status = file.stat()
    return [status.st_size, status.st_mtime_ns, sha256(file)]
