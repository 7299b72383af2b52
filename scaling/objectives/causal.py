"""The contract of objectives, the layouts of source and target, and the objectives that read forwards: each token from
those before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import refuse
from scaling.data import hashing
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
        refuse_short(reads < 2, length)
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


def refuse_short(is_short: bool, length: int) -> None:
    refuse(is_short, f"a length of {length} is too short for it", "take a larger size.length")


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
        tokens = np.pad(self.tokens, ((0, 0), (0, 1)), mode="edge")  # filling, unless the row is full
        tokens[np.arange(len(tokens)), self.ends] = eos
        return Text(tokens, None if self.counts is None else self.counts + 1)


def pack(values: np.ndarray, keep: np.ndarray, width: int, fill: int) -> Text:
    """The kept entries of each row, moved to the left of `width` columns."""
    counts = keep.sum(axis=1)
    packed = np.full((len(values), width), fill, values.dtype)
    packed[np.arange(width) < counts[:, None]] = values[keep]
    return Text(packed, counts)


def text_to_text(source: Text, target: Text, vocabulary: Vocabulary, family: Family, width: int | None = None) -> Batch:
    """Source to target for an encoder-decoder, or one after the other, the source as the prefix, for a decoder, whose
    rows are `width` tokens wide where no row needs the room of both sides.

    Either reads `bos` before the first target token. (Vaswani et al. 2017; Raffel et al. 2019, section 3.2)
    """
    if family == "decoder":
        return _joined(source, target, vocabulary, width)
    return Batch(
        tokens=tensor(np.pad(target.tokens[:, :-1], ((0, 0), (1, 0)), constant_values=vocabulary["bos"])),
        targets=tensor(np.where(target.inside, target.tokens, IGNORE)),
        documents=target.documents,
        source=tensor(source.tokens),
        source_documents=source.documents,
        truth=maybe(target.truth),
    )


def _joined(source: Text, target: Text, vocabulary: Vocabulary, width: int | None) -> Batch:
    is_full = source.counts is None and target.counts is None
    bos = np.full((len(source.tokens), 1), vocabulary["bos"])
    keep = np.concatenate([source.inside, np.ones_like(bos, bool), target.inside], axis=1)

    def line(values: list[np.ndarray], fill: int) -> Text:
        joined = np.concatenate(values, axis=1)
        return Text(joined) if is_full else pack(joined, keep, width + 1 if width else keep.shape[1], fill)

    text, truth = line([source.tokens, bos, target.tokens], vocabulary["pad"]), None
    if target.truth is not None:
        before = np.zeros((len(bos), source.tokens.shape[1] + 1), np.float32)
        truth = tensor(line([before, target.truth], 0).tokens[:, 1:])
    place = np.arange(1, text.tokens.shape[1])
    bears = (place > source.ends[:, None]) & (place < text.ends[:, None])
    return Batch(
        tokens=tensor(text.tokens[:, :-1]),
        targets=tensor(np.where(bears, text.tokens[:, 1:], IGNORE)),
        documents=None if is_full else tensor(text.inside[:, :-1]),
        prefix=tensor(source.ends + 1),
        truth=truth,
    )


# --- objectives ---


class Causal(Objective):
    """−Σ ln p(x_t | x_{<t}): every token from those before it. (Radford et al. 2018)

    A window holds one token more than the model's length; a token whose predecessors lie in another document bears no
    loss where documents are masked.
    """

    families = separates = ("decoder",)
    is_code = True

    def __init__(self, vocabulary: Vocabulary, length: int, family: Family):
        super().__init__(vocabulary, length, family, length + 1)

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        return next_tokens(rows)


def next_tokens(rows: Rows, bears: np.ndarray | None = None) -> Batch:
    """Each token as the input, the next as its target, where it `bears` [n t] a loss."""
    documents = rows.documents
    if documents is not None:
        same = (documents[:, 1:] == documents[:, :-1]) & (documents[:, 1:] > 0)
        bears = same if bears is None else bears & same
    targets = rows.tokens[:, 1:].astype(np.int64)
    return Batch(
        tokens=tensor(rows.tokens[:, :-1]),
        targets=tensor(targets if bears is None else np.where(bears, targets, IGNORE)),
        documents=None if documents is None else tensor(documents[:, :-1]),
        truth=None if rows.truth is None else tensor(rows.truth[:, 1:]),
    )


class Prefix(Objective):
    """−Σ_{t > p} ln p(x_t | x_{<t}) with p uniform: a prefix that sees itself whole, and what follows it. Where
    documents are masked, each document of a row has a prefix of this length.

    A decoder takes it as one line, an encoder-decoder with the prefix as the source. (Liu et al. 2018; Raffel et al.
    2019, section 3.2.1)
    """

    separates = ("decoder",)
    is_code = True

    def __init__(self, vocabulary: Vocabulary, length: int, family: Family):
        specials = () if family == "decoder" else ("bos", "pad")
        super().__init__(vocabulary, length, family, length + (family == "decoder"), *specials)

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        width = rows.tokens.shape[1]
        places = np.arange(width)[None]
        if rows.documents is not None:  # each document of a row begins with a prefix of its length
            begins = np.diff(rows.documents, axis=1, prepend=0) != 0
            places = places - np.maximum.accumulate(np.where(begins, places, 0), axis=1)
        last = np.maximum(places.max(1), 1)
        split = 1 + hashing.below(hashing.bits(keys, 1)[:, 0], last).astype(np.int64)
        after = places >= split[:, None]
        if self.family == "decoder":
            return replace(next_tokens(rows, bears=after[:, 1:]), prefix=tensor(split))
        tokens, fill = rows.tokens.astype(np.int64), self.vocabulary["pad"]
        source, target = pack(tokens, ~after, width, fill), pack(tokens, after, width, fill)
        if rows.truth is not None:
            target = replace(target, truth=pack(rows.truth, after, width, 0).tokens)
        return text_to_text(source, target, self.vocabulary, self.family)


class BothWays(Objective):
    """−Σ ln p(x_t | x_{<t}) − Σ ln p(x_t | x_{>t}): every token from those before it, and from those after it, by the
    two directions of a BiLM. (Peters et al. 2018)

    A window holds two tokens more than the model's length: the one before the first and the one behind the last.
    """

    families = separates = ("decoder",)
    is_code = True  # of the forward direction, which is evaluated
    previous = True

    def __init__(self, vocabulary: Vocabulary, length: int, family: Family):
        super().__init__(vocabulary, length, family, length + 2)

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        previous = rows.tokens[:, :-2].astype(np.int64)
        if rows.documents is not None:
            previous[rows.documents[:, :-2] != rows.documents[:, 1:-1]] = IGNORE
        documents, truth = (None if part is None else part[:, 1:] for part in (rows.documents, rows.truth))
        batch = next_tokens(Rows(rows.tokens[:, 1:], documents, truth=truth))
        return replace(batch, labels=tensor(previous))


class Sequence(Objective):
    """−Σ ln p(y_t | y_{<t}, x): pairs, as in translation and summarization. (Sutskever et al. 2014; Vaswani et al.
    2017)

    A decoder reads source and target as one line, with half its length for each.
    """

    takes: Takes = "pairs"

    def __init__(self, vocabulary: Vocabulary, length: int, family: Family):
        reads = length // 2 if family == "decoder" else length
        super().__init__(vocabulary, length, family, reads, "bos", "eos", "pad")

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        assert rows.source is not None
        assert rows.source_documents is not None
        assert rows.documents is not None
        source = Text(rows.source.astype(np.int64), (rows.source_documents > 0).sum(axis=1))
        target = Text(rows.tokens.astype(np.int64), (rows.documents > 0).sum(axis=1), rows.truth)
        return text_to_text(source, target, self.vocabulary, self.family)
