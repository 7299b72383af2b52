"""A corpus of one's own: sums, written out. Anything that yields documents can be a corpus: a database, an archive, a
format that the package does not read.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaling.data.documents import Document, Snapshot
from scaling.schema import Long, PositiveInt


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """Sums of two numbers below `below`, ten a document: "7 + 12 = 19." """

    slot = "corpus"

    documents: Long = 2000
    below: PositiveInt = 50

    @property
    def sides(self) -> tuple[str, ...]:
        """Plain documents; ("text", "source") would make them pairs."""
        return ("text",)

    def snapshot(self, folder: Path) -> Snapshot:
        """What stands still while it is read. The stamp states what it holds: equal stamps are equal data."""
        stamp = {"documents": self.documents, "below": self.below}
        return Snapshot(stamp, None, self._documents)

    def changed(self, stamp: dict[str, Any]) -> None:
        """No file that could change stands behind it."""

    def _documents(self) -> Iterator[Document]:
        chance = random.Random(0)
        for _ in range(self.documents):
            pairs = [(chance.randrange(self.below), chance.randrange(self.below)) for _ in range(10)]
            yield Document(" ".join(f"{a} + {b} = {a + b}." for a, b in pairs))
