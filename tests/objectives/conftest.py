"""A vocabulary of plain text, rows of it, keys, and objectives from their lines."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaling.base.batch import Batch
from scaling.config.schema import build
from scaling.data import hashing
from scaling.data.source import Rows, Vocabulary

TEXT = 200  # ids 3 to 199 are text
SPECIALS = {"bos": 0, "eos": 1, "pad": 2}
BEGINS = np.arange(TEXT) % 3 == 0  # every third token begins a word
VOCABULARY = Vocabulary(TEXT, SPECIALS, TEXT, BEGINS)


def rows(count: int, length: int, seed: int = 0) -> Rows:
    """Windows of text, any token equally likely."""
    drawn = hashing.below(hashing.bits(hashing.keys(seed, "rows", np.arange(count)), length), TEXT - len(SPECIALS))
    return Rows((drawn + np.uint64(len(SPECIALS))).astype(np.uint16))


def keys(count: int, seed: int = 0) -> np.ndarray:
    return hashing.keys(seed, "objective", np.arange(count))


def make(line: Any, length: int, family: Any) -> Any:
    return build("objective", line, VOCABULARY, length, family)


def run(line: Any, length: int, family: str, count: int = 64, seed: int = 0) -> tuple[Any, Rows, Batch]:
    """An objective, the rows that it read, and the batch that it made of them."""
    objective = make(line, length, family)
    read = rows(count * (1 + objective.others), objective.reads, seed)
    return objective, read, objective(read, keys(count, seed))
