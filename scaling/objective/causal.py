"""Objectives that read forwards: each token from those before it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scaling.batch import IGNORE, Batch
from scaling.data import hashing
from scaling.data.source import Rows, Takes, Vocabulary
from scaling.objective.objective import EVERY_TEXT_TO_TEXT, Family, Text, meet, pack, tensor, text_to_text


class Causal:
    """−Σ ln p(x_t | x_{<t}): every token from those before it. (Radford et al. 2018)

    A window holds one token more than the model's length; a token whose predecessors lie in another document bears no
    loss where documents are masked.
    """

    families = separates = ("decoder",)
    is_code = True
    others = 0
    takes: Takes = "windows"

    def __init__(self, vocabulary: Vocabulary, length: int, family: Family):
        meet(self, family, self.families)
        self.vocabulary, self.reads = vocabulary, length + 1

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        return next_tokens(rows)


def next_tokens(rows: Rows, bears: np.ndarray | None = None) -> Batch:
    """Each token as the input, the next as its target, where it `bears` [n t] a loss."""
    documents = None
    if rows.documents is not None:
        documents = tensor(rows.documents[:, :-1])
        same = (rows.documents[:, 1:] == rows.documents[:, :-1]) & (rows.documents[:, 1:] > 0)
        bears = same if bears is None else bears & same
    targets = rows.tokens[:, 1:].astype(np.int64)
    if bears is not None:
        targets[~bears] = IGNORE
    return Batch(
        tokens=tensor(rows.tokens[:, :-1]),
        targets=tensor(targets),
        documents=documents,
        truth=None if rows.truth is None else tensor(rows.truth[:, 1:]),
    )


class Prefix:
    """−Σ_{t > p} ln p(x_t | x_{<t}) with p uniform: a prefix that sees itself whole, and what follows it.

    A decoder takes it as one line, an encoder-decoder with the prefix as the source. (Liu et al. 2018; Raffel et al.
    2019, section 3.2.1)
    """

    families, separates = EVERY_TEXT_TO_TEXT, ("decoder",)
    is_code = True
    others = 0
    takes: Takes = "windows"

    def __init__(self, vocabulary: Vocabulary, length: int, family: Family):
        self.family: Family = meet(self, family, self.families)
        self.reads = length + 1 if family == "decoder" else length
        self.vocabulary = vocabulary if family == "decoder" else vocabulary.extended(["bos", "pad"])

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        width = rows.tokens.shape[1]
        split = 1 + hashing.below(hashing.bits(keys, 1)[:, 0], width - 1).astype(np.int64)
        after = np.arange(width) >= split[:, None]
        if self.family == "decoder":
            return replace(next_tokens(rows, bears=after[:, 1:]), prefix=tensor(split))
        tokens, fill = rows.tokens.astype(np.int64), self.vocabulary["pad"]
        target = pack(tokens, after, width, fill)
        if rows.truth is not None:
            target = Text(target.tokens, target.counts, pack(rows.truth, after, width, 0).tokens)
        return text_to_text(pack(tokens, ~after, width, fill), target, self.vocabulary, self.family)


class BothWays:
    """−Σ ln p(x_t | x_{<t}) − Σ ln p(x_t | x_{>t}): every token from those before it, and from those after it, by the
    two directions of a BiLM. (Peters et al. 2018)

    A window holds two tokens more than the model's length: the one before the first and the one behind the last.
    """

    families = separates = ("decoder",)
    is_code = True  # of the forward direction, which is evaluated
    previous = True  # its labels are the token before each
    others = 0
    takes: Takes = "windows"

    def __init__(self, vocabulary: Vocabulary, length: int, family: Family):
        meet(self, family, self.families)
        self.vocabulary, self.reads = vocabulary, length + 2

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        previous = rows.tokens[:, :-2].astype(np.int64)
        if rows.documents is not None:
            previous[rows.documents[:, :-2] != rows.documents[:, 1:-1]] = IGNORE
        behind = (None if part is None else part[:, 1:] for part in (rows.documents, rows.truth))
        documents, truth = behind
        batch = next_tokens(Rows(rows.tokens[:, 1:], documents, truth=truth))
        return replace(batch, labels=tensor(previous))


class Sequence:
    """−Σ ln p(y_t | y_{<t}, x): pairs, as in translation and summarization. (Sutskever et al. 2014; Vaswani et al.
    2017)

    A decoder reads source and target as one line, with half its length for each.
    """

    families = EVERY_TEXT_TO_TEXT
    others = 0
    takes: Takes = "pairs"

    def __init__(self, vocabulary: Vocabulary, length: int, family: Family):
        self.family: Family = meet(self, family, self.families)
        self.vocabulary = vocabulary.extended(["bos", "eos", "pad"])
        self.reads = length // 2 if family == "decoder" else length

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        assert rows.source is not None
        assert rows.source_documents is not None
        assert rows.documents is not None
        source = Text(rows.source.astype(np.int64), (rows.source_documents > 0).sum(axis=1))
        target = Text(rows.tokens.astype(np.int64), (rows.documents > 0).sum(axis=1), rows.truth)
        return text_to_text(source, target, self.vocabulary, self.family)
