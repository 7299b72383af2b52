"""Examples as tokens: flat arrays of a split, and each example of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scaling.batch import IGNORE
from scaling.data import tree
from scaling.data.codec import Codec
from scaling.data.task.example import Answer, Example

_BLOCK = 2048  # examples that are tokenized at once


@dataclass(frozen=True)
class Encoded:
    """One example: the tokens of each of its texts, and its label where it has one.

    Of tags, `label` has a class for each word and `pieces` [words 2] its first and last token, −1 where it has none. Of
    spans, `label` is the first and the last token in the second text, −1 where there is no answer, and `pieces` are the
    characters of each of its tokens. `tree` [words 3] are the places of words in their tree.
    """

    parts: tuple[np.ndarray, ...]
    label: Any
    prompt: np.ndarray
    target: np.ndarray
    pieces: np.ndarray | None = None
    tree: np.ndarray | None = None


@dataclass(frozen=True)
class Split:
    """The examples of a split end to end."""

    arrays: Mapping[str, np.ndarray]
    answer: Answer
    counts: np.ndarray = field(init=False)  # [n], parts of each example

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", np.diff(self.arrays["parts"]))

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, index: int) -> Encoded:
        first, last = self.arrays["parts"][index : index + 2]
        pieces = self._cut("pieces", index) if self.answer in ("tags", "span") else None
        label = self._cut("labels", index) if self.answer == "tags" else self.arrays["labels"][index]
        return Encoded(
            tuple(self._cut("tokens", part) for part in range(first, last)),
            label,
            self._cut("written", 2 * index),
            self._cut("written", 2 * index + 1),
            pieces,
            self._cut("tree", index) if "tree" in self.arrays else None,
        )

    def _cut(self, name: str, index: int) -> np.ndarray:
        ends = self.arrays[f"{name}_ends"]
        return self.arrays[name][ends[index] : ends[index + 1]]

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
        flat = iter(_tokenized(codec, [text for own in texts for text in own], answer in ("tags", "span")))
        rows["written"] += codec.encode([side for example in block for side in (example.prompt, example.target or "")])
        for example, own in zip(block, texts):
            sides = [next(flat) for _ in own]
            places = sides[-1][1]
            rows["tokens"] += [ids for ids, _ in sides]
            rows["labels"].append(_label(example, answer, names, places))
            parts.append(parts[-1] + len(own))
            if places is not None:
                rows["pieces"].append(words(example.texts, places) if answer == "tags" else places)
            if example.heads is not None:
                rows["tree"].append(tree.places(example.heads))
    arrays: dict[str, np.ndarray] = {"parts": np.array(parts, np.int64)}
    if answer != "tags":
        arrays["labels"] = np.array(rows.pop("labels"), np.float32 if answer == "number" else np.int32)
    shapes = {"labels": (np.int32, -1), "pieces": (np.int32, -1, 2), "tree": (np.int32, -1, 3)}
    for name, own in rows.items():  # end to end, and where each begins and ends
        dtype, *shape = shapes.get(name, (codec.dtype, -1))
        arrays[name] = np.concatenate([np.asarray(row, dtype).reshape(shape) for row in own])
        arrays[f"{name}_ends"] = np.cumsum([0, *map(len, own)], dtype=np.int64)
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
    for encoding in codec.tokenizer.encode_batch(list(texts), add_special_tokens=False):
        yield encoding.ids, np.array(encoding.offsets, np.int64).reshape(-1, 2)
