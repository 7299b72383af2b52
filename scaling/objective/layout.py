"""Laying texts out as a model reads them: shifted, framed, packed to the left, joined."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scaling.batch import IGNORE, Batch
from scaling.data.source import Vocabulary
from scaling.objective.objective import Family


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
