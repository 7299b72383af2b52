"""Word vectors in files: word2vec's text and binary formats, GloVe's text, and fastText's .vec."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from scaling.base.errors import ScalingError, plural, refuse
from scaling.data.rows import opened

_FASTTEXT = (793712314).to_bytes(4, "little")  # the number that a fastText model begins with


def read(file: Path, width: int, wanted: Callable[[str], bool]) -> dict[str, np.ndarray]:
    """The vectors of the words that are wanted. A binary file's name ends in .bin; a text has a word and `width`
    numbers a line, word2vec's and fastText's with a first line of counts.
    """
    try:
        with opened(file) as content:
            binary = file.name.removesuffix(".gz").endswith(".bin")
            pairs = _binary(content, file, width) if binary else _text(content, file, width)
            return {word: vector for word, vector in pairs if wanted(word)}
    except FileNotFoundError:
        raise ScalingError("there is no such file", file=file) from None


def _text(content: IO[bytes], file: Path, width: int) -> Iterator[tuple[str, np.ndarray]]:
    for number, raw in enumerate(content, 1):
        try:
            fields = raw.decode("utf-8").rstrip("\r\n ").split(" ")
        except UnicodeDecodeError:
            fix = "name a binary file .bin"
            raise ScalingError("it is not UTF-8", file=file, line=number, fix=fix) from None
        if number == 1 and len(fields) == 2 and all(field.isdecimal() and len(field) < 20 for field in fields):
            _check(int(fields[1]), width, file, number)
            continue
        if number == 1 or len(fields) <= width:
            _check(len(fields) - 1, width, file, number)
        word, numbers = " ".join(fields[:-width]), fields[-width:]  # a word of GloVe's may hold spaces
        vector = np.array([np.nan])
        with suppress(ValueError), np.errstate(over="ignore"):
            vector = np.array(numbers, np.float32)
        yield word, _finite(vector, file, number)


def _binary(content: IO[bytes], file: Path, width: int) -> Iterator[tuple[str, np.ndarray]]:
    header = content.readline(64)
    if header.startswith(_FASTTEXT):
        raise ScalingError("it is a model of fastText", file=file, fix="take the .vec file that comes with it")
    try:
        count, dimension = map(int, header.split())
    except ValueError:
        raise ScalingError("it is not a binary file of word2vec", file=file, line=1, fix="rename a text .txt") from None
    _check(dimension, width, file, 1)
    for number in range(count):
        word = bytearray()
        while (byte := content.read(1)) not in (b" ", b""):
            word += byte if byte != b"\n" else b""
        numbers = content.read(4 * width)
        if len(numbers) < 4 * width:
            what = f"it ends at word {number + 1:,} of {count:,}"
            raise ScalingError(what, file=file, fix="copy it again")
        yield word.decode("utf-8", errors="replace"), _finite(np.frombuffer(numbers, "<f4"), file, None)


def _finite(vector: np.ndarray, file: Path, line: int | None) -> np.ndarray:
    refuse(not np.isfinite(vector).all(), "a vector has something that is not a finite number", file=file, line=line)
    return vector


def _check(own: int, width: int, file: Path, line: int) -> None:
    what = f"the vectors have {plural(own, 'number')}, and the model's {width}"
    refuse(own != width, what, f"take size.width={own}, or vectors of {width}", file=file, line=line)


class Coverage(NamedTuple):
    """A table with the vectors of the tokens that are words of a file; the other rows are drawn."""

    table: np.ndarray
    covered: int


@lru_cache(maxsize=1)  # a run is assembled twice
def table(file: Path, tokens: tuple[str, ...], width: int, seed: int = 0) -> Coverage:
    """The vector of each token by its spelling, or else by its lower case; others are drawn with the mean and the
    standard deviation of those.
    """
    spellings = {spelling for token in tokens for spelling in (token, token.lower()) if spelling}
    vectors = read(file, width, spellings.__contains__)
    vectors_of_tokens = [vectors.get(token, vectors.get(token.lower())) if token else None for token in tokens]
    present = np.array([vector for vector in vectors_of_tokens if vector is not None])
    refuse(not len(present), "no token of the run is a word of it", "take a tokenizer of words", file=file)
    rows = np.random.default_rng(seed).normal(present.mean(), present.std(), (len(tokens), width)).astype(np.float32)
    for row, vector in enumerate(vectors_of_tokens):
        if vector is not None:
            rows[row] = vector
    return Coverage(rows, len(present))
