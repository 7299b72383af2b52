"""Examples of a task: as text, as tokens, and on the line that a head reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from scaling.base.errors import ScalingError, plural, refuse


@dataclass(frozen=True)
class Example:
    """`texts` are the text, or a pair; the text and each of its options; or the words that are tagged.

    `answer` is what a metric takes: the id of a class, those of several, a number, the number of an option (or the
    texts of those that are right), a tag for each word, or the texts that are right. None: it is not known. `span` is
    where the first of these texts is in the second text, in characters.
    """

    texts: tuple[str, ...]
    answer: Any = None
    right: int | None = None  # the number of the option that is right, where `answer` lists texts
    span: tuple[int, int] | None = None
    group: str | None = None
    unit: str | None = None  # what it has in common with the examples that are held out with it
    heads: tuple[int, ...] | None = None  # of words that are tagged: the word that each depends on, from 1; 0: the root
    prompt: str = ""  # of a model that writes its answer, and what it has to write
    target: str | None = None


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


@dataclass
class Line:
    """One row: its tokens, the text (0 or 1) and the document of each, and the places that the head reads.

    `specials` come before, between and after texts: [CLS] a [SEP] b [SEP] of an encoder (Devlin et al. 2018), whose
    head reads the first token, or [START] a [DELIM] b [EXTRACT] of a decoder (Radford et al. 2018, figure 1), whose
    head reads the last.
    """

    specials: Sequence[int]
    is_decoder: bool
    tokens: list[int] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    documents: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    tree: np.ndarray | None = None  # [tokens 3], as `Batch.tree`

    def add(self, texts: Sequence[np.ndarray], document: int = 1) -> int:
        """Put a framed text or pair on the line; returns where the tokens of its last text begin."""
        first, between, last = self.specials
        begin = place = len(self.tokens)
        self.tokens.append(first)
        self.segments.append(0)
        for number, (text, end) in enumerate(zip(texts, (between, last)[-len(texts) :])):
            place = len(self.tokens)
            self.tokens += [*text.tolist(), end]
            self.segments += [number] * (len(text) + 1)
        self.documents += [document] * (len(self.tokens) - begin)
        self.reads.append(len(self.tokens) - 1 if self.is_decoder else begin)
        return place


def cut(texts: Sequence[np.ndarray], room: int) -> list[np.ndarray]:
    """One or two texts in `room` tokens: the longer one, of equals the second, loses its last. (Devlin et al. 2018)"""
    if len(texts) == 1:
        return [texts[0][:room]]
    first, second = map(len, texts)
    if first + second > room:
        first = min(first, max((room + 1) // 2, room - second))
        second = room - first
    return [texts[0][:first], texts[1][:second]]


# --- words of a text ---


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


# --- trees over the words of a text, as the head of each: from 1 in the order of the words, 0 the root's ---

OUTSIDE: tuple[int, int, int] = (0, 0, 2**31 - 1)  # the place of a token that is in no tree: above all others


def places(heads: Sequence[str | int]) -> list[tuple[int, int, int]]:
    """Each word's depth, its number when the tree is read from the root downwards, from 1, and the number behind its
    last descendant: word i is above j where first_i <= first_j < last_i. Heads that make no tree are refused.
    """
    above = [0]
    for head in map(str, heads):
        if not head.isdecimal() or int(head) > len(heads):
            what = f"the sentence has {plural(len(heads), 'word')}, and the head is none of them"
            raise ScalingError(what, key="heads", value=head, fix="write its number, or 0")
        above.append(int(head))
    paths: list[list[int]] = []  # from the root down to each word
    for word in range(1, len(above)):
        path = [word]
        while path[0]:
            path.insert(0, above[path[0]])
            refuse(len(path) > len(above), "the heads of the sentence form a circle", key="heads")
        paths.append(path)
    firsts = {path[-1]: number for number, path in enumerate(sorted(paths), 1)}
    sizes = Counter(word for path in paths for word in path)
    return [(len(path) - 1, firsts[path[-1]], firsts[path[-1]] + sizes[path[-1]]) for path in paths]
