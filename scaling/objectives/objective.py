"""The contract of objectives, and the layouts of source and target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import ScalingError, refuse
from scaling.data.source import Rows, Takes, Vocabulary

Family = Literal["encoder", "decoder", "encoder_decoder"]


class Objective:
    """From rows of a source and their keys, which are all there is of chance, to a batch.

    A kind is built as `Kind(vocabulary, length, family, *, keys of its line)`. `vocabulary` then has its specials, as
    the model's tables must; `reads` is the number of tokens of a window that fill the model's length.
    """

    families: ClassVar[tuple[Family, ...]] = ("encoder_decoder", "decoder")  # that can take it
    separates: ClassVar[tuple[Family, ...]] = ()  # the families for which it keeps the documents of a window apart
    is_code: ClassVar[bool] = False  # whether its losses are the code length of a text, token after token
    writes_sentinels: ClassVar[bool] = False  # whether sentinels stand between the text in its targets
    labels: ClassVar[str | None] = None  # the kind of answers that it makes for a head of labels, whatever the data
    previous: ClassVar[bool] = False  # whether its labels are the token before each, for a BiLM
    others: int = 0  # further windows, drawn at random, that a sample takes; they follow the samples' own
    takes: Takes = "windows"  # what a row of the source must be

    def __init__(self, vocabulary: Vocabulary, length: int, family: Family, reads: int, *specials: str):
        refuse(
            family not in self.families,
            f"it trains models of the family {' or '.join(self.families)}, and this is of the family {family}",
            "choose another objective or another model",
            key="kind",
            value=type(self).__name__,
        )
        if reads < 2:
            raise too_short(length)
        self.family: Family = family
        self.vocabulary, self.reads = vocabulary.extended(specials), reads

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        raise NotImplementedError


def fitting(length: int, family: Family, widths: Callable[[int], tuple[int, int]]) -> int:
    """The most tokens whose `widths`, of source and target, fit into `length`: each side, or a decoder's one line; 0
    where none do. Hiding shortens a text by less than half, since what is hidden must fit as a target.
    """
    total: Callable[[tuple[int, int]], int] = sum if family == "decoder" else max
    return next((count for count in range(2 * length, 1, -1) if total(widths(count)) <= length), 0)


def too_short(length: int) -> ScalingError:
    return ScalingError(f"a length of {length} is too short for it", fix="take a larger size.length")


def tensor(array: np.ndarray) -> Tensor:
    """Contiguous, int64 (or float32): what embeddings and losses take."""
    return torch.from_numpy(np.ascontiguousarray(array, np.float32 if array.dtype.kind == "f" else np.int64))


def maybe(array: np.ndarray | None) -> Tensor | None:
    return None if array is None else tensor(array)


@dataclass(frozen=True)
class Text:
    """Rows of unequal length: the first `counts` tokens of each are text, the rest is filling; None: no filling."""

    tokens: np.ndarray  # [n t] int64
    counts: np.ndarray | None = None  # [n]
    truth: np.ndarray | None = None  # [n t]

    @property
    def ends(self) -> np.ndarray:
        """[n]: where the filling of each row begins."""
        rows, width = self.tokens.shape
        return np.full(rows, width) if self.counts is None else self.counts

    @property
    def inside(self) -> np.ndarray:
        """[n t] bool."""
        return np.arange(self.tokens.shape[1]) < self.ends[:, None]

    @property
    def documents(self) -> Tensor | None:
        """[n t]: one document a row, and 0 for the filling."""
        return None if self.counts is None else tensor(self.inside)

    def ended(self, eos: int) -> Text:
        """With `eos` after each row's text."""
        tokens = np.pad(self.tokens, ((0, 0), (0, 1)), constant_values=eos)
        if self.counts is None:
            return Text(tokens)
        tokens[:, -1] = self.tokens[:, -1]  # filling, unless the row is full
        tokens[np.arange(len(tokens)), self.counts] = eos
        return Text(tokens, self.counts + 1)


def pack(values: np.ndarray, keep: np.ndarray, width: int, fill: int) -> Text:
    """The kept entries of each row, moved to the left of `width` columns."""
    counts = keep.sum(axis=1)
    packed = np.full((len(values), width), fill, values.dtype)
    packed[np.arange(width) < counts[:, None]] = values[keep]
    return Text(packed, counts)


def text_to_text(source: Text, target: Text, vocabulary: Vocabulary, family: Family) -> Batch:
    """Source to target for an encoder-decoder, or one after the other, the source as the prefix, for a decoder.

    Either reads `bos` before the first target token. (Vaswani et al. 2017; Raffel et al. 2019, section 3.2)
    """
    if family == "decoder":
        return _joined(source, target, vocabulary)
    return Batch(
        tokens=tensor(np.pad(target.tokens[:, :-1], ((0, 0), (1, 0)), constant_values=vocabulary["bos"])),
        targets=tensor(np.where(target.inside, target.tokens, IGNORE)),
        documents=target.documents,
        source=tensor(source.tokens),
        source_documents=source.documents,
        truth=maybe(target.truth),
    )


def _joined(source: Text, target: Text, vocabulary: Vocabulary) -> Batch:
    is_full = source.counts is None and target.counts is None
    bos = np.full((len(source.tokens), 1), vocabulary["bos"])
    keep = np.concatenate([source.inside, np.ones_like(bos, bool), target.inside], axis=1)

    def line(values: list[np.ndarray], fill: int) -> Text:
        joined = np.concatenate(values, axis=1)
        return Text(joined) if is_full else pack(joined, keep, keep.shape[1], fill)

    text, truth = line([source.tokens, bos, target.tokens], vocabulary["pad"]), None
    if target.truth is not None:
        before = np.zeros((len(bos), source.tokens.shape[1] + 1), np.float32)
        truth = tensor(line([before, target.truth], 0).tokens[:, 1:])
    place = np.arange(1, keep.shape[1])
    bears = (place > source.ends[:, None]) & (place < text.ends[:, None])
    return Batch(
        tokens=tensor(text.tokens[:, :-1]),
        targets=tensor(np.where(bears, text.tokens[:, 1:], IGNORE)),
        documents=None if is_full else tensor(text.inside[:, :-1]),
        prefix=tensor(source.ends + 1),
        truth=truth,
    )
