"""Hashes of numbered rows: keys of 64 bits, and the words that are drawn by them."""

from __future__ import annotations

import hashlib

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _32 = (np.uint64(shift) for shift in (30, 27, 31, 32))


def mix(x: np.ndarray) -> np.ndarray:
    """A bijection of 64 bits in which every input bit moves every output bit; overwrites `x` and returns it."""
    scratch = x >> _30
    x ^= scratch
    x *= _FIRST
    np.right_shift(x, _27, out=scratch)
    x ^= scratch
    x *= _SECOND
    np.right_shift(x, _31, out=scratch)
    x ^= scratch
    return x


def name(seed: int, stream: str) -> int:
    """64 bits of a seed and a named stream; neighbouring seeds have nothing in common."""
    return int.from_bytes(hashlib.blake2b(f"{stream}:{seed}".encode(), digest_size=8).digest(), "little")


def keys(seed: int, stream: str, samples: np.ndarray) -> np.ndarray:
    """[n] uint64: a key for each numbered sample."""
    counted = samples.astype(np.uint64)  # a copy, which mix may overwrite
    counted *= _GOLDEN
    counted += np.uint64(name(seed, stream))
    return mix(counted)


def branch(keyed: np.ndarray, stream: str) -> np.ndarray:
    """Keys for a second purpose of the same samples."""
    return mix(keyed ^ np.uint64(name(0, stream)))


def bits(keyed: np.ndarray, count: int) -> np.ndarray:
    """[n count] uint64: the first `count` words of each key."""
    steps = np.arange(1, count + 1, dtype=np.uint64)
    steps *= _GOLDEN
    return mix(keyed[:, None] + steps)


def bits_at(keyed: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """[m] uint64: word `positions[i]` of key `keyed[i]`, for work on a few positions only."""
    steps = positions.astype(np.uint64)
    steps += np.uint64(1)
    steps *= _GOLDEN
    steps += keyed
    return mix(steps)


def below(words: np.ndarray, bound: int | np.ndarray) -> np.ndarray:
    """Uniform integers in [0, bound) from the upper halves of words, by multiplication (Lemire, 2019); bound < 2³²."""
    return ((words >> _32) * np.asarray(bound, np.uint64)) >> _32
