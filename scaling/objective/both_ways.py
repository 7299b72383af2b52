from __future__ import annotations

from dataclasses import replace

import numpy as np

from scaling.batch import IGNORE, Batch
from scaling.data.batches import Takes
from scaling.data.source import Rows, Vocabulary
from scaling.objective.causal import next_tokens
from scaling.objective.layout import tensor
from scaling.objective.objective import Family, meet


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
