"""Examples: a split of a task as tokens, flat arrays, and as a source of batches."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from scaling.base.batch import IGNORE
from scaling.data.codec import Codec
from scaling.data.source import Rows, Source
from scaling.data.store import TOKENIZER, check_files, sealed
from scaling.data.task.example import Answer, Example, places
from scaling.metrics.metric import Metric
from scaling.metrics.text import SQuAD

SPLITS = ("train", "validation", "test")
_BLOCK = 2048  # examples that are tokenized at once


class Encoded(NamedTuple):
    """One example: the tokens of each of its texts, and its label where it has one.

    Of tags, `label` has a class for each word and `pieces` [words 2] its first and last token, −1 where it has none. Of
    spans, `label` is the first and the last token in the second text, −1 where there is no answer, and `pieces` are the
    characters of each of its tokens. `tree` [words 3] are the places of words in their tree.
    """

    parts: tuple[np.ndarray, ...]
    label: Any
    prompt: np.ndarray
    target: np.ndarray
    pieces: Any
    tree: Any


@dataclass(frozen=True)
class Split:
    """The examples of a split end to end."""

    arrays: Mapping[str, np.ndarray]
    answer: Answer

    @cached_property
    def counts(self) -> np.ndarray:
        """[n], parts of each example."""
        return np.diff(self.arrays["parts"])

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, index: int) -> Encoded:
        first, last = self.arrays["parts"][index : index + 2]
        label = self._cut("labels", index)
        return Encoded(
            tuple(self._cut("tokens", part) for part in range(first, last)),
            self.arrays["labels"][index] if label is None else label,
            self._cut("written", 2 * index),
            self._cut("written", 2 * index + 1),
            self._cut("pieces", index),
            self._cut("tree", index),
        )

    def _cut(self, name: str, index: int) -> Any:
        """What belongs to one example, or to one of its texts; None where no such arrays are end to end."""
        ends = self.arrays.get(f"{name}_ends")
        return None if ends is None else self.arrays[name][ends[index] : ends[index + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """[parts], tokens of each part of each example."""
        return np.diff(self.arrays["tokens_ends"])

    @property
    def written(self) -> np.ndarray:
        """[n 2], tokens of each prompt and target."""
        return np.diff(self.arrays["written_ends"]).reshape(-1, 2)


def encoded(examples: Sequence[Example], answer: Answer, names: Sequence[str], codec: Codec) -> Split:
    """The arrays of a split."""
    rows: dict[str, list[Any]] = defaultdict(list)
    parts = [0]
    for start in range(0, len(examples), _BLOCK):
        block = examples[start : start + _BLOCK]
        # Words are tokenized together, as in a text, and separated by their places in it.
        texts = [(" ".join(example.texts),) if answer == "tags" else example.texts for example in block]
        flat = iter(_tokenized(codec, [text for items in texts for text in items], answer in ("tags", "span")))
        rows["written"] += codec.encode([side for example in block for side in (example.prompt, example.target or "")])
        for example, items in zip(block, texts):
            sides = [next(flat) for _ in items]
            characters = sides[-1][1]
            rows["tokens"] += [ids for ids, _ in sides]
            rows["labels"].append(_label(example, answer, names, characters))
            parts.append(parts[-1] + len(items))
            if characters is not None:
                rows["pieces"].append(words(example.texts, characters) if answer == "tags" else characters)
            if example.heads is not None:
                rows["tree"].append(places(example.heads))
    arrays: dict[str, np.ndarray] = {"parts": np.array(parts, np.int64)}
    if answer != "tags":
        arrays["labels"] = np.array(rows.pop("labels"), np.float32 if answer == "number" else np.int32)
    shapes = {"labels": (np.int32, -1), "pieces": (np.int32, -1, 2), "tree": (np.int32, -1, 3)}
    for name, items in rows.items():  # end to end, and where each begins and ends
        dtype, *shape = shapes.get(name, (codec.dtype, -1))
        arrays[name] = np.concatenate([np.asarray(row, dtype).reshape(shape) for row in items])
        arrays[f"{name}_ends"] = np.cumsum([0, *map(len, items)], dtype=np.int64)
    return Split(arrays, answer)


def _label(example: Example, answer: Answer, names: Sequence[str], pieces: Any) -> Any:
    """What is learned of an example, IGNORE where it is not known; nothing but its target of a text."""
    answers = example.answer
    match answer:
        case "text":
            return 0
        case "span" if answers is not None:  # the first and the last token of its characters; −1 where there are none
            start, stop = example.span or (0, 0)
            inside = np.flatnonzero((pieces[:, 1] > start) & (pieces[:, 0] < stop))
            return [int(inside[0]), int(inside[-1])] if len(inside) else [-1, -1]
        case "span":
            return [IGNORE, IGNORE]
        case "classes":
            return [IGNORE if answers is None else int(number in answers) for number in range(len(names))]
        case "tags":
            return [IGNORE] * len(example.texts) if answers is None else [names.index(tag) for tag in answers]
    return IGNORE if answers is None else example.right if answer == "options" else answers


def words(texts: Sequence[str], pieces: np.ndarray) -> np.ndarray:
    """[words 2]: the first and the last token of each word of a text; a token that holds a space alone is of none."""
    lengths = np.array([len(word) for word in texts])
    stops = np.cumsum(lengths + 1) - 1
    starts = stops - lengths
    spans = np.full((len(texts), 2), -1, np.int64)
    if len(pieces):
        # A token may begin with the space before its word.
        number = np.searchsorted(stops, pieces[:, 1], side="left").clip(max=len(texts) - 1)
        inside = np.flatnonzero((pieces[:, 1] > starts[number]) & (pieces[:, 1] > pieces[:, 0]))
        for token in inside[::-1]:
            spans[number[token], 0] = token
        spans[number[inside], 1] = inside
    return spans


def _tokenized(codec: Codec, texts: Sequence[str], places: bool) -> Iterator[tuple[Any, Any]]:
    """The ids of each text, and the characters [t 2] of each token where these are asked for."""
    if not places:
        yield from ((ids, None) for ids in codec.encode(texts))
        return
    for encoding in codec.encodings(texts, places=True):
        yield encoding.ids, np.array(encoding.offsets, np.int64).reshape(-1, 2)


@dataclass(frozen=True)
class Goal:
    """The prediction that is asked for each example, and its metric."""

    answer: Answer
    labels: tuple[str, ...]
    metric: Metric
    order: Literal["fixed", "either"] = "fixed"  # whether a pair means the same in both orders
    unanswerable: bool = False  # whether a span may be absent
    decode: Any = None  # the strategy by which a model writes its answer; None: greedily
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

    def verify(self) -> None:
        if self.home is not None:
            check_files(self.home, sealed(self.home)["files"], trust=False)

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


def dumped(example: Example) -> str:
    """The line of an example, which `loaded` reads."""
    fields = {key: value for key, value in vars(example).items() if value is not None and key != "unit"}
    return json.dumps(fields, ensure_ascii=False) + "\n"


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
