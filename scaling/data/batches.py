"""`batch(step)`: a pure function of source, objective, plan, seed and step; the same batch for any number of ranks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import refuse
from scaling.data import hashing
from scaling.data.plan import ENDLESS, BatchSize, Buckets, ByLength, Plan, Windows
from scaling.data.source import Source, Takes, Vocabulary

if TYPE_CHECKING:  # reports read plans, and torch takes seconds to import
    from torch import Tensor


class Stream:
    """Tokens of several arrays, numbered through."""

    def __init__(self, arrays: Sequence[np.ndarray]):
        self.arrays = arrays
        # Where each array begins in the whole, and where the last one ends.
        self.starts = np.cumsum([0, *(len(array) for array in arrays)])

    def fill(self, rows: Iterable[np.ndarray], positions: np.ndarray) -> None:
        """Fill each of the rows from its position on."""
        arrays = np.searchsorted(self.starts, positions, side="right") - 1
        for row, number, place in zip(rows, arrays.tolist(), (positions - self.starts[arrays]).tolist()):
            part = self.arrays[number][place : place + len(row)]
            row[: len(part)] = part
            if len(part) < len(row):
                self.fill([row[len(part) :]], self.starts[number + 1 : number + 2])


@dataclass(frozen=True)
class Features:
    """The rows that an objective makes of a task's examples: one each, or several of a long one."""

    examples: np.ndarray  # [rows], the example of each
    starts: np.ndarray  # [rows], where in its second text it begins
    lengths: np.ndarray  # [rows], its tokens

    @staticmethod
    def of(lengths: np.ndarray) -> Features:
        """A row for each example."""
        indices = np.arange(len(lengths))
        return Features(indices, np.zeros_like(indices), lengths)


