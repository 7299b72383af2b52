from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from scaling.batch import Batch
from scaling.data import hashing
from scaling.data.batches import Takes
from scaling.data.source import Rows, Vocabulary
from scaling.objective.choose import choose, distinct, ends_of_parts, first_of_runs, runs
from scaling.objective.layout import Text, ended, kept, pack, text_to_text
from scaling.objective.objective import EVERY_TEXT_TO_TEXT, Family, fitting, meet
from scaling.schema import OpenFraction, Range


class SpanCorruption:
    """Each hidden run becomes one sentinel in the source; the target is the sentinels, each followed by its run.

    Of n tokens round(rate · n) are hidden, in round(hidden / mean) spans (`noise: spans`) or one by one (`noise:
    tokens`, neighbours sharing a sentinel). n is the largest that fills the source without filling: a length of 512
    reads 568 tokens and gives 114 targets. (Raffel et al. 2019, sections 3.1.4, 3.3.2 and 3.3.4)
    """

    families = EVERY_TEXT_TO_TEXT
    writes_sentinels = True
    others = 0
    takes: Takes = "windows"

    def __init__(
        self,
        vocabulary: Vocabulary,
        length: int,
        family: Family,
        *,
        rate: OpenFraction = 0.15,
        mean: Annotated[float, Range(least=1, most=10**6)] = 3.0,
        noise: Literal["spans", "tokens"] = "spans",
    ):
        self.family: Family = meet(self, family, self.families)
        self.rate, self.mean, self.noise = rate, mean, noise
        self.reads = fitting(length, family, self.widths)
        _, spans = self.hidden(self.reads)
        self.vocabulary = vocabulary.extended(["bos", "eos", "pad", *(f"sentinel_{i}" for i in range(spans))])
        self._sentinels = np.array([self.vocabulary[f"sentinel_{i}"] for i in range(spans)])

    def hidden(self, count: int) -> tuple[int, int]:
        """How many of `count` tokens are hidden, and in how many runs at most."""
        hidden = min(max(1, round(self.rate * count)), count - 1)
        if self.noise == "tokens":
            return hidden, min(hidden, count - hidden + 1)
        return hidden, min(max(1, round(hidden / self.mean)), hidden, count - hidden)

    def widths(self, count: int) -> tuple[int, int]:
        """The lengths of source and target that `count` tokens make, `eos` counted."""
        hidden, spans = self.hidden(count)
        return count - hidden + spans + 1, hidden + spans + 1

    def chosen(self, keys: np.ndarray, count: int) -> np.ndarray:
        """[n count] bool: the hidden tokens. Spans and the gaps before them are cut at random."""
        hidden, spans = self.hidden(count)
        if self.noise == "tokens":
            return choose(distinct(hashing.bits(keys, count)), hidden)
        span_ends = ends_of_parts(hashing.bits(hashing.branch(keys, "spans"), hidden - 1), spans)
        gap_ends = ends_of_parts(hashing.bits(hashing.branch(keys, "gaps"), count - hidden - 1), spans)
        lengths = np.diff(span_ends, axis=1, prepend=0)
        return runs(gap_ends + span_ends - lengths, lengths, count)

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        tokens = rows.tokens.astype(np.int64)
        count = tokens.shape[1]
        hidden = self.chosen(keys, count)
        source, target = self.corrupted(tokens, hidden)
        return text_to_text(source, target, self.vocabulary, self.family)

    def corrupted(self, tokens: np.ndarray, hidden: np.ndarray) -> tuple[Text, Text]:
        """Source and target when these tokens are hidden."""
        first = first_of_runs(hidden)
        runs_before = np.cumsum(first.sum(axis=1)) - first.sum(axis=1)
        row, place = np.nonzero(first)
        marked = tokens.copy()
        marked[row, place] = self._sentinels[np.arange(len(row)) - runs_before[row]]
        # A run's sentinel comes before its first token: two columns per token, of which the first is mostly dropped.
        both, keep = np.stack([marked, tokens], axis=2), np.stack([first, hidden], axis=2)
        both, keep = both.reshape(len(tokens), -1), keep.reshape(len(tokens), -1)
        if self.noise == "spans":
            sides = kept(marked, ~hidden | first), kept(both, keep)
        else:
            widths, fill = self.widths(tokens.shape[1]), self.vocabulary["pad"]
            sides = pack(marked, ~hidden | first, widths[0] - 1, fill), pack(both, keep, widths[1] - 1, fill)
        source, target = (ended(side, self.vocabulary["eos"]) for side in sides)
        return source, target
