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
    """Rows of unequal length: the first `counts` tokens of each row are text, the rest is filling."""

    tokens: np.ndarray  # [n t] int64
    counts: np.ndarray  # [n]
    truth: np.ndarray | None = None  # [n t]

    @property
    def inside(self) -> np.ndarray:
        """[n t] bool."""
        return np.arange(self.tokens.shape[1]) < self.counts[:, None]

    @property
    def documents(self) -> Tensor | None:
        """One document a row and 0 for the filling; None where there is none."""
        return None if (self.counts == self.tokens.shape[1]).all() else torch.from_numpy(self.inside.astype(np.int64))


def whole(tokens: np.ndarray) -> Text:
    return Text(tokens, np.full(len(tokens), tokens.shape[1]))


def pack(values: np.ndarray, keep: np.ndarray, width: int, fill: int) -> Text:
    """What is kept of each row, moved to the left of `width` columns."""
    counts = keep.sum(axis=1)
    packed = np.full((len(values), width), fill, values.dtype)
    packed[np.arange(width) < counts[:, None]] = values[keep]
    return Text(packed, counts)


def ended(text: Text, eos: int) -> Text:
    """With `eos` after each row's text; the last column must be free."""
    tokens = text.tokens.copy()
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
    bos = np.full((rows, 1), vocabulary["bos"])
    keep = np.concatenate([source.inside, np.ones((rows, 1), bool), target.inside], axis=1)
    width = keep.shape[1]
    line = pack(np.concatenate([source.tokens, bos, target.tokens], axis=1), keep, width, vocabulary["pad"])
    place = np.arange(1, width)
    bears = (place > source.counts[:, None]) & (place < line.counts[:, None])
    truth = None
    if target.truth is not None:
        before = np.zeros((rows, source.tokens.shape[1] + 1), np.float32)
        truth = tensor(pack(np.concatenate([before, target.truth], axis=1), keep, width, 0).tokens[:, 1:])
    return Batch(
        tokens=tensor(line.tokens[:, :-1]),
        targets=tensor(np.where(bears, line.tokens[:, 1:], IGNORE)),
        documents=Text(line.tokens[:, :-1], np.minimum(line.counts, width - 1)).documents,
        prefix=tensor(source.counts + 1),
        truth=truth,
    )
