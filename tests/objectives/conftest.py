"""A vocabulary of plain text, rows of it, and keys."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from scaling.base.batch import Batch
from scaling.config.schema import build
from scaling.data import hashing
from scaling.data.source import Rows, Vocabulary

TEXT = 200  # ids 3 to 199 are text
SPECIALS = {"bos": 0, "eos": 1, "pad": 2}
BEGINS = np.arange(TEXT) % 3 == 0  # every third token begins a word


@pytest.fixture
def vocabulary() -> Vocabulary:
    return Vocabulary(TEXT, SPECIALS, TEXT, BEGINS)


def rows(count: int, length: int, seed: int = 0) -> Rows:
    """Windows of text, any token equally likely."""
    drawn = hashing.below(hashing.bits(hashing.keys(seed, "rows", np.arange(count)), length), TEXT - len(SPECIALS))
    return Rows((drawn + np.uint64(len(SPECIALS))).astype(np.uint16))


def keys(count: int, seed: int = 0) -> np.ndarray:
    return hashing.keys(seed, "objective", np.arange(count))


@pytest.fixture
def make(vocabulary: Vocabulary) -> Callable[..., object]:
    """An objective from its line."""

    def made(line: object, length: int, family: str):
        return build("objective", line, vocabulary, length, family)  # type: ignore[arg-type]

    return made


@pytest.fixture
def run(make) -> Callable[..., tuple[Rows, Batch]]:
    """An objective applied: the rows it read and the batch it made."""

    def applied(line: object, length: int, family: str, count: int = 64, seed: int = 0) -> tuple[Rows, Batch]:
        objective = make(line, length, family)
        read = rows(count * (1 + objective.others), objective.reads, seed)
        return read, objective(read, keys(count, seed))

    return applied
