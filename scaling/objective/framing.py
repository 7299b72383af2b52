"""Framing the examples of a task as a family reads them: which tokens a row has, and where its head reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from scaling.data.source import Vocabulary


@dataclass
class Line:
    """One row: its tokens, the text (0 or 1) and the document of each, and the places that the head reads."""

    tokens: list[int] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    documents: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    tree: np.ndarray | None = None  # [tokens 3], as `Batch.tree`

    def add(self, tokens: Sequence[int] | np.ndarray, segment: int, document: int) -> None:
        self.tokens.extend(tokens.tolist() if isinstance(tokens, np.ndarray) else tokens)
        self.segments.extend([segment] * len(tokens))
        self.documents.extend([document] * len(tokens))


@dataclass(frozen=True)
class Frame:
    """What comes before, between and after texts: [CLS] a [SEP] b [SEP] of an encoder (Devlin et al. 2018), whose head
    reads the first token, or [START] a [DELIM] b [EXTRACT] of a decoder (Radford et al. 2018, figure 1), whose head
    reads the last.
    """

    first: int
    between: int
    last: int
    reads_last: bool

    @classmethod
    def of(cls, vocabulary: Vocabulary, decoder: bool) -> Frame:
        names = ("start", "delim", "extract") if decoder else ("cls", "sep", "sep")
        return cls(*(vocabulary[name] for name in names), reads_last=decoder)

    def add(self, line: Line, texts: Sequence[np.ndarray], document: int = 1) -> int:
        """Put a framed text or pair on the line; returns where the tokens of its last text begin."""
        begin = len(line.tokens)
        line.add([self.first], 0, document)
        place = len(line.tokens)
        line.add(texts[0], 0, document)
        for text in texts[1:]:
            line.add([self.between], 0, document)
            place = len(line.tokens)
            line.add(text, 1, document)
        line.add([self.last], len(texts) - 1, document)
        line.reads.append(len(line.tokens) - 1 if self.reads_last else begin)
        return place


def cut(texts: Sequence[np.ndarray], room: int) -> list[np.ndarray]:
    """One or two texts in `room` tokens: token after token is taken from the end of the longer one, of equals from the
    second. (Devlin et al. 2018)
    """
    if len(texts) == 1:
        return [texts[0][:room]]
    first, second = kept(len(texts[0]), len(texts[1]), room)
    return [texts[0][:first], texts[1][:second]]


def kept(first: int, second: int, room: int) -> tuple[int, int]:
    """How much of two texts stays."""
    if first + second <= room:
        return first, second
    first = min(first, max((room + 1) // 2, room - second))
    return first, room - first


def starts(length: int, room: int, stride: int) -> list[int]:
    """Where windows of `room` tokens begin that together cover a text."""
    places = [0]
    while places[-1] + room < length:
        places.append(places[-1] + min(stride, room))
    return places


def filled(rows: Sequence[Sequence[int]], width: int, value: int, left: bool) -> np.ndarray:
    """[n width]: rows of unequal length, filled up on the right or on the left."""
    table = np.full((len(rows), width), value, np.int64)
    for number, row in enumerate(rows):
        start = width - len(row) if left else 0
        table[number, start : start + len(row)] = row
    return table
