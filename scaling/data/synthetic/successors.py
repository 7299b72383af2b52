"""Which symbol a rank means in each context: permutations by falling score, the scores normal from a seed.

All in integers, so that the permutations are the same on every machine: a normal is the sum of twelve hashed 16-bit
numbers (Irwin–Hall), exact in its mean and variance, with a kurtosis 0.1 short of the normal's.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from scaling.data import hashing
from scaling.data.synthetic.ranks import logarithm

_ONE = 1 << 16  # a standard deviation of `normals`; a weight is a multiple of 1 / _ONE too
_CHUNK = 1 << 20


def normals(seed: int, stream: str, numbers: np.ndarray) -> np.ndarray:
    """int64 of the same shape: these numbers of a stream of normals with standard deviation 2¹⁶."""
    words = hashing.bits(hashing.keys(seed, stream, numbers.ravel()), 3)
    drawn = words.view(np.uint16).sum(axis=1, dtype=np.int64) - 6 * (_ONE - 1)
    return drawn.reshape(numbers.shape)


@lru_cache(maxsize=4)
def language(symbols: int, order: int, joint: float, seed: int) -> np.ndarray:
    """[symbols^order, symbols]: the symbol of each rank after each context, the last symbol varying fastest.

    The score of x after x₋ₖ … x₋₁ is −ln(x + 1) + Σⱼ Aⱼ[x₋ⱼ, x] + joint · Σⱼ Zⱼ[x₋ⱼ … x₋₁, x], j from 1 in the first
    sum and from 2 in the second, A and Z standard normal.
    """
    every = np.arange(symbols)
    falling = np.array([-int(_ONE * logarithm(x + 1)) for x in range(symbols)], np.int64)
    weight = round(joint * _ONE)
    contexts = symbols**order
    successors = np.empty((contexts, symbols), np.uint16)
    step = max(1, _CHUNK // symbols)
    for start in range(0, contexts, step):
        context = np.arange(start, min(start + step, contexts))[:, None]
        score = falling * _ONE
        for lag in range(1, order + 1):
            before = context // symbols ** (lag - 1) % symbols
            score = score + normals(seed, f"lag {lag}", before * symbols + every) * _ONE
        for length in range(2, order + 1):
            before = context % symbols**length
            score += normals(seed, f"joint {length}", before * symbols + every) * weight
        successors[start : start + len(context)] = by_falling_score(score)
    return successors


@lru_cache(maxsize=4)
def translation(symbols: int, lexicon: float, seed: int) -> np.ndarray:
    """[symbols², symbols]: the target symbol of each rank after (target symbol before, source symbol).

    The score of y is lexicon · D[source, y] + A[before, y], both standard normal.
    """
    cells = np.arange(symbols**2)
    meaning = normals(seed, "lexicon", cells).reshape(1, symbols, symbols)
    before = normals(seed, "target lag 1", cells).reshape(symbols, 1, symbols)
    return by_falling_score((meaning * round(lexicon * _ONE) + before * _ONE).reshape(symbols**2, symbols))


def by_falling_score(score: np.ndarray) -> np.ndarray:
    """[contexts symbols] uint16: the symbols of each row, the highest score first; of equals the lower symbol."""
    symbols = score.shape[1]
    keyed = score * -symbols + np.arange(symbols)
    keyed.sort(axis=1)
    return (keyed % symbols).astype(np.uint16)
