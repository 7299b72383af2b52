from __future__ import annotations

from dataclasses import replace

import numpy as np

from scaling.batch import Batch
from scaling.data import hashing
from scaling.data.source import Rows
from scaling.errors import ScalingError
from scaling.objective.masked import Masked, cloze
from scaling.objective.objective import tensor

FOLLOWS, RANDOM = 0, 1


class NextSentence(Masked):
    """Masked, over [CLS] A [SEP] B [SEP], and whether B follows A or comes from a random window. (Devlin et al. 2018)

    A is a random part of a window and B the rest of it, or as much of the other's end; half the time each. Its
    absence is `Masked`.
    """

    separates = ()
    labels = "class"
    others = 1
    frame = 3

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        if rows.documents is not None:
            raise ScalingError(
                "two sentences must see one another", key="objective.kind", value="NextSentence", fix="join documents"
            )
        own, other = rows.tokens[: len(keys)], rows.tokens[len(keys) :]
        width = own.shape[1]
        drawn = hashing.bits(hashing.branch(keys, "sentences"), 2)
        split = 1 + hashing.below(drawn[:, 0], width - 1).astype(np.int64)[:, None]  # tokens of A
        labels = hashing.below(drawn[:, 1], 2).astype(np.int64)  # FOLLOWS or RANDOM
        place = np.arange(width)
        both = np.where((place >= split) & (labels == RANDOM)[:, None], other, own)

        line = np.full((len(keys), width + 3), self.vocabulary["sep"])
        line[:, 0] = self.vocabulary["cls"]
        in_a = np.arange(width + 3) <= split
        second = (np.arange(width + 3) > split + 1) & (np.arange(width + 3) < width + 2)
        line[:, 1:-2] = np.where(in_a[:, 1:-2], both, line[:, 1:-2])
        line[:, 2:-1] = np.where(second[:, 2:-1], both, line[:, 2:-1])
        hidden, targets = cloze(line, keys, self.rate, self.unit, self.disguise)
        batch = Batch(tensor(hidden), tensor(targets), segments=tensor(np.arange(width + 3) > split + 1))
        return replace(batch, labels=tensor(labels))
