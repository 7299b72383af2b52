"""Hashes of numbered rows: keys of 64 bits, and the words that are drawn by them."""

from __future__ import annotations

import hashlib

import numpy as np

_GOLDEN = 0x9E3779B97F4A7C15


def mix(x: np.ndarray) -> np.ndarray:
    """A bijection of 64 bits in which every input bit moves every output bit; overwrites `x` and returns it."""
    x ^= x >> 30
    x *= 0xBF58476D1CE4E5B9
    x ^= x >> 27
    x *= 0x94D049BB133111EB
    x ^= x >> 31
    return x


def name(seed: int, stream: str) -> int:
    """64 bits of a seed and a named stream; neighbouring seeds have nothing in common."""
    return int.from_bytes(hashlib.blake2b(f"{stream}:{seed}".encode(), digest_size=8).digest(), "little")


def keys(seed: int, stream: str, samples: np.ndarray) -> np.ndarray:
    """[n] uint64: a key for each numbered sample."""
    return mix(samples.astype(np.uint64) * _GOLDEN + name(seed, stream))


def branch(keyed: np.ndarray, stream: str) -> np.ndarray:
    """Keys for a second purpose of the same samples."""
    return mix(keyed ^ name(0, stream))


def bits(keyed: np.ndarray, count: int) -> np.ndarray:
    """[n count] uint64: the first `count` words of each key."""
    return bits_at(keyed[:, None], np.arange(count))


def bits_at(keyed: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """[m] uint64: word `positions[i]` of key `keyed[i]`, for work on a few positions only."""
    return mix((positions.astype(np.uint64) + 1) * _GOLDEN + keyed)


def below(words: np.ndarray, bound: int | np.ndarray) -> np.ndarray:
    """Uniform integers in [0, bound) from the upper halves of words, by multiplication (Lemire, 2019); bound < 2³²."""
    return ((words >> 32) * np.asarray(bound, np.uint64)) >> 32
