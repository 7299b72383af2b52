"""What is wrong with which file, and where in it. Files are looked through only once one of them could not be read."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from scaling.errors import ScalingError, check_regular

COMPRESSIONS = (".gz", ".zst")
_CHUNK = 1 << 20


def diagnose(files: Sequence[Path], kind: str, error: Exception) -> ScalingError:
    """What is wrong with files of one kind (text, json, parquet, separated) that `error` kept from being read."""
    for file in files:
        for look in _LOOKS[kind]:
            diagnosis = look(file)
            if diagnosis is not None:
                return diagnosis
    return ScalingError(f"it cannot be read: {error}", file=files[0])


def _undecodable(file: Path) -> ScalingError | None:
    """Where the bytes of a file stop being UTF-8, or its compression stops making sense."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    read = decoded = 0
    try:
        with opened(file) as content:
            while True:
                chunk = content.read(_CHUNK)
                decoder.decode(chunk, final=not chunk)
                if not chunk:
                    return None
                read += len(chunk)
                decoded = read - len(decoder.getstate()[0])
    except UnicodeDecodeError as error:
        where = " of the decompressed text" if file.suffix in COMPRESSIONS else ""
        return ScalingError(
            f"byte {decoded + error.start}{where} is 0x{error.object[error.start]:02x}, which is not UTF-8",
            file=file,
            fix="convert the file to UTF-8",
        )
    except Exception as error:  # each compression has an exception of its own
        return ScalingError(f"it cannot be decompressed: {error}", file=file, fix="copy or compress it again")


def _no_parquet(file: Path) -> ScalingError | None:
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(file) as content:
            for _ in content.iter_batches():
                pass
    except (ValueError, OSError) as error:
        return ScalingError(f"this is no whole Parquet file: {error}", file=file)
    return None


def opened(file: Path) -> IO[bytes]:
    """The bytes of a file, without its compression."""
    import fsspec

    check_regular(file)
    content = fsspec.open(str(file), "rb", compression="infer").open()  # type: ignore[union-attr]
    return io.BufferedReader(content) if file.suffix == ".zst" else content  # Zstandard's own has no lines


_LOOKS: dict[str, Sequence[Callable[[Path], ScalingError | None]]] = {
    "text": (_undecodable,),
    "separated": (_undecodable,),
    "json": (_undecodable,),
    "parquet": (_no_parquet,),
}
