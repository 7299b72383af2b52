"""What every objective offers, and the checks that they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from scaling.batch import IGNORE, Batch
from scaling.data.source import Rows, Takes, Vocabulary
from scaling.errors import ScalingError

Family = Literal["encoder", "decoder", "encoder_decoder"]
EVERY_TEXT_TO_TEXT: tuple[Family, ...] = ("encoder_decoder", "decoder")


class Objective(Protocol):
    """Made by `Kind(vocabulary, length, family, *, keys of its line)`."""

    families: ClassVar[tuple[Family, ...]]  # the families that can take it
    separates: ClassVar[tuple[Family, ...]] = ()  # those for which it keeps the documents of a window apart
    is_code: ClassVar[bool] = False  # whether its losses are the code length of a text, token after token
    writes_sentinels: ClassVar[bool] = False  # whether sentinels stand between the text in its targets
    labels: ClassVar[str | None] = None  # the kind of answers that it makes for a head of labels, whatever the data
    previous: ClassVar[bool] = False  # whether its labels are the token before each, for a BiLM
    vocabulary: Vocabulary  # with the specials it adds: what the model's tables must hold
    reads: int  # tokens of a window of the source, so that the model's length is filled
    others: int  # further windows, drawn at random, that a sample takes
    takes: Takes  # what a row of the source must be

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        """The batch of these rows; `keys` [n] are all there is of chance. Rows of `others` follow the samples' own."""
        ...


def meet(objective: object, family: Family, families: tuple[Family, ...]) -> Family:
    """The family, if it can take the objective."""
    if family not in families:
        raise ScalingError(
            f"it trains models of the family {' or '.join(families)}, and this is of the family {family}",
            key="kind",
            value=type(objective).__name__,
            fix="choose another objective or another model",
        )
    return family


def fitting(length: int, family: Family, widths: Callable[[int], tuple[int, int]]) -> int:
    """The most tokens whose `widths`, of source and target, fit into `length`: each side, or a decoder's one line."""

    def fits(count: int) -> bool:
        sides = widths(count)
        return (sum(sides) if family == "decoder" else max(sides)) <= length

    # Hiding shortens a text by less than half, since what is hidden must fit as a target.
    for count in range(2 * length, 1, -1):
        if fits(count):
            return count
    raise too_short(length)


def room(length: int, frame: int) -> int:
    """What a frame of that many specials leaves of the model's length."""
    if length - frame < 2:
        raise too_short(length)
    return length - frame


def too_short(length: int) -> ScalingError:
    return ScalingError(f"a length of {length} is too short for it", fix="take a larger size.length")


def tensor(array: np.ndarray) -> Tensor:
    """Contiguous, int64 (or float32): what embeddings and losses take."""
    return torch.from_numpy(np.ascontiguousarray(array, np.float32 if array.dtype.kind == "f" else np.int64))


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


def pack(values: np.ndarray, keep: np.ndarray, width: int, fill: int) -> Text:
    """What is kept of each row, moved to the left of `width` columns."""
    counts = keep.sum(axis=1)
    packed = np.full((len(values), width), fill, values.dtype)
    packed[np.arange(width) < counts[:, None]] = values[keep]
    return Text(packed, counts)


def kept(values: np.ndarray, keep: np.ndarray) -> Text:
    """What is kept of each row, where that is the same number in every row."""
    return Text(values[keep].reshape(len(values), -1))


def ended(text: Text, eos: int) -> Text:
    """With `eos` after each row's text."""
    tokens = np.pad(text.tokens, ((0, 0), (0, 1)), constant_values=eos)
    if text.counts is None:
        return Text(tokens)
    tokens[:, -1] = text.tokens[:, -1]  # filling, unless the row is full
    tokens[np.arange(len(tokens)), text.counts] = eos
    return Text(tokens, text.counts + 1)


def text_to_text(source: Text, target: Text, vocabulary: Vocabulary, family: Family) -> Batch:
    """Source to target for an encoder-decoder, or one after the other, the source as the prefix, for a decoder.

    Either reads `bos` before the first target token. (Vaswani et al. 2017; Raffel et al. 2019, section 3.2)
    """
    if family == "decoder":
        return _joined(source, target, vocabulary)
    tokens = np.empty_like(target.tokens)
    tokens[:, 0] = vocabulary["bos"]
    tokens[:, 1:] = target.tokens[:, :-1]
    return Batch(
        tokens=tensor(tokens),
        targets=tensor(np.where(target.inside, target.tokens, IGNORE)),
        documents=target.documents,
        source=tensor(source.tokens),
        source_documents=source.documents,
        truth=None if target.truth is None else tensor(target.truth),
    )


def _joined(source: Text, target: Text, vocabulary: Vocabulary) -> Batch:
    rows = len(source.tokens)
    keep = np.concatenate([source.inside, np.ones((rows, 1), bool), target.inside], axis=1)
    bos = np.full((rows, 1), vocabulary["bos"])
    line = _packed(np.concatenate([source.tokens, bos, target.tokens], axis=1), keep, source, target, vocabulary["pad"])
    place = np.arange(1, keep.shape[1])
    bears = (place > source.ends[:, None]) & (place < line.ends[:, None])
    truth = None
    if target.truth is not None:
        before = np.zeros((rows, source.tokens.shape[1] + 1), np.float32)
        losses = np.concatenate([before, target.truth], axis=1)
        truth = tensor(_packed(losses, keep, source, target, 0).tokens[:, 1:])
    return Batch(
        tokens=tensor(line.tokens[:, :-1]),
        targets=tensor(np.where(bears, line.tokens[:, 1:], IGNORE)),
        documents=None if line.counts is None else tensor(line.inside[:, :-1]),
        prefix=tensor(source.ends + 1),
        truth=truth,
    )


def _packed(values: np.ndarray, keep: np.ndarray, source: Text, target: Text, fill: int) -> Text:
    whole = source.counts is None and target.counts is None
    return Text(values) if whole else pack(values, keep, values.shape[1], fill)
