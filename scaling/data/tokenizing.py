"""Documents to tokens on all cores, in order, a bounded number of them at a time.

The tokenizer releases the interpreter's lock and spreads a block over all cores by itself; a few threads keep it busy
while others turn its results into arrays. No process is started and no text is copied to another.
"""

from __future__ import annotations

import itertools
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from scaling.data.codec import Codec
from scaling.data.corpus.document import Document, size

_BLOCK = 1 << 20  # bytes of text that are tokenized as one task,
_MANY = 1 << 13  # or fewer where documents are tiny, because each takes some memory of its own
_AHEAD = 3  # tasks under way


@dataclass(frozen=True)
class Entry:
    """A document on its way: where the corpus has it, its split (None: it is left out) and its tokens by side."""

    number: int
    document: Document
    split: str | None
    ids: tuple[array, ...] = ()


def tokenized(codec: Codec, entries: Iterable[Entry]) -> Iterator[Entry]:
    """Entries in their order with their tokens, some blocks of them ahead of whoever asks."""
    with ThreadPoolExecutor(_AHEAD) as pool:
        pending: deque[Future[list[Entry]]] = deque()
        for block in _blocks(entries):
            pending.append(pool.submit(_encode, codec, block))
            if len(pending) == _AHEAD:
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()


def _blocks(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    block: list[Entry] = []
    characters = 0
    for entry in entries:
        block.append(entry)
        characters += size(entry.document)
        if characters >= _BLOCK or len(block) == _MANY:
            yield block
            block, characters = [], 0
    if block:
        yield block


def _encode(codec: Codec, block: list[Entry]) -> list[Entry]:
    sides = [entry.document.sides() if entry.split else () for entry in block]
    ids = iter(codec.encode(list(itertools.chain.from_iterable(sides))))
    done = []
    for entry, written in zip(block, sides, strict=True):
        taken = tuple(itertools.islice(ids, len(written)))
        for side in taken:
            side.append(codec.specials["eos"])
        done.append(Entry(entry.number, entry.document, entry.split, taken))
    return done
