from __future__ import annotations

from dataclasses import replace

import numpy as np

from scaling.batch import Batch
from scaling.data import hashing
from scaling.data.batches import Takes
from scaling.data.source import Rows, Vocabulary
from scaling.objective.causal import next_tokens
from scaling.objective.layout import Text, pack, tensor, text_to_text
from scaling.objective.objective import EVERY_TEXT_TO_TEXT, Family, meet


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
