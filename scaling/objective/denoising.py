"""The other denoising objectives of Raffel et al. 2019 (section 3.3, table 3), text to text as all of theirs are."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from scaling.batch import Batch
from scaling.data import hashing
from scaling.data.batches import Takes
from scaling.data.source import Rows, Vocabulary
from scaling.objective.choose import choose, distinct, shuffled
from scaling.objective.layout import Text, ended, text_to_text
from scaling.objective.masked import Disguise
from scaling.objective.objective import EVERY_TEXT_TO_TEXT, Family, fitting, meet
from scaling.schema import Fraction, OpenFraction


class _Denoising(ABC):
    families = EVERY_TEXT_TO_TEXT
    others = 0
    takes: Takes = "windows"

    def __init__(self, vocabulary: Vocabulary, length: int, family: Family):
        self.family: Family = meet(self, family, self.families)
        self.vocabulary = vocabulary.extended(["bos", "eos", "pad", "mask"])
        self.reads = fitting(length, family, self.widths)

    def widths(self, count: int) -> tuple[int, int]:
        """The lengths of source and target that `count` tokens make, `eos` counted."""
        return count + 1, count + 1

    @abstractmethod
    def denoised(self, tokens: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[n s] and [n t]: source and target without `eos`."""

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        eos = self.vocabulary["eos"]
        sides = self.denoised(rows.tokens.astype(np.int64), keys)
        source, target = (ended(Text(side), eos) for side in sides)
        return text_to_text(source, target, self.vocabulary, self.family)


class _Corrupting(_Denoising):
    """A fraction `rate` of the tokens is corrupted, chosen one by one."""

    def __init__(self, vocabulary: Vocabulary, length: int, family: Family, *, rate: OpenFraction = 0.15):
        self.rate = rate
        super().__init__(vocabulary, length, family)

    def corrupted(self, count: int) -> int:
        return min(max(1, round(self.rate * count)), count - 1)

    def chosen(self, keys: np.ndarray, count: int) -> np.ndarray:
        """[n count] bool."""
        return choose(distinct(hashing.bits(keys, count)), self.corrupted(count))


class BertStyle(_Corrupting):
    """Source: 15% of tokens as BERT disguises them, 90% as [MASK] and 10% at random; target: the text. (Raffel et al.
    2019, "BERT-style")
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        length: int,
        family: Family,
        *,
        rate: OpenFraction = 0.15,
        masked: Fraction = 0.9,
        random: Fraction = 0.1,
    ):
        super().__init__(vocabulary, length, family, rate=rate)
        self.disguise = Disguise(self.vocabulary, masked, random)

    def denoised(self, tokens: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chosen = self.chosen(keys, tokens.shape[1])
        return self.disguise(tokens, chosen, chosen, keys), tokens


class MassStyle(_Corrupting):
    """Source: 15% of tokens as [MASK]; target: the text. (Song et al. 2019, as Raffel et al. 2019 simplify it)"""

    def denoised(self, tokens: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.where(self.chosen(keys, tokens.shape[1]), self.vocabulary["mask"], tokens), tokens


class DropTokens(_Corrupting):
    """Source: the text without 15% of its tokens; target: those tokens. (Raffel et al. 2019, "drop tokens")"""

    def widths(self, count: int) -> tuple[int, int]:
        return count - self.corrupted(count) + 1, self.corrupted(count) + 1

    def denoised(self, tokens: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        dropped = self.chosen(keys, tokens.shape[1])
        rows = len(tokens)
        return tokens[~dropped].reshape(rows, -1), tokens[dropped].reshape(rows, -1)


class Deshuffle(_Denoising):
    """Source: the tokens in a random order; target: the text. (Liu et al. 2019; Raffel et al. 2019, "deshuffling")"""

    def denoised(self, tokens: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.take_along_axis(tokens, shuffled(hashing.bits(keys, tokens.shape[1])), axis=1), tokens
