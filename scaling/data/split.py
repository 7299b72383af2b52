"""Which documents are trained on and which are held out: decided by their text alone, so that no text is in both."""

from __future__ import annotations

from dataclasses import dataclass, field

from scaling.data.corpus.document import Document, size


@dataclass
class Splitter:
    """Which split a document is for; None for one that is in validation already, or empty."""

    share: float
    held_out: set[int] = field(default_factory=set)  # hashes of the documents that their publisher held out
    dropped: int = 0

    def __call__(self, document: Document) -> str | None:
        size(document)  # refuses text that has no bytes
        if not all(side.strip() for side in document.sides()):
            return None
        hashed = document.digest()
        if document.split == "validation":
            self.held_out.add(hashed)
            return "validation"
        if hashed in self.held_out:
            self.dropped += 1
            return None
        if document.split is not None:
            return document.split
        return "validation" if hashed < self.share * 2**64 else "train"
