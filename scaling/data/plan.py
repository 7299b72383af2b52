"""Which rows are in the batch of a step: windows of one length, or pairs in batches of about one number of tokens."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isqrt
from typing import Any, Protocol

import numpy as np

from scaling.base.errors import ScalingError, refuse
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


@dataclass(frozen=True)
class Drawn:
    """The rows of one global batch."""

    samples: np.ndarray  # [n] int64, numbered through the run: what randomness is keyed by
    rows: np.ndarray  # [n] int64, of the source
    length: int  # how many tokens to read of each


class Plan(Protocol):
    def drawn(self, step: int) -> Drawn: ...

    def passes(self, step: int) -> float:
        """The number of passes over the data before `step`; always 0 where the source is endless."""
        ...


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
        if isinstance(value, Mapping):  # a key of a document is text
            value = {int(key) if str(key).isdecimal() else key: size for key, size in value.items()}
        sizes: Mapping[Any, Any] = value if isinstance(value, Mapping) else {0: value}
        if set(sizes) == {"tokens"} and _whole(sizes["tokens"], 1):
            return cls((0,), (1,), sizes["tokens"])
        if set(sizes) == {"from", "to", "over"} and all(_whole(number, 1) for number in sizes.values()):
            low, high, over = sizes["from"], sizes["to"], sizes["over"]
            rungs = high // low if high % low == 0 else 0
            highest = min(rungs, MOST_ROWS // low + 1)  # the last of these is refused already
            sizes = {over * rung // rungs: low * (rung + 1) for rung in range(highest)}
        if 0 not in sizes or not all(_whole(step, 0) and _whole(size, 1) for step, size in sizes.items()):
            fix = (
                "write 128, {0: 32, 1000: 128}, {tokens: 4096}, or {from: 32, to: 512, over: 1000} with `to` a multiple"
            )
            raise ScalingError("expected rows a step, or a schedule of them", key="train.batch", value=value, fix=fix)
        what = f"more than {MOST_ROWS:,} rows a step"
        refuse(max(sizes.values()) > MOST_ROWS, what, "take fewer", key="train.batch", value=value)
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
        return Drawn(samples, drawn(samples, self.count, self.seed), self.length)

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
    def _members(self) -> list[tuple[int, np.ndarray]]:
        """Each bucket's length and the pairs in it."""
        bucket = _widths(self.lengths, self.length)
        return [(int(length), np.flatnonzero(bucket == length)) for length in np.unique(bucket)]

    @cached_property
    def _batches(self) -> np.ndarray:
        """[batches 3]: bucket, first and last member of each batch of a pass, before they are permuted."""
        table = []
        for number, (length, members) in enumerate(self._members):
            rows = max(1, self.tokens // length)
            table += [(number, start, min(start + rows, len(members))) for start in range(0, len(members), rows)]
        return np.array(table, np.int64)

    def drawn(self, step: int) -> Drawn:
        turn, place = divmod(step, len(self._batches))
        index = int(permute(np.array([place]), len(self._batches), self.seed, turn)[0])
        number, start, stop = self._batches[index].tolist()
        length, members = self._members[number]
        rows = members[permute(np.arange(start, stop), len(members), self.seed + number + 1, turn)]
        return Drawn(turn * len(self.lengths) + rows, rows, length)

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
        return Drawn(turn * count + rows, rows, int(_widths(self.lengths[rows].max(), self.length)))

    def passes(self, step: int) -> float:
        return step / self._batches


def _widths(lengths: np.ndarray, most: int) -> np.ndarray:
    """Filled up to a multiple of `WIDTH`, or to `most` where that is less; what is longer keeps its length."""
    return np.minimum(-(-lengths // WIDTH) * WIDTH, np.maximum(lengths, most))


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
