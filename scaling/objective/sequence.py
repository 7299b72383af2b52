from __future__ import annotations

import numpy as np

from scaling.batch import Batch
from scaling.data.batches import Takes
from scaling.data.source import Rows, Vocabulary
from scaling.objective.layout import Text, text_to_text
from scaling.objective.objective import EVERY_TEXT_TO_TEXT, Family, meet


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
