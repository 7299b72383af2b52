from __future__ import annotations

import numpy as np

from scaling.batch import IGNORE, Batch
from scaling.data import hashing
from scaling.data.batches import Takes
from scaling.data.source import Rows, Vocabulary
from scaling.errors import ScalingError
from scaling.objective.choose import choose, distinct, first_of_runs, runs
from scaling.objective.layout import tensor
from scaling.objective.masked import Disguise, framed
from scaling.objective.objective import Family, meet, room
from scaling.schema import Fraction, OpenFraction, SmallInt


class Spans:
    """Masked by contiguous spans whose lengths ℓ are geometric, P(ℓ) ∝ (1 − p)^(ℓ−1) up to `longest`, a span in one
    disguise. (Joshi et al. 2019, SpanBERT)

    No two spans touch and none touches the frame, so that there is a token on either side of each for the boundary
    objective: a run of targets is a span, and its neighbours are its boundary. The paper lets spans touch.
    """

    families = separates = ("encoder",)
    others = 0
    takes: Takes = "windows"

    def __init__(
        self,
        vocabulary: Vocabulary,
        length: int,
        family: Family,
        *,
        rate: OpenFraction = 0.15,
        p: OpenFraction = 0.2,
        longest: SmallInt = 10,
        masked: Fraction = 0.8,
        random: Fraction = 0.1,
    ):
        meet(self, family, self.families)
        self.vocabulary, self.reads = vocabulary.extended(["cls", "sep", "mask"]), room(length, frame=2)
        self.hidden = max(1, round(rate * self.reads))
        if self.hidden > self.reads // 2:
            raise ScalingError(
                "spans that do not touch cannot hide so much", key="rate", value=rate, fix="take at most .5"
            )
        self.law = np.cumsum((1 - p) ** np.arange(longest))
        self.disguise = Disguise(self.vocabulary, masked, random)

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        tokens = framed(rows.tokens, self.vocabulary)
        chosen = np.zeros(tokens.shape, bool)
        chosen[:, 1:-1] = self.chosen(keys, rows.tokens.shape[1])
        chosen &= self.vocabulary.is_text[tokens]
        hidden = self.disguise(tokens, chosen, first_of_runs(chosen), keys)
        documents = None if rows.documents is None else tensor(np.pad(rows.documents, ((0, 0), (1, 1)), mode="edge"))
        return Batch(tensor(hidden), tensor(np.where(chosen, tokens, IGNORE)), documents)

    def chosen(self, keys: np.ndarray, width: int) -> np.ndarray:
        """[n width] bool: spans drawn until they hold `hidden` tokens, the last cut short, in uniformly random places.

        Spans go into distinct gaps between the tokens that stay, so they cannot touch.
        """
        uniform = (hashing.bits(hashing.branch(keys, "length"), self.hidden) >> np.uint64(11)) * 2.0**-53
        lengths = 1 + np.searchsorted(self.law, uniform * self.law[-1], side="right")
        before = np.cumsum(lengths, axis=1) - lengths
        lengths = np.clip(self.hidden - before, 0, lengths)
        gaps = width - self.hidden + 1
        counts = (lengths > 0).sum(axis=1)
        taken = choose(distinct(hashing.bits(hashing.branch(keys, "place"), gaps)), counts)
        starts = np.zeros_like(lengths)
        starts[lengths > 0] = np.nonzero(taken)[1]
        return runs(starts + before, lengths, width)
