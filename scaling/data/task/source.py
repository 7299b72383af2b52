"""Examples: a split of a task as tokens, flat arrays, and as a source of batches."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from scaling.data.codec import Codec
from scaling.data.source import Rows, Source
from scaling.data.store import TOKENIZER, check_files, sealed
from scaling.data.task.answers import Goal
from scaling.data.task.example import Encoded, Example, Split, places, words

SPLITS = ("train", "validation", "test")
_BLOCK = 2048  # examples that are tokenized at once


def encoded(examples: Sequence[Example], goal: Goal, codec: Codec) -> Split:
    """The arrays of a split."""
    rows = defaultdict[str, list[Any]](list)
    for start in range(0, len(examples), _BLOCK):
        block = examples[start : start + _BLOCK]
        # Words are tokenized together, as in a text, and separated by their places in it.
        texts = [(" ".join(example.texts),) if goal.is_of_words else example.texts for example in block]
        flat = [text for of_example in texts for text in of_example]
        encodings = codec.encodings(flat, places=True) if goal.is_of_pieces else []
        rows["parts"] += map(len, texts)
        rows["tokens"] += [each.ids for each in encodings] if goal.is_of_pieces else codec.encode(flat)
        rows["written"] += codec.encode([side for example in block for side in (example.prompt, example.target or "")])
        # The characters of each token of the last text, which has the answers.
        last = [
            np.array(each.offsets, np.int64).reshape(-1, 2) for each in encodings[len(texts[0]) - 1 :: len(texts[0])]
        ]
        rows["pieces"] += map(words, (example.texts for example in block), last) if goal.is_of_words else last
        rows["labels"] += [goal.label(example, offsets) for example, offsets in zip_longest(block, last)]
        rows["tree"] += [places(example.heads) for example in block if example.heads is not None]
    arrays: dict[str, np.ndarray] = {"parts": np.cumsum([0, *rows.pop("parts")], dtype=np.int64)}
    if not goal.is_of_words:
        arrays["labels"] = np.array(rows.pop("labels"), np.int32 if goal.chances else np.float32)
    shapes = {"labels": (np.int32, -1), "pieces": (np.int32, -1, 2), "tree": (np.int32, -1, 3)}
    for name, items in rows.items():  # end to end, and where each begins and ends
        if items:
            dtype, *shape = shapes.get(name, (codec.dtype, -1))
            arrays[name] = np.concatenate([np.asarray(row, dtype).reshape(shape) for row in items])
            arrays[f"{name}_ends"] = np.cumsum([0, *map(len, items)], dtype=np.int64)
    return Split(arrays)


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
        if self.task.chances == "sigmoid":  # 0 or 1 for each
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
