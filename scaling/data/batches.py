"""`batch(step)`: a pure function of source, objective, plan, seed and step; the same batch for any number of ranks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeVar, cast

import numpy as np

from scaling.batch import Batch
from scaling.data import hashing
from scaling.data.mixture import ENDLESS
from scaling.data.plan import BatchSize, Buckets, ByLength, Drawn, Plan, Windows
from scaling.data.source import Rows, Source
from scaling.data.task.task import is_task
from scaling.errors import ScalingError


class Stream:
    """Tokens of several arrays, numbered through."""

    def __init__(self, arrays: Sequence[np.ndarray]):
        self.arrays = arrays
        # Where each array begins in the whole, and where the last one ends.
        self.starts = np.cumsum([0, *(len(array) for array in arrays)])

    def places(self, positions: np.ndarray) -> list[tuple[int, int]]:
        """The array that holds each position, and where in it."""
        arrays = np.searchsorted(self.starts, positions, side="right") - 1
        return list(zip(arrays.tolist(), (positions - self.starts[arrays]).tolist()))

    def fill(self, rows: np.ndarray, places: Iterable[tuple[int, int]]) -> None:
        """Fill each of [n t] rows from its place on."""
        for row, (number, place) in zip(rows, places):
            self._fill(row, number, place)

    def _fill(self, row: np.ndarray, number: int, place: int) -> None:
        taken = self.arrays[number][place : place + len(row)]
        row[: len(taken)] = taken
        if len(taken) < len(row):
            self._fill(row[len(taken) :], number + 1, 0)


Takes = Literal["windows", "pairs", "examples"]


@dataclass(frozen=True)
class Features:
    """The rows that an objective makes of a task's examples: one each, or several of a long one."""

    examples: np.ndarray  # [rows], the example of each
    starts: np.ndarray  # [rows], where in its second text it begins
    lengths: np.ndarray  # [rows], its tokens


class Framing(Protocol):
    """What a batch of examples needs of its objective besides."""

    def features(self, source: Source) -> Features: ...


class Maker(Protocol):
    """What a batch needs of an objective."""

    @property
    def reads(self) -> int:
        """Tokens it reads of a window to fill a model's."""
        ...

    @property
    def others(self) -> int:
        """How many further windows, drawn at random, a sample takes; they follow after the samples' own rows."""
        ...

    @property
    def takes(self) -> Takes:
        """What it learns from."""
        ...

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch: ...


@dataclass(frozen=True)
class Batches:
    """The batches of a run, by step."""

    source: Source
    objective: Maker
    plan: Plan
    seed: int
    documents: Literal["join", "mask"] = "join"  # whether packed documents see one another
    features: Features | None = None  # where the source gives examples

    def batch(self, step: int, rank: int = 0, ranks: int = 1) -> Batch:
        """One rank's rows of the batch of a step; put together in order of rank they are the global batch.

        There may be none, where a batch has fewer rows than there are ranks.
        """
        drawn = self.plan.drawn(step)
        total = len(drawn.samples)
        start, stop = total * rank // ranks, total * (rank + 1) // ranks
        if start == stop:  # an objective knows the widths of what it makes of a row, not of none
            return self._assembled(drawn, slice(0, 1)).micro(0, 0)
        return self._assembled(drawn, slice(start, stop))

    def _assembled(self, drawn: Drawn, mine: slice) -> Batch:
        keys = hashing.keys(self.seed, "objective", drawn.samples[mine])
        if self.features is not None:
            rows = drawn.rows[mine]
            read = self.source.read(self.features.examples[rows], drawn.length)
            return self.objective(replace(read, starts=self.features.starts[rows], width=drawn.length), keys)
        rows = [drawn.rows[mine]]
        for number in range(self.objective.others):
            words = hashing.bits(hashing.branch(keys, f"other {number}"), 1)[:, 0]
            rows.append((words % np.uint64(self.source.windows(drawn.length) or ENDLESS)).astype(np.int64))
        read = self.source.read(np.concatenate(rows), drawn.length, documents=self.documents == "mask")
        return self.objective(read, keys).of_domains(read.domains)

    def passes(self, step: int) -> float:
        """How often the data have been seen when `step` begins."""
        return self.plan.passes(step)


