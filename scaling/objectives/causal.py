"""Objectives that read forwards: each token from those before it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scaling.base.batch import IGNORE, Batch
from scaling.data import hashing
from scaling.data.source import Rows, Takes, Vocabulary
from scaling.objectives.objective import Family, Objective, Text, pack, tensor, text_to_text


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
    """−Σ_{t > p} ln p(x_t | x_{<t}) with p uniform: a prefix that sees itself whole, and what follows it.

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
        split = 1 + hashing.below(hashing.bits(keys, 1)[:, 0], width - 1).astype(np.int64)
        after = np.arange(width) >= split[:, None]
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
