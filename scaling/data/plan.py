"""Which rows are in the batch of a step: windows of one length, or pairs in batches of about one number of tokens."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isqrt
from typing import Any

import numpy as np

from scaling.base.errors import refuse
from scaling.base.numbers import MOST_ROWS
from scaling.data import hashing

ROUNDS = 8  # an even number brings the halves back to their places
ENDLESS = 1 << 62  # windows of a source without end: a large number, a perfect square
# Rows of about one length are filled to a multiple: what is lost to filling against how many shapes there are.
WIDTH = 8


@lru_cache(maxsize=64)
def _round_keys(seed: int, turn: int) -> np.ndarray:
    return hashing.keys(hashing.name(seed, f"order {turn}"), "round", np.arange(ROUNDS))


def permute(items: np.ndarray, count: int, seed: int, turn: int) -> np.ndarray:
    """[n] int64: the place of each of `items`, all below `count`, in the permutation of (seed, turn)."""
    root = isqrt(count - 1) + 1 if count > 1 else 1
    sizes = np.uint64(root), np.uint64(-(-count // root))
    walked = items.astype(np.uint64)
    outside = np.arange(len(items))
    while outside.size:
        left, right = np.divmod(walked[outside], sizes[1])
        for number, key in enumerate(_round_keys(seed, turn)):
            size = sizes[number % 2]
            left, right = right, (left + hashing.mix(right ^ key) % size) % size
        walked[outside] = left * sizes[1] + right
        outside = outside[walked[outside] >= np.uint64(count)]
    return walked.astype(np.int64)


def drawn(samples: np.ndarray, windows: int | None, seed: int) -> np.ndarray:
    """[n] int64: the window of each sample. Every window comes once in a pass, and each pass has its own order."""
    count = ENDLESS if windows is None else windows
    turns, places = np.divmod(samples.astype(np.int64), count)
    rows = np.empty(len(samples), np.int64)
    for turn in np.unique(turns):
        inside = turns == turn
        rows[inside] = permute(places[inside], count, seed, int(turn))
    return rows


# The rows of one global batch: `samples` [n] int64, numbered through the run, by which randomness is keyed; their
# `rows` [n] int64 of the source; and the `length`, the number of tokens to read of each.
Drawn = tuple[np.ndarray, np.ndarray, int]


@dataclass(frozen=True)
class BatchSize:
    """Rows a step, constant from each of `starts` to the next."""

    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    tokens: int | None = None  # of a side and batch, where batches have as many tokens and any number of rows

    @classmethod
    def of(cls, value: int | Mapping[Any, int]) -> BatchSize:
        """`128`; `{0: 32, 1000: 128}`, a size from each step on; `{from: 32, to: 512, over: 1000}`; `{tokens: 4096}`.

        The third is the ramp of GPT-3 (Brown et al. 2020): it grows by `from` at equal distances over as many steps.
        The last is for pairs and examples: about so many source and so many target tokens in each batch (Vaswani et
        al. 2017, section 5.1); its rows are 1 until the data give their mean.
        """
        named = value if isinstance(value, Mapping) else {0: value}
        # A key of a document is text.
        sizes: dict[Any, Any] = {int(key) if str(key).isdecimal() else key: size for key, size in named.items()}
        is_whole = all(type(size) is int and size > 0 for size in sizes.values())
        if is_whole and sizes.keys() == {"tokens"}:
            return cls((0,), (1,), sizes["tokens"])
        if is_whole and sizes.keys() == {"from", "to", "over"} and sizes["to"] % sizes["from"] == 0:
            low, over, rungs = sizes["from"], sizes["over"], sizes["to"] // sizes["from"]
            highest = min(rungs, MOST_ROWS // low + 1)  # the last of these is refused already
            sizes = {over * rung // rungs: low * (rung + 1) for rung in range(highest)}
        place: dict[str, Any] = {"key": "train.batch", "value": value}
        fix = "write 128, {0: 32, 1000: 128}, {tokens: 4096}, or {from: 32, to: 512, over: 1000} with `to` a multiple"
        is_schedule = is_whole and 0 in sizes and all(type(step) is int and step >= 0 for step in sizes)
        refuse(not is_schedule, "expected rows a step, or a schedule of them", fix, **place)
        refuse(max(sizes.values()) > MOST_ROWS, f"more than {MOST_ROWS:,} rows a step", "take fewer", **place)
        starts = tuple(sorted(sizes))
        return cls(starts, tuple(sizes[step] for step in starts))

    def size(self, step: int) -> int:
        return self.sizes[bisect_right(self.starts, step) - 1]

    def before(self, step: int) -> int:
        """The number of rows that were drawn before `step`."""
        if len(self.sizes) == 1:  # nearly all are, and a plan asks for ten thousand runs
            return self.sizes[0] * max(0, step)
        stops = [*self.starts[1:], step]
        return sum(size * max(0, min(stop, step) - start) for start, stop, size in zip(self.starts, stops, self.sizes))


@dataclass(frozen=True)
class Windows:
    """Windows of one length, without replacement within a pass; or the first `limit` of one pass, for an evaluation."""

    count: int | None  # of the source, None where endless
    length: int
    size: BatchSize
    seed: int
    limit: int | None = None

    def drawn(self, step: int) -> Drawn:
        start = self.size.before(step)
        stop = start + self.size.size(step)
        samples = np.arange(start, stop if self.limit is None else min(stop, self.limit))
        return samples, drawn(samples, self.count, self.seed), self.length

    def passes(self, step: int) -> float:
        return 0.0 if self.count is None else self.size.before(step) / self.count


@dataclass(frozen=True)
class Buckets:
    """Pairs of about one length in batches of about `tokens` tokens a side (Vaswani et al. 2017, section 5.1).

    A pair belongs to the shortest bucket that holds both its sides. A pass is a permutation of all batches of all
    buckets, and within a bucket of its pairs, so that every pair comes once a pass.
    """

    lengths: np.ndarray  # [pairs], of the longer side
    length: int  # of the longest bucket but for rows that cannot be cut
    tokens: int  # a side and batch, filling counted
    seed: int

    @cached_property
    def _batches(self) -> list[tuple[int, int, np.ndarray, np.ndarray]]:
        """The batches of a pass in order: the number and the length of its bucket, its pairs, and the batch's part."""
        bucket, batches = _widths(self.lengths, self.length), []
        for number, length in enumerate(np.unique(bucket).tolist()):
            members, rows = np.flatnonzero(bucket == length), max(1, self.tokens // length)
            parts = np.split(np.arange(len(members)), range(rows, len(members), rows))
            batches += [(number, length, members, part) for part in parts]
        return batches

    def drawn(self, step: int) -> Drawn:
        turn, place = divmod(step, len(self._batches))
        index = int(permute(np.array([place]), len(self._batches), self.seed, turn)[0])
        number, length, members, part = self._batches[index]
        rows = members[permute(part, len(members), self.seed + number + 1, turn)]
        return turn * len(self.lengths) + rows, rows, length

    def passes(self, step: int) -> float:
        return step / len(self._batches)

    @property
    def rows(self) -> int:
        """The mean number of rows of a batch."""
        return max(1, round(len(self.lengths) / len(self._batches)))


@dataclass(frozen=True)
class ByLength:
    """Rows of a task in batches of one size whose rows are of about one length, so that little is filling.

    A pass is a permutation of all rows, cut into parts of `PART` batches; a part is sorted by length and cut into
    batches, which are permuted. Every row comes once a pass, and the last batch of one may be smaller. With `limit`,
    the first rows of one permutation, for an evaluation.
    """

    lengths: np.ndarray  # [rows]
    length: int  # of the longest row but for those that cannot be cut
    size: BatchSize
    seed: int
    limit: int | None = None

    PART = 50

    @property
    def _batches(self) -> int:
        """The number of batches of a pass."""
        return -(-(self.limit or len(self.lengths)) // self.size.size(0))

    def drawn(self, step: int) -> Drawn:
        turn, place = divmod(step, self._batches)
        size, count = self.size.size(0), len(self.lengths)
        if self.limit is None:
            place = int(permute(np.array([place]), self._batches, self.seed + 1, turn)[0])
        start = place // self.PART * self.PART * size
        rows = permute(np.arange(start, min(start + self.PART * size, self.limit or count)), count, self.seed, turn)
        rows = rows[np.argsort(self.lengths[rows], kind="stable")][place % self.PART * size :][:size]
        return turn * count + rows, rows, int(_widths(self.lengths[rows].max(), self.length))

    def passes(self, step: int) -> float:
        return step / self._batches


def _widths(lengths: np.ndarray, most: int) -> np.ndarray:
    """Filled up to a multiple of `WIDTH`, or to `most` where that is less; what is longer keeps its length."""
    return np.minimum(-(-lengths // WIDTH) * WIDTH, np.maximum(lengths, most))


Plan = Windows | Buckets | ByLength
"""`drawn(step)` gives the rows of a step, `passes(step)` the passes over the data before it: 0 where they are endless.
"""