def training(
    source: Source,
    objective: Maker,
    size: BatchSize,
    seed: int,
    documents: Literal["join", "mask"] = "join",
) -> Batches:
    """The batches of a training run: windows, or buckets of as many tokens where the source holds pairs."""
    count = _windows(source, objective)
    if objective.takes == "windows":
        if size.tokens is not None:
            what, fix = "windows are all of one length", "give the number of windows"
            raise ScalingError(what, key="train.batch", value={"tokens": size.tokens}, fix=fix)
        return Batches(source, objective, Windows(count, objective.reads, size, seed), seed, documents)
    if len(size.sizes) > 1:
        fix = "give one number"
        raise ScalingError(f"{objective.takes} come in batches of one size", key="train.batch", fix=fix)
    if objective.takes == "examples":
        features = _features(source, objective)
        plan: Plan = ByLength(features.lengths, objective.reads, size, seed)
        if size.tokens is not None:
            plan = Buckets(features.lengths[:, None], objective.reads, size.tokens, seed)
        return Batches(source, objective, plan, seed, documents, features)
    assert source.lengths is not None
    plan = Buckets(source.lengths, objective.reads, size.tokens or size.size(0) * objective.reads, seed)
    return Batches(source, objective, plan, seed, documents)


def evaluation(
    source: Source,
    objective: Maker,
    size: int,
    rows: int | None = None,
    documents: Literal["join", "mask"] = "join",
) -> tuple[Batches, int]:
    """One pass, or `rows` rows of it, and how many batches they make: the same for every run, so it takes no seed."""
    count = _windows(source, objective)
    if rows is None and count is None:
        raise ScalingError(
            "there is no end to the data", key="evaluate.windows", fix="set the number of windows to take"
        )
    features = _features(source, objective) if objective.takes == "examples" else None
    count = count if features is None else len(features.lengths)
    limit = min(number for number in (rows, count) if number is not None)
    if features is not None:
        every = ByLength(features.lengths, objective.reads, BatchSize.of(size), seed=0, limit=limit)
        return Batches(source, objective, every, 0, documents, features), -(-limit // size)
    plan = Windows(count, objective.reads, BatchSize.of(size), seed=0, limit=limit)
    return Batches(source, objective, plan, 0, documents), -(-limit // size)


def check_takes(objective: type, gives: Takes, takes: Takes | None = None) -> None:
    """Refuse data that an objective does not learn from; what it takes is by default that of its class, if any."""
    takes = takes or getattr(objective, "takes", None)
    if takes in (None, gives):
        return
    fixes = {
        "windows": "choose Causal or another objective of one text",
        "pairs": "choose Sequence",
        "examples": "choose Answer",
    }
    what = f"it learns from {takes}, and the data are {gives}"
    raise ScalingError(what, key="objective.kind", value=objective.__name__, fix=fixes[gives])


def _features(source: Source, objective: Maker) -> Features:
    return cast(Framing, objective).features(source)


def _windows(source: Source, objective: Maker) -> int | None:
    """How many rows there are of what the objective takes, and at least one."""
    gives: Takes = "examples" if is_task(source) else "windows" if source.lengths is None else "pairs"
    check_takes(type(objective), gives, objective.takes)
    count = source.windows(objective.reads)
    if count == 0:
        tokens = "" if source.tokens is None else f" of {source.tokens:,} tokens"
        raise ScalingError(
            f"the data{tokens} are shorter than one window of {objective.reads}",
            key="data",
            fix="take a smaller size.length or more data",
        )
    return count


Item = TypeVar("Item")
Made = TypeVar("Made")

SHARE = 0.1  # of the time of a step: below it, two threads that take turns lose more than is gained
FADE = 0.8  # decay of the averaged fraction: a run's first steps are slow


def ahead(make: Callable[[Item], Made], items: Iterable[Item], depth: int) -> Generator[Made, None, None]:
    """`make(item)` for each item in order; where making takes long, up to `depth` are made before they are asked for.

    An error of `make` is raised where its item would have come.
    """
    left = iter(items)
    making = whole = 0.0
    for item in left:
        started = time.perf_counter()
        result = make(item)
        making = FADE * making + time.perf_counter() - started
        yield result
        whole = FADE * whole + time.perf_counter() - started
        if making > SHARE * whole:
            break
    yield from _by_a_thread(make, left, depth)


def _by_a_thread(make: Callable[[Item], Made], items: Iterator[Item], depth: int) -> Iterator[Made]:
    pool = ThreadPoolExecutor(1, thread_name_prefix="batches")
    waiting: deque[Future[Made]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(make, item))
            if len(waiting) > depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
