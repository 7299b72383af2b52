"""Word vectors in files: word2vec's text and binary formats, GloVe's text, and fastText's .vec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO

import numpy as np

from scaling.base.errors import ScalingError, plural, refuse
from scaling.data.rows import opened

_FASTTEXT = (793712314).to_bytes(4, "little")  # the number that a fastText model begins with


def read(file: Path, width: int, wanted: Callable[[str], bool]) -> dict[str, np.ndarray]:
    """The vectors of the words that are wanted. A binary file's name ends in .bin; a text has a word and `width`
    numbers a line, word2vec's and fastText's with a first line of counts.
    """
    vectors: dict[str, np.ndarray] = {}
    with opened(file) as content:
        form = _binary if file.name.removesuffix(".gz").endswith(".bin") else _text
        for line, word, numbers in form(content, file, width):
            if wanted(word):
                vector = np.array([np.nan])
                with suppress(ValueError), np.errstate(over="ignore"):
                    vector = np.array(numbers, np.float32)
                what = "a vector has something that is not a finite number"
                refuse(not np.isfinite(vector).all(), what, file=file, line=line)
                vectors[word] = vector
    return vectors


def _text(content: IO[bytes], file: Path, width: int) -> Iterator[tuple[int, str, Sequence[str]]]:
    for line, raw in enumerate(content, 1):
        try:
            fields = raw.decode("utf-8").rstrip("\r\n ").split(" ")
        except UnicodeDecodeError:
            raise ScalingError("it is not UTF-8", file=file, line=line, fix="name a binary file .bin") from None
        is_header = line == 1 and len(fields) == 2 and all(field.isdecimal() and len(field) < 20 for field in fields)
        if line == 1 or len(fields) <= width:
            _check(int(fields[1]) if is_header else len(fields) - 1, width, file, line)
        if not is_header:
            yield line, " ".join(fields[:-width]), fields[-width:]  # a word of GloVe's may hold spaces


def _binary(content: IO[bytes], file: Path, width: int) -> Iterator[tuple[None, str, np.ndarray]]:
    header = content.readline(64)
    what, fix = "it is a model of fastText", "take the .vec file that comes with it"
    refuse(header.startswith(_FASTTEXT), what, fix, file=file)
    try:
        count, dimension = map(int, header.split())
    except ValueError:
        raise ScalingError("it is not a binary file of word2vec", file=file, line=1, fix="rename a text .txt") from None
    _check(dimension, width, file, 1)
    for number in range(1, count + 1):
        word = b"".join(iter(lambda: content.read(1).strip(b" "), b""))
        numbers = content.read(4 * width)
        what = f"it ends at word {number:,} of {count:,}"
        refuse(len(numbers) < 4 * width, what, "copy it again", file=file)
        yield None, word.replace(b"\n", b"").decode("utf-8", errors="replace"), np.frombuffer(numbers, "<f4")


def _check(own: int, width: int, file: Path, line: int) -> None:
    what = f"the vectors have {plural(own, 'number')}, and the model's {width}"
    refuse(own != width, what, f"take size.width={own}, or vectors of {width}", file=file, line=line)


@lru_cache(maxsize=1)  # a run is assembled twice
def table(file: Path, tokens: tuple[str, ...], width: int, seed: int = 0) -> tuple[np.ndarray, int]:
    """The vector of each token by its spelling, or else by its lower case, and the number of tokens that have one.
    Other rows are drawn with the mean and the standard deviation of these vectors.
    """
    spellings = {spelling for token in tokens for spelling in (token, token.lower()) if spelling}
    vectors = read(file, width, spellings.__contains__)
    covered = {row: vectors.get(token, vectors.get(token.lower())) for row, token in enumerate(tokens) if token}
    covered = {row: vector for row, vector in covered.items() if vector is not None}
    refuse(not covered, "no token of the run is a word of it", "take a tokenizer of words", file=file)
    present = np.array([*covered.values()])
    rows = np.random.default_rng(seed).normal(present.mean(), present.std(), (len(tokens), width)).astype(np.float32)
    rows[[*covered]] = present
    return rows, len(covered)
