"""Examples: a split of a task as a source of batches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from scaling.data.codec import Codec
from scaling.data.shards import TOKENIZER
from scaling.data.source import Rows, Source, spelled
from scaling.data.task.encoded import Encoded, Split
from scaling.data.task.example import Answer, Example
from scaling.metric.answers import SQuAD
from scaling.metric.metric import Metric


@dataclass(frozen=True)
class Goal:
    """What is predicted of each example, and how predictions are scored."""

    answer: Answer
    labels: tuple[str, ...]
    metric: Metric
    order: Literal["fixed", "either"] = "fixed"  # whether a pair means the same in both orders
    unanswerable: bool = False  # whether a span may be absent
    decode: Any = None  # the strategy by which a model writes its answer, as scaling.decode has them; None: greedily
    options: int = 0  # the most that an example has
    target: int = 0  # tokens of the longest target

    def of(self, *splits: Split) -> Goal:
        """The goal of a task with these splits, which state its `options` and `target`."""
        options = max(self.options, *(int(split.counts.max()) - 1 for split in splits))
        return replace(self, options=options, target=max(self.target, *(int(s.written[:, 1].max()) for s in splits)))

    @property
    def scores_texts(self) -> bool:
        """Whether the metric takes the text of an option and not its number."""
        return self.answer == "options" and isinstance(self.metric, SQuAD)

    def score(self, predictions: Sequence[Any], examples: Sequence[Example]) -> dict[str, float]:
        """The values of the metric by name, its main one first; a prediction of None is an invalid output."""
        groups = [example.group for example in examples]
        answers = [example.answer for example in examples]
        return self.metric.score(predictions, answers, None if None in groups else groups)


@dataclass(frozen=True)
class Examples(Source):
    """One split; `items` are its examples as tokens, `examples` as a metric and a person read them."""

    task: Goal
    split: str
    items: Split
    fingerprint: str
    vocabulary: int
    specials: Mapping[str, int]
    words: np.ndarray | None = None
    home: Path | None = None  # None where the examples are drawn …
    law: Any = None  # … by a synthetic task

    gives = "examples"

    @property
    def tokens(self) -> int:
        return int(self.items.arrays["tokens_ends"][-1])

    def windows(self, length: int) -> int:
        return len(self.items)

    def read(self, rows: np.ndarray, length: int, *, documents: bool = False) -> Rows:
        items: list[Encoded] = [self.items[int(row)] for row in rows]
        return Rows(np.zeros((len(rows), 0), np.int64), items=items, examples=rows, task=self.task)

    @cached_property
    def examples(self) -> Sequence[Example]:
        if self.home is None:
            return self.law.drawn(self.split)
        with (self.home / f"{self.split}.jsonl").open(encoding="utf-8") as lines:
            return list(map(loaded, lines))

    @cached_property
    def counts(self) -> np.ndarray:
        """[classes], how often each class is the label; of tags, for each word."""
        labels = self.items.arrays["labels"]
        if self.task.answer == "classes":
            return (labels == 1).sum(0)
        return np.bincount(labels[labels >= 0], minlength=len(self.task.labels))

    @cached_property
    def codec(self) -> Codec | None:
        return None if self.home is None else Codec.load(self.home / TOKENIZER)

    @property
    def tokenizer(self) -> str | None:
        """SHA-256 of the tokenizer's file."""
        return None if self.codec is None else self.codec.sha256

    def decode(self, tokens: np.ndarray) -> str:
        if self.codec is None:
            return spelled(tokens, self.specials)
        return self.codec.decode(tokens[tokens < self.vocabulary])


def dumped(example: Example) -> str:
    kept = {key: value for key, value in vars(example).items() if value is not None and key != "unit"}
    return json.dumps(kept, ensure_ascii=False)


def loaded(line: str) -> Example:
    entry = json.loads(line)
    tuples = {key: tuple(entry[key]) for key in ("texts", "span", "heads") if key in entry}
    return Example(**{**entry, **tuples})


def fingerprint(splits: Mapping[str, Split], goal: Goal, tokenizer: str) -> str:
    """Names the examples of a task, the meaning of its labels and the tokenizer, wherever the files are."""
    hashed = hashlib.sha256(json.dumps([goal.answer, goal.labels, goal.order, tokenizer]).encode())
    for name, split in sorted(splits.items()):
        hashed.update(name.encode())
        for key, array in sorted(split.arrays.items()):
            hashed.update(key.encode())
            hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()[:16]