@dataclass(frozen=True)
class Batches:
    """The batches of a run, by step."""

    source: Source
    objective: Any  # an `Objective`; one that takes examples has `features(source)`, their `Features`
    plan: Plan
    seed: int
    documents: Literal["join", "mask"] = "join"  # whether packed documents see one another
    features: Features | None = None  # where the source gives examples

    def batch(self, step: int, rank: int = 0, ranks: int = 1) -> Batch:
        """One rank's rows of the batch of a step; put together in order of rank they are the global batch.

        There may be none, where a batch has fewer rows than there are ranks.
        """
        samples, rows, length = self.plan.drawn(step)
        total = len(samples)
        mine = slice(total * rank // ranks, total * (rank + 1) // ranks)
        if mine.start == mine.stop:  # an objective knows the widths of what it makes of a row, not of none
            return self.batch(step).micro(0, 0)
        keys, rows = hashing.keys(self.seed, "objective", samples[mine]), rows[mine]
        if self.features is not None:
            read = self.source.read(self.features.examples[rows], length)
            return self.objective(replace(read, starts=self.features.starts[rows], width=length), keys)
        for number in range(self.objective.others):
            words = hashing.bits(hashing.branch(keys, f"other {number}"), 1)[:, 0]
            others = words % np.uint64(self.source.windows(length) or ENDLESS)
            rows = np.concatenate([rows, others.astype(np.int64)])
        read = self.source.read(rows, length, documents=self.documents == "mask")
        batch: Batch = self.objective(read, keys)
        if read.domains is None:
            return batch
        # Further rows that the batch was made of follow after its own.
        return replace(batch, domains=batch.tokens.new_tensor(read.domains[: batch.rows]))

    def passes(self, step: int) -> float:
        """The number of passes over the data before `step`."""
        return self.plan.passes(step)


def training(
    source: Source, objective: Any, size: BatchSize, seed: int, documents: Literal["join", "mask"] = "join"
) -> Batches:
    """The batches of a training run: windows, or buckets of as many tokens where the source holds pairs."""
    count, features = _rows(source, objective)
    if objective.takes == "windows":
        refuse(
            size.tokens is not None,
            "windows are all of one length",
            "give the number of windows",
            key="train.batch",
            value={"tokens": size.tokens},
        )
        return Batches(source, objective, Windows(count, objective.reads, size, seed), seed, documents)
    refuse(len(size.sizes) > 1, f"{objective.takes} come in batches of one size", "give one number", key="train.batch")
    if features is not None and size.tokens is None:
        plan = ByLength(features.lengths, objective.reads, size, seed)
    else:
        lengths = np.minimum(source.lengths.max(axis=1), objective.reads) if features is None else features.lengths  # type: ignore[union-attr]
        plan = Buckets(lengths, objective.reads, size.tokens or size.size(0) * objective.reads, seed)
    return Batches(source, objective, plan, seed, documents, features)


def evaluation(
    source: Source, objective: Any, size: int, rows: int | None = None, documents: Literal["join", "mask"] = "join"
) -> tuple[Batches, int]:
    """One pass, or `rows` rows of it, and how many batches they make: the same for every run, so it takes no seed."""
    count, features = _rows(source, objective)
    is_endless, fix = rows is None and count is None, "set the number of windows to take"
    refuse(is_endless, "the data have no end", fix, key="evaluate.windows")
    limit = min(number for number in (rows, count) if number is not None)
    each = BatchSize.of(size)
    if features is None:
        plan = Windows(count, objective.reads, each, seed=0, limit=limit)
    else:
        plan = ByLength(features.lengths, objective.reads, each, seed=0, limit=limit)
    return Batches(source, objective, plan, 0, documents, features), -(-limit // size)


def check_takes(objective: type, gives: Takes, takes: Takes | None = None) -> None:
    """Refuse data that an objective does not learn from; what it takes is by default that of its class, if any."""
    takes = takes or getattr(objective, "takes", None)
    fixes = {"windows": "choose Causal or another objective of one text", "pairs": "choose Sequence"}
    what, fix = f"it learns from {takes}, and the data are {gives}", fixes.get(gives, "choose Answer")
    refuse(takes not in (None, gives), what, fix, key="objective.kind", value=objective.__name__)


def _rows(source: Source, objective: Any) -> tuple[int | None, Features | None]:
    """The number of rows that the objective reads of a source, at least one; for examples also their features."""
    check_takes(type(objective), source.gives, objective.takes)
    if source.gives == "examples":
        features: Features = objective.features(source)
        return len(features.lengths), features
    count = source.windows(objective.reads)
    tokens = "" if source.tokens is None else f" of {source.tokens:,} tokens"
    what = f"the data{tokens} are shorter than one window of {objective.reads}"
    refuse(count == 0, what, "take a smaller size.length or more data", key="data")
    return count, None


Item = TypeVar("Item")
Made = TypeVar("Made")

SHARE = 0.1  # of the time of a step: below it, two threads that take turns lose more than is gained
FADE = 0.8  # decay of the averaged fraction: a run's first steps are slow


def ahead(make: Callable[[Item], Made], items: Iterable[Item]) -> Generator[Made, None, None]:
    """`make(item)` for each item in order; where making takes long, two are made before they are asked for.

    An error of `make` is raised where its item would have come.
    """
    left = iter(items)
    making = step_seconds = 0.0
    for item in left:
        started = time.perf_counter()
        result = make(item)
        making = FADE * making + time.perf_counter() - started
        yield result
        step_seconds = FADE * step_seconds + time.perf_counter() - started
        if making > SHARE * step_seconds:
            break
    yield from in_threads(make, left, threads=1, depth=3)


def in_threads(make: Callable[[Item], Made], items: Iterable[Item], threads: int, depth: int) -> Iterator[Made]:
    """`make(item)` for each item in order, `depth` of them under way at a time."""
    pool, left = ThreadPoolExecutor(threads, thread_name_prefix="batches"), iter(items)
    try:
        waiting = deque(pool.submit(make, item) for item in islice(left, depth))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(pool.submit(make, item) for item in islice(left, 1))
    finally:
        pool.shutdown(cancel_futures=True)


# --- a row of a batch spelled out for a person ---

_ENOUGH = 192  # tokens of a row that are shown
_HIDDEN = {"filling": "", "silent": " · "}  # kinds whose tokens are not spelled out


def describe_row(
    batch: Batch, row: int, source: Any, vocabulary: Vocabulary, family: str
) -> dict[str, list[dict[str, str]]]:
    """The runs of a row's `source` (where it has one), `reads` and `predicts`, as a model of the family meets it.

    A run is the `text` of neighbouring tokens of one `kind`:

    text, other    what is read, documents in turn      prefix   what is read and sees all of itself
    kept, changed  chosen to be predicted, as it was    target   what must be predicted
                   or disguised                         silent   what bears no loss
    special        <eos>, <mask>, <sentinel_0> …        filling  what is not there
    """
    specials = {index: f"<{name}>" for name, index in vocabulary.specials.items()}

    def spelled(kind: str, ids: list[int]) -> str:
        if kind in _HIDDEN:
            return _HIDDEN[kind]
        return "".join(specials[token] for token in ids) if kind == "special" else source.decode(np.array(ids))

    def runs(ids: np.ndarray, kinds: np.ndarray) -> list[dict[str, str]]:
        is_special = np.isin(ids, [*specials]) & ~np.isin(kinds, [*_HIDDEN])
        marked = zip(np.where(is_special, "special", kinds)[:_ENOUGH].tolist(), ids.tolist())
        groups = [(kind, [token for _, token in group]) for kind, group in groupby(marked, key=itemgetter(0))]
        described = [{"kind": kind, "text": spelled(kind, tokens)} for kind, tokens in groups]
        return described + [{"kind": "silent", "text": "…"}] * (len(ids) > _ENOUGH)

    def numbered(ids: np.ndarray, documents: Tensor | None) -> np.ndarray:
        numbers = np.ones(len(ids), int) if documents is None else documents[row].numpy()
        return np.where(numbers == 0, "filling", np.where(numbers % 2, "text", "other"))

    tokens, targets = batch.tokens[row].numpy(), batch.targets[row].numpy()
    kinds, bears = numbered(tokens, batch.documents), targets != IGNORE
    if batch.prefix is not None:
        kinds[: int(batch.prefix[row])] = "prefix"
    if family == "encoder":  # tokens are predicted in their own places
        kinds[bears] = np.where(tokens == targets, "kept", "changed")[bears]
    lines = {"reads": runs(tokens, kinds)}
    if batch.source is not None:
        question = batch.source[row].numpy()
        lines = {"source": runs(question, numbered(question, batch.source_documents)), **lines}
    if batch.examples is not None and source.gives == "examples":
        task, example = source.task, source.examples[int(batch.examples[row])]
        text = example.target or str(task.named(example.answer))
        lines["answer"] = [{"kind": "target", "text": text}]
    if batch.labels is None or bears.any():
        lines["predicts"] = runs(targets, np.where(bears, "target", "silent"))
    return lines
