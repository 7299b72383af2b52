"""Documents: what rows become by templates, which split each is for, and what a corpus is."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from scaling.base.errors import ScalingError, near, nearest, refuse
from scaling.data import rows
from scaling.data.rows import Row


class Document(NamedTuple):
    """A piece of text that belongs together, or a pair of which `text` is the target."""

    text: str
    source: str | None = None
    split: str | None = None  # where its publisher put it; None: not specified

    def sides(self) -> dict[str, str]:
        """The `text`, and the `source` of a pair."""
        return {"text": self.text} if self.source is None else {"text": self.text, "source": self.source}


Part = Mapping[str, Any]
"""What one job reads of a corpus: a plain tree. `bytes` in it are about how much that is; `split: validation` states
that all of it is held out.
"""


class Corpus(Protocol):
    """A `corpus:` line, built: where documents come from, which are all pairs or none."""

    def snapshot(self, folder: Path) -> Snapshot:
        """Take a snapshot; what has to be copied for it goes under `folder`."""
        ...

    def read(self, part: Part) -> Iterator[Document]:
        """The documents of a part, in any process: what one part gives depends on no other."""
        ...

    def changed(self, stamp: dict[str, Any]) -> Path | None:
        """The first of its files that differs from `stamp`, where that can be checked without a network."""
        return rows.changed(stamp)


@dataclass(frozen=True)
class Snapshot:
    """A corpus that does not change: a part of it, read twice, gives the same documents in the same order."""

    corpus: Corpus
    stamp: dict[str, Any]  # what it holds, to the byte; a plain tree
    parts: Sequence[Part] = ({},)
    limit: int | None = None  # bytes of text that are taken, held-out parts not counted

    def numbers(self) -> tuple[list[int], list[int]]:
        """The numbers of the parts that are held out, and of the others."""
        held_out = [number for number, part in enumerate(self.parts) if part.get("split") == "validation"]
        return held_out, [number for number in range(len(self.parts)) if number not in held_out]

    def documents(self) -> Iterator[Document]:
        """The documents of all parts, of held-out ones first."""
        held_out, others = (
            chain.from_iterable(self.corpus.read(self.parts[n]) for n in side) for side in self.numbers()
        )
        return chain(held_out, until(others, self.limit))


def until(documents: Iterable[Document], limit: int | None) -> Iterator[Document]:
    """Documents until `limit` bytes of text have gone by."""
    for document in documents:
        yield document
        if limit is not None:
            limit -= size(document)
            if limit <= 0:
                return


def size(document: Document) -> int:
    """Bytes of a document's text in UTF-8."""
    try:
        return sum(len(side.encode()) for side in document.sides().values())
    except UnicodeEncodeError as error:
        what = f"a document holds half a surrogate pair, near {near(error)}"
        raise ScalingError(what, fix="fix it in the file") from error


def documents(rows: Iterable[Row], text: str, source: str | None, split: str | None = None) -> Iterator[Document]:
    """The documents that templates make of rows. A row where a field of the templates is empty makes none."""
    templates = {"text": text} if source is None else {"text": text, "source": source}
    for row in rows:
        sides = ((key, fill(template, row, key)) for key, template in templates.items())
        filled = {key: side for key, side in sides if side is not None}
        if len(filled) == len(templates):
            yield Document(**filled, split=split)


# --- templates ---

_FIELD = re.compile(r"\{([^{}:]+)(?::([^{}]*))?\}")
_FORM = re.compile(r",?(\.[0-9]{1,2})?[deEfFgGnosxX%]?")  # without a width, which a row's memory would have to hold
_NESTED = re.compile(r"\{[^{}:\s\"']+:[^{}\s]*\{")  # a field within the form of another


@cache
def _pieces(template: str, key: str) -> tuple[list[str], list[str], list[str]]:
    """The texts around the fields of a template, the fields, and their forms."""
    pieces = _FIELD.split(template)
    forms = [form or "" for form in pieces[2::3]]
    are_numbers = all(map(_FORM.fullmatch, forms)) and not _NESTED.search(template)
    fix = "write {field}, {field.within}, or a number as {field:.1f}"
    refuse(not are_numbers, "a field has a form that is none of a number", fix, key=key, value=template)
    return pieces[::3], pieces[1::3], forms


def fill(template: str, row: Row, key: str) -> str | None:
    """`template` with the row's fields in their places; None where a field of it is empty in this row."""
    texts, paths, forms = _pieces(template, key)
    filled = texts[0]
    for text, path, form in zip(texts[1:], paths, forms):
        value = _field(path, row, key)
        if value is None:
            return None
        try:
            filled += (", ".join(map(str, value)) if isinstance(value, list | tuple) else format(value, form)) + text
        except (TypeError, ValueError, OverflowError) as error:
            raise ScalingError(f"{str(value)[:80]!r} cannot be written as {form!r}", key=key) from error
    return filled


def value_of(template: str, row: Row, key: str) -> Any:
    """A field as the row holds it where the template is this field alone, or else the template filled in."""
    texts, paths, forms = _pieces(template, key)
    return _field(paths[0], row, key) if texts == ["", ""] and not forms[0] else fill(template, row, key)


def _field(path: str, row: Row, key: str) -> Any:
    value: Any = row
    for name in [path] if path in row else path.split("."):
        if isinstance(value, Mapping):
            if name not in value:
                raise ScalingError(f"the data have no field {path!r}", key=key, fix=nearest(name, map(str, value)))
            value = value[name]
        elif isinstance(value, Sequence) and not isinstance(value, str) and name.isdecimal():
            value = value[int(name)] if int(name) < len(value) else None
        elif value is not None:
            raise ScalingError(f"{path!r} leads into {type(value).__name__}, which has no parts", key=key)
    if isinstance(value, bytes):  # a binary column of Parquet
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ScalingError(f"the bytes of the field {path!r} are not UTF-8", key=key) from None
    return value


# --- splits ---


def digest(texts: Iterable[str]) -> int:
    """64 bits of texts."""
    hashed = hashlib.blake2b(digest_size=8)
    for text in texts:
        hashed.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return int.from_bytes(hashed.digest(), "big")


def is_held_out(hashed: int, fraction: float) -> bool:
    """Whether texts of this digest are for validation: where it is below a fraction of all digests."""
    return hashed < fraction * 2**64


@dataclass
class Splitter:
    """Which split a document is for; None for one that is in validation already, or empty."""

    fraction: float
    held_out: set[int] = field(default_factory=set)  # digests of the documents that their publisher held out, so far
    dropped: int = 0

    def __call__(self, document: Document) -> str | None:
        if not all(side.strip() for side in document.sides().values()):
            return None
        hashed = digest(document.sides().values())
        if document.split == "validation":
            self.held_out.add(hashed)
            return "validation"
        if hashed in self.held_out:
            self.dropped += 1
            return None
        return document.split or ("validation" if is_held_out(hashed, self.fraction) else "train")
