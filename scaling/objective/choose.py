"""Choosing positions: an exact number of them in each row, single or in runs, from hashed words."""

from __future__ import annotations

import numpy as np

_LOW = np.uint64(0xFFFF)  # the bits that hold a position, so that no two words of a row are equal
_NEVER = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


def distinct(words: np.ndarray) -> np.ndarray:
    """[n t]: the words with their positions in the low bits, so that their order has no ties; overwrites them."""
    words &= ~_LOW
    words |= np.arange(words.shape[1], dtype=np.uint64)
    return words


def choose(words: np.ndarray, counts: np.ndarray | int, among: np.ndarray | None = None) -> np.ndarray:
    """[n t] bool: `counts` positions of each row, all sets of so many `among` the allowed being equally likely.

    Positions with equal words (of one word of text, say) come together or not at all, and never more than `counts`.
    """
    if among is not None:
        words = np.where(among, words, _NEVER)
    width = words.shape[1]
    ordered = np.sort(words, axis=1)
    counts = np.broadcast_to(counts, len(words))
    chosen = words < np.take_along_axis(ordered, np.minimum(counts, width - 1)[:, None], axis=1)
    chosen[counts >= width] = True
    return chosen


def shuffled(words: np.ndarray) -> np.ndarray:
    """[n t] int64: a random order of each row's positions."""
    return (np.sort(distinct(words), axis=1) & _LOW).astype(np.int64)


def alike(words: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """[n t]: each position with the word of the last start at or before it; the first position is one."""
    places = np.where(starts, np.arange(words.shape[1]), 0)
    return np.take_along_axis(words, np.maximum.accumulate(places, axis=1), axis=1)


def runs(starts: np.ndarray, lengths: np.ndarray, width: int) -> np.ndarray:
    """[n width] bool: True on the runs; `starts` and `lengths` [n k], runs of length 0 are none, and no two touch."""
    edges = np.zeros((len(starts), width + 1), np.int8)
    row, run = np.nonzero(lengths)
    first = starts[row, run]
    edges[row, first] = 1
    edges[row, first + lengths[row, run]] = -1
    return np.cumsum(edges[:, :width], axis=1, dtype=np.int8).view(bool)


def first_of_runs(chosen: np.ndarray) -> np.ndarray:
    """[n t] bool: where a run of chosen positions begins."""
    first = chosen.copy()
    first[:, 1:] &= ~chosen[:, :-1]
    return first


def ends_of_parts(words: np.ndarray, parts: int) -> np.ndarray:
    """[n parts]: where parts end that cut width + 1 things, none of them empty, all ways being equally likely."""
    rows, width = words.shape
    if parts == 1:
        return np.full((rows, 1), width + 1)
    cuts = np.nonzero(choose(distinct(words), parts - 1))[1].reshape(rows, parts - 1) + 1
    return np.concatenate([cuts, np.full((rows, 1), width + 1)], axis=1)
