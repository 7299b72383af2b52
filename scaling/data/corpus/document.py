"""Documents and pairs of a corpus: what a row becomes, and what is wrong with one."""

from __future__ import annotations

import codecs
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from scaling.errors import ScalingError, check_regular, nearest


class Document(NamedTuple):
    """A piece of text that belongs together, or a pair of which `text` is the target."""

    text: str
    source: str | None = None
    split: str | None = None  # where its publisher put it; None: not specified

    def sides(self) -> tuple[str, ...]:
        """The text, or target and source."""
        return (self.text,) if self.source is None else (self.text, self.source)

    def digest(self) -> int:
        """64 bits of the text alone, so that equal documents are recognised as equal wherever they are."""
        hashed = hashlib.blake2b(digest_size=8)
        for side in self.sides():
            hashed.update(side.encode())
            hashed.update(b"\0")
        return int.from_bytes(hashed.digest(), "big")


@dataclass(frozen=True)
class Snapshot:
    """A corpus that does not change: read twice, it gives the same documents in the same order."""

    stamp: dict[str, Any]  # what it holds, to the byte; a plain tree
    bytes: int | None  # about how much text there is, for the time left
    documents: Callable[[], Iterator[Document]]


class Corpus(Protocol):
    """A `corpus:` line, built: where documents come from."""

    @property
    def sides(self) -> tuple[str, ...]:
        """("text",), or ("text", "source") where documents are pairs."""
        ...

    def snapshot(self, folder: Path) -> Snapshot:
        """Take a snapshot; what has to be copied for it goes under `folder`."""
        ...

    def changed(self, stamp: dict[str, Any]) -> Path | None:
        """The first of its files that differs from `stamp`, where that can be checked without a network."""
        ...


def sides(source: str | None) -> tuple[str, ...]:
    return ("text",) if source is None else ("text", "source")


def size(document: Document) -> int:
    """Bytes of a document's text in UTF-8."""
    try:
        return sum(len(side.encode()) for side in document.sides())
    except UnicodeEncodeError as error:
        shown = ascii(error.object[max(0, error.start - 20) : error.start + 20])
        raise ScalingError(f"a document holds half a surrogate pair, near {shown}", fix="fix it in the file") from error


def limited(documents: Iterable[Document], limit: int | None) -> Iterator[Document]:
    """Documents until `limit` bytes of text have gone by."""
    left = float("inf") if limit is None else limit
    for document in documents:
        if left <= 0:
            return
        yield document
        left -= size(document)


_FIELD = re.compile(r"\{([^{}:]+)(?::([^{}]*))?\}")
_FORM = re.compile(r",?(\.[0-9]{1,2})?[deEfFgGnosxX%]?")  # without a width, which a row's memory would have to hold
_NESTED = re.compile(r"\{[^{}:\s\"']+:[^{}\s]*\{")
_CONVERSION = re.compile(r"![rsa]$")


def fill(template: str, row: Mapping[str, Any], key: str) -> str | None:
    """`template` with the row's fields in their places; None where a field of it is empty in this row."""
    _check(template, key)
    parts: list[str] = []
    end = 0
    for match in _FIELD.finditer(template):
        value = _field(match[1], row, key)
        if value is None:
            return None
        parts += [template[end : match.start()], _shown(value, match[2] or "", key)]
        end = match.end()
    return "".join([*parts, template[end:]])


@cache
def _check(template: str, key: str) -> None:
    """Refuse what Python's templates have and these do not."""
    fix = "write {field}, {field.within}, or a number as {field:.1f}"
    if nested := _NESTED.search(template):
        raise ScalingError(f"a field is within the form of another: {nested[0]}", key=key, value=template, fix=fix)
    for field in _FIELD.finditer(template):
        if _CONVERSION.search(field[1]):
            raise ScalingError(f"{field[0]} has a conversion", key=key, value=template, fix=fix)
        if not _FORM.fullmatch(field[2] or ""):
            raise ScalingError(f"{field[0]} has a form that is none of a number", key=key, value=template, fix=fix)


def document(row: Mapping[str, Any], text: str, source: str | None, split: str | None) -> Document | None:
    """The document that templates make of a row; None where a field of theirs is empty in it."""
    filled = fill(text, row, "text")
    question = None if source is None else fill(source, row, "source")
    return None if filled is None or (source is not None and question is None) else Document(filled, question, split)


def _field(path: str, row: Mapping[str, Any], key: str) -> Any:
    value: Any = row
    for name in path.split("."):
        if isinstance(value, Mapping):
            if name not in value:
                raise ScalingError(f"the data have no field {path!r}", key=key, fix=nearest(name, map(str, value)))
            value = value[name]
        elif isinstance(value, Sequence) and not isinstance(value, str) and name.isdecimal():
            value = value[int(name)] if int(name) < len(value) else None
        elif value is not None:
            raise ScalingError(f"{path!r} leads into {type(value).__name__}, which has no parts", key=key)
    return value


def _shown(value: Any, form: str, key: str) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    try:
        return format(value, form)
    except (TypeError, ValueError, OverflowError) as error:
        raise ScalingError(f"{str(value)[:80]!r} cannot be written as {form!r}", key=key) from error


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
