"""Your own corpus of written sums. Every source of documents can be a corpus: a database, an archive, a
format that the package does not read.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaling.base.numbers import Long, PositiveInt
from scaling.data.documents import Document, Part, Snapshot

PART = 100_000  # documents


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """Sums of two numbers below `below`, ten in each document: "7 + 12 = 19." """

    slot = "corpus"

    documents: Long = 2000
    below: PositiveInt = 50

    def snapshot(self, folder: Path) -> Snapshot:
        """The stamp identifies the content: equal stamps mean equal data. Each part is tokenized by a job."""
        stamp = {"documents": self.documents, "below": self.below}
        parts = [
            {"first": first, "last": min(first + PART, self.documents)} for first in range(0, self.documents, PART)
        ]
        return Snapshot(self, stamp, parts)

    def changed(self, stamp: dict[str, Any]) -> None:
        """Nothing: no file of it can change."""

    def read(self, part: Part) -> Iterator[Document]:
        """The documents of a part, in any process; with a `source` they would be pairs."""
        chance = random.Random(part["first"])
        for _ in range(part["first"], part["last"]):
            pairs = [(chance.randrange(self.below), chance.randrange(self.below)) for _ in range(10)]
            yield Document(" ".join(f"{a} + {b} = {a + b}." for a, b in pairs))
