"""What every corpus gives: documents, from a snapshot that does not change while it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from scaling.errors import ScalingError


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


def split_rule(corpus: Corpus | None) -> dict[str, int]:
    """A part of what names prepared data: the number of the corpus's rule for its splits, where it is not the first."""
    rule = getattr(corpus, "split_rule", 1)
    return {} if rule == 1 else {"split_rule": rule}


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
