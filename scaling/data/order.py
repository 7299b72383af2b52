"""The order in which windows are drawn: a keyed permutation that is computed for the samples at hand, never stored.

A Feistel cipher on Z_a × Z_b with a·b just above the number of windows, walked until it lands inside (Black and
Rogaway, "Ciphers with Arbitrary Finite Domains", 2002): since it permutes a·b numbers, and walking on from a number
outside ends at the next one inside, what is left permutes the windows themselves.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

import numpy as np

from scaling.data import hashing

ROUNDS = 8  # an even number brings the halves back to their places
ENDLESS = 1 << 62  # windows of a source without end: a large number, a perfect square


@lru_cache(maxsize=64)
def _round_keys(seed: int, turn: int) -> np.ndarray:
    return hashing.keys(hashing.name(seed, f"order {turn}"), "round", np.arange(ROUNDS))


def permute(items: np.ndarray, count: int, seed: int, turn: int) -> np.ndarray:
    """[n] int64: the place of each of `items`, all below `count`, in the permutation of (seed, turn)."""
    root = isqrt(count - 1) + 1 if count > 1 else 1
    a, b = np.uint64(root), np.uint64(-(-count // root))
    round_keys = _round_keys(seed, turn)
    walked = _feistel(items.astype(np.uint64), a, b, round_keys)
    outside = np.flatnonzero(walked >= np.uint64(count))
    while outside.size:
        walked[outside] = _feistel(walked[outside], a, b, round_keys)
        outside = outside[walked[outside] >= np.uint64(count)]
    return walked.astype(np.int64)


def _feistel(items: np.ndarray, a: np.uint64, b: np.uint64, round_keys: np.ndarray) -> np.ndarray:
    left, right = items // b, items % b
    for number, key in enumerate(round_keys):
        size = a if number % 2 == 0 else b
        left, right = right, (left + hashing.mix(right ^ key) % size) % size
    return left * b + right


def drawn(samples: np.ndarray, windows: int | None, seed: int) -> np.ndarray:
    """[n] int64: the window of each sample. Every window comes once in a pass, and each pass has its own order."""
    count = ENDLESS if windows is None else windows
    turns, places = np.divmod(samples.astype(np.int64), count)
    rows = np.empty(len(samples), np.int64)
    for turn in np.unique(turns):
        inside = turns == turn
        rows[inside] = permute(places[inside], count, seed, int(turn))
    return rows
