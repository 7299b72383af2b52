from __future__ import annotations

import numpy as np

from scaling.batch import IGNORE, Batch
from scaling.data.batches import Takes
from scaling.data.source import Rows, Vocabulary
from scaling.objective.layout import tensor
from scaling.objective.objective import Family, meet


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
