"""ListOps: nested lists of digits and their values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Annotated

import numpy as np

from scaling.base.errors import refuse
from scaling.base.numbers import Range, Seed
from scaling.data import hashing
from scaling.data.synthetic.tasks import Count, Drawn, SyntheticTask

DIGITS = 10
OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
WORDS = (*map(str, range(DIGITS)), *OPERATORS, "]")
END = len(WORDS) - 1
OPERATOR_CHANCE = 0.25
TOGETHER = 8192  # trees that are drawn at once, or fewer of long texts, whose
TOKENS = 1 << 24  # tokens are no more
PATIENCE = 100 * TOGETHER  # draws without a new text of the lengths


@dataclass(frozen=True, kw_only=True)
class ListOps(SyntheticTask):
    """The value of nested lists of digits under minimum, maximum, median and sum modulo 10: ten classes. (Nangia and
    Bowman 2018; Tay et al. 2020, Long Range Arena, section 2.2.1)

    An argument is with probability 1/4 an operator of 2 to `arguments` arguments, above `depth`, and else a digit. As
    in the benchmark's generator texts of more than `shortest` and less than `longest` tokens are kept, each once; a
    median is rounded down, and no token groups arguments. The draws are our own.
    """

    examples: Count = 96_000
    held_out: Count = 2000
    shortest: Annotated[int, Range(least=1, most=1 << 16)] = 500
    longest: Annotated[int, Range(least=3, most=1 << 16)] = 2000
    depth: Annotated[int, Range(least=2, most=16)] = 10
    arguments: Annotated[int, Range(least=2, most=64)] = 10
    seed: Seed = 3401

    def __post_init__(self) -> None:
        refuse(
            self.longest <= self.shortest + 1,
            f"no text has more than {self.shortest} and less than {self.longest} tokens",
            f"take {self.shortest + 2} or more",
            key="longest",
            value=self.longest,
        )

    vocabulary = len(WORDS)
    labels = WORDS[:DIGITS]

    def spell(self, tokens: np.ndarray) -> list[str]:
        return [WORDS[token] for token in tokens]

    def generate(self, split: str) -> Drawn:
        """The validation and test texts are drawn first, so that more training texts do not change them."""
        before = {"validation": 0, "test": self.held_out, "train": 2 * self.held_out}[split]
        count = self.examples if split == "train" else self.held_out
        texts, values = _texts(self)
        chunk = texts[before : before + count]
        ends = np.concatenate([[0], np.cumsum([len(text) for text in chunk])])
        return Drawn(np.concatenate(chunk), ends, values[before : before + count])


@lru_cache(maxsize=2)
def _texts(task: ListOps) -> tuple[list[np.ndarray], np.ndarray]:
    """Different texts of the three splits, and their values."""
    texts: dict[bytes, int] = {}
    start, idle, needed = 0, 0, task.examples + 2 * task.held_out
    together = min(TOGETHER, TOKENS // task.longest)
    while len(texts) < needed:
        before = len(texts)
        for text, value in _batch(task, np.arange(start, start + together)):
            texts.setdefault(text.tobytes(), value)
        start, idle = start + together, 0 if len(texts) > before else idle + together
        refuse(
            idle >= PATIENCE,
            f"{PATIENCE:,} draws gave no more texts of these lengths than {len(texts):,} of {needed:,}",
            "allow other lengths, more depth or more arguments, or take fewer examples",
            key="examples",
            value=task.examples,
        )
    return [np.frombuffer(text, np.uint8) for text in texts], np.array([*texts.values()])


@dataclass
class _Level:
    """The nodes of one depth of many trees, siblings side by side."""

    operator: np.ndarray  # −1: a digit
    value: np.ndarray
    counts: np.ndarray  # of its operators: the number of arguments …
    first: np.ndarray  # … and where they begin in the next level
    length: np.ndarray


def _batch(task: ListOps, numbers: np.ndarray) -> list[tuple[np.ndarray, int]]:
    """The texts among these trees that have the length, and their values."""
    levels, lengths = _drawn(task, numbers)
    _evaluate(levels)
    root, fitting = levels[0], (lengths > task.shortest) & (lengths < task.longest)
    ends = np.cumsum(root.length)
    place, tokens = ends - root.length, np.empty(ends[-1], np.uint8)
    for level, below in zip(levels, [*levels[1:], None], strict=True):
        is_operator = level.operator >= 0
        tokens[place] = np.where(is_operator, DIGITS + level.operator, level.value)
        tokens[(place + level.length - 1)[is_operator]] = END
        if below is None:
            break
        before = np.cumsum(below.length) - below.length
        offset = before - np.repeat(before[level.first], level.counts)  # of the arguments before it
        place = np.repeat(place[is_operator], level.counts) + 1 + offset
    texts = zip(np.split(tokens, ends[:-1]), root.value.tolist(), fitting.tolist(), strict=True)
    return [(text, value) for text, value, fits in texts if fits]


def _drawn(task: ListOps, numbers: np.ndarray) -> tuple[list[_Level], np.ndarray]:
    """The nodes from the roots on, and the tokens of each tree, which grows no further where it is too long.

    A node's key is a function of its parent's and of its place among the arguments.
    """
    keys, levels = hashing.keys(task.seed, "ListOps", numbers), []
    trees, lengths = np.arange(len(numbers)), np.ones(len(numbers), np.int64)  # the tree of each node
    while len(keys):
        draws = hashing.bits(keys, 4)
        is_operator = (draws[:, 0] < np.uint64(OPERATOR_CHANCE * 2**64)) & (len(levels) + 1 < task.depth)
        counts = 2 + hashing.below(draws[:, 3], task.arguments - 1).astype(np.int64)
        np.add.at(lengths, trees[is_operator], 1 + counts[is_operator])
        is_operator &= lengths[trees] < task.longest
        counts = counts[is_operator]
        operator = np.where(is_operator, hashing.below(draws[:, 1], len(OPERATORS)).astype(np.int64), -1)
        value = hashing.below(draws[:, 2], DIGITS).astype(np.int64)
        first = np.cumsum(counts) - counts
        levels.append(_Level(operator, value, counts, first, np.ones(len(keys), np.int64)))
        place = np.arange(counts.sum()) - np.repeat(first, counts)
        keys = hashing.bits_at(np.repeat(hashing.branch(keys[is_operator], "arguments"), counts), place)
        trees = np.repeat(trees[is_operator], counts)
    return levels, lengths


def _evaluate(levels: list[_Level]) -> None:
    """Lengths and values of operators, from the deepest ones up."""
    for level, below in reversed(list(pairwise(levels))):
        which = level.operator >= 0
        level.length[which] = 2 + np.add.reduceat(below.length, level.first)
        counts, first = level.counts, level.first
        in_order = below.value[np.lexsort((below.value, np.repeat(np.arange(len(counts)), counts)))]
        middle = in_order[first + (counts - 1) // 2] + in_order[first + counts // 2]
        sums = np.add.reduceat(below.value, first)
        results = (in_order[first], in_order[first + counts - 1], middle // 2, sums % DIGITS)
        level.value[which] = np.choose(level.operator[which], results)
