"""Examples: a split of a task as tokens, flat arrays, and as a source of batches."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
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
    rows, has_pieces = defaultdict[str, list[Any]](list), answer in ("tags", "span")
    for start in range(0, len(examples), _BLOCK):
        block = examples[start : start + _BLOCK]
        # Words are tokenized together, as in a text, and separated by their places in it.
        texts = [(" ".join(example.texts),) if answer == "tags" else example.texts for example in block]
        flat = [text for of_example in texts for text in of_example]
        encodings = codec.encodings(flat, places=True) if has_pieces else []
        rows["parts"] += map(len, texts)
        rows["tokens"] += [each.ids for each in encodings] if has_pieces else codec.encode(flat)
        rows["written"] += codec.encode([side for example in block for side in (example.prompt, example.target or "")])
        # The characters of each token of the last text, which has the answers.
        last = [
            np.array(each.offsets, np.int64).reshape(-1, 2) for each in encodings[len(texts[0]) - 1 :: len(texts[0])]
        ]
        rows["pieces"] += map(words, (example.texts for example in block), last) if answer == "tags" else last
        rows["labels"] += [_label(example, answer, names, pieces) for example, pieces in zip_longest(block, last)]
        rows["tree"] += [places(example.heads) for example in block if example.heads is not None]
    arrays: dict[str, np.ndarray] = {"parts": np.cumsum([0, *rows.pop("parts")], dtype=np.int64)}
    if answer != "tags":
        arrays["labels"] = np.array(rows.pop("labels"), np.float32 if answer == "number" else np.int32)
    shapes = {"labels": (np.int32, -1), "pieces": (np.int32, -1, 2), "tree": (np.int32, -1, 3)}
    for name, items in rows.items():  # end to end, and where each begins and ends
        if items:
            dtype, *shape = shapes.get(name, (codec.dtype, -1))
            arrays[name] = np.concatenate([np.asarray(row, dtype).reshape(shape) for row in items])
            arrays[f"{name}_ends"] = np.cumsum([0, *map(len, items)], dtype=np.int64)
    return Split(arrays)


def _label(example: Example, answer: Answer, names: Sequence[str], pieces: Any) -> Any:
    """What is learned of an example, IGNORE where it is not known; nothing but its target of a text."""
    right: Any = example.right if answer == "options" else example.answer
    match answer:
        case "text":
            return 0
        case "tags":
            return [IGNORE] * len(example.texts) if right is None else [names.index(tag) for tag in right]
        case "classes":
            return [IGNORE if right is None else int(number in right) for number in range(len(names))]
        case "span" if right is None:
            return [IGNORE, IGNORE]
        case "span":  # the first and the last token of its characters; −1 where there are none
            start, stop = example.span or (0, 0)
            inside = np.flatnonzero((pieces[:, 1] > start) & (pieces[:, 0] < stop))
            return [int(inside[0]), int(inside[-1])] if len(inside) else [-1, -1]
    return IGNORE if right is None else right


def characters(texts: Sequence[str]) -> np.ndarray:
    """[words 2]: where each word begins and ends in a text of them."""
    lengths = np.array([len(word) for word in texts])
    stops = np.cumsum(lengths + 1) - 1
    return np.stack([stops - lengths, stops], 1)


def words(texts: Sequence[str], pieces: np.ndarray) -> np.ndarray:
    """[words 2]: the first and the last token of each word of a text; a token that holds a space alone is of none."""
    starts, stops = characters(texts).T
    # A token may begin with the space before its word.
    number = np.searchsorted(stops, pieces[:, 1], side="left").clip(max=len(texts) - 1)
    inside = np.flatnonzero((pieces[:, 1] > starts[number]) & (pieces[:, 1] > pieces[:, 0]))
    spans = np.full((len(texts), 2), -1, np.int64)
    spans[number[inside[::-1]], 0] = inside[::-1]  # of several tokens the last one that is set stays
    spans[number[inside], 1] = inside
    return spans


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


@dataclass(frozen=True)
class Examples(Source):
    """One split; `items` are its examples as tokens, `examples` as a metric and a person read them."""

    task: Goal
    split: str
    items: Split
    fingerprint: str
    vocabulary: int
    specials: Mapping[str, int]
    load: Callable[[], Sequence[Example]]  # the examples, when they are first read
    folder: Path | None = None

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
        if self.folder is not None:
            check_files(self.folder, sealed(self.folder)["files"], trust=False)

    @cached_property
    def examples(self) -> Sequence[Example]:
        return self.load()

    @cached_property
    def label_counts(self) -> np.ndarray:
        """[classes], how often each class is the label; of tags, for each word."""
        labels = self.items.arrays["labels"]
        if self.task.answer == "classes":
            return (labels == 1).sum(0)
        return np.bincount(labels[labels >= 0], minlength=len(self.task.labels))

    @cached_property
    def codec(self) -> Codec | None:
        return None if self.folder is None else Codec.load(self.folder / TOKENIZER)


def dumped(example: Example) -> str:
    """The line of an example in a file that `loaded` reads."""
    fields = {key: value for key, value in vars(example).items() if value is not None and key != "unit"}
    return json.dumps(fields, ensure_ascii=False) + "\n"


def loaded(file: Path) -> list[Example]:
    with file.open(encoding="utf-8") as lines:
        entries = list(map(json.loads, lines))
    for entry in entries:
        entry |= {key: tuple(entry[key]) for key in ("texts", "span", "heads") if key in entry}
    return [Example(**entry) for entry in entries]


def fingerprint(splits: Mapping[str, Split], goal: Goal, tokenizer: str) -> str:
    """Names the examples of a task, the meaning of its labels and the tokenizer, wherever the files are."""
    hashed = hashlib.sha256(json.dumps([goal.answer, goal.labels, goal.order, tokenizer]).encode())
    for name, split in sorted(splits.items()):
        hashed.update(name.encode())
        for key, array in sorted(split.arrays.items()):
            hashed.update(key.encode())
            hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()[:16]
