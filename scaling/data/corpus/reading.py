"""Rows of local files through `datasets`, with errors that name the file, and the line or the byte."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from scaling.data.corpus.diagnosis import COMPRESSIONS, diagnose
from scaling.errors import ScalingError

BUILDERS = {".jsonl": "json", ".ndjson": "json", ".json": "json", ".parquet": "parquet"}  # anything else is text


def quiet_datasets() -> ModuleType:
    """`datasets`, told to keep quiet and to count no downloads."""
    import datasets
    import datasets.config

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    return datasets


def find(patterns: str | Sequence[str], key: str) -> list[Path]:
    """The files that paths or globs name, sorted within each; an error where one names none."""
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        if not _matches(pattern):
            raise ScalingError("there is no such file", key=key, value=pattern, mend="give a path or a glob of files")
    return _matches(patterns)


def _matches(patterns: str | Sequence[str]) -> list[Path]:
    found: list[Path] = []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        named = sorted(glob.glob(str(Path(pattern).expanduser()), recursive=True))
        found += [Path(name).resolve() for name in named if Path(name).is_file()]
    return list(dict.fromkeys(found))


def builder(file: Path) -> str:
    """Which reader of `datasets` a file wants, by its suffix under that of the compression."""
    name = file.with_suffix("") if file.suffix in COMPRESSIONS else file
    return BUILDERS.get(name.suffix, "text")


def rows(files: Sequence[Path], **options: Any) -> Iterator[Mapping[str, Any]]:
    """The rows of `files`, all of one format; `options` are for the reader of plain text."""
    kinds = {builder(file) for file in files}
    if len(kinds) > 1:
        raise ScalingError(f"files of several formats: {', '.join(sorted(kinds))}", mend="name files of one format")
    kind = kinds.pop()
    try:
        yield from quiet_datasets().load_dataset(
            kind,
            data_files=[glob.escape(str(file)) for file in files],
            split="train",
            streaming=True,
            **(options if kind == "text" else {}),
        )
    except (ValueError, EOFError, OSError) as error:
        raise diagnose(files, kind, error) from error


def stamp(files: Sequence[Path]) -> dict[str, Any]:
    """Size, time of change and SHA-256 of each file."""
    return {str(file): _stamp(file) for file in files}


def changed(stamps: Mapping[str, Any], *patterns: str | Sequence[str] | None) -> Path | None:
    """The first file that is no longer what its stamp says, or that `patterns` name and no stamp does. One that is gone
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
