from __future__ import annotations

from typing import Literal

import numpy as np

from scaling.batch import IGNORE, Batch
from scaling.data import hashing
from scaling.data.batches import Takes
from scaling.data.source import Rows, Vocabulary
from scaling.data.tree import OUTSIDE
from scaling.errors import ScalingError
from scaling.objective.choose import alike, choose, distinct
from scaling.objective.layout import tensor
from scaling.objective.objective import Family, meet, room
from scaling.schema import Fraction, OpenFraction

Unit = Literal["token", "word"]


class Masked:
    """−Σ_{t ∈ M} ln p(x_t | x̃) over a fraction `rate` M of the tokens, of which x̃ shows `masked` as [MASK], `random` as
    a random token, the rest as they are. (Devlin et al. 2018)

    Exactly round(rate · tokens) are chosen; with `unit: word`, as many whole words as fit into that number. The masks
    are new in each pass (Liu et al. 2019, RoBERTa's dynamic masking).
    """

    families = separates = ("encoder",)
    others = 0
    frame = 2  # specials around the text
    takes: Takes = "windows"

    def __init__(
        self,
        vocabulary: Vocabulary,
        length: int,
        family: Family,
        *,
        rate: OpenFraction = 0.15,
        masked: Fraction = 0.8,
        random: Fraction = 0.1,
        unit: Unit = "token",
    ):
        meet(self, family, self.families)
        self.vocabulary, self.reads = vocabulary.extended(["cls", "sep", "mask"]), room(length, self.frame)
        self.rate, self.disguise = rate, Disguise(self.vocabulary, masked, random)
        self.unit: Unit = unit
        if unit == "word" and vocabulary.words is None:
            raise ScalingError("the data do not mark where words begin", key="unit", value=unit, fix="set unit: token")

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        tokens = framed(rows.tokens, self.vocabulary)
        hidden, targets = cloze(tokens, keys, self.rate, self.unit, self.disguise)
        documents = None if rows.documents is None else np.pad(rows.documents, ((0, 0), (1, 1)), mode="edge")
        tree = None
        if rows.tree is not None:
            outside = np.broadcast_to(np.array(OUTSIDE, rows.tree.dtype), (len(rows), 1, 3))
            tree = tensor(np.concatenate([outside, rows.tree, outside], 1))
        return Batch(tensor(hidden), tensor(targets), None if documents is None else tensor(documents), tree=tree)


def framed(tokens: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """[n t + 2] int64: [CLS] tokens [SEP]."""
    line = np.empty((tokens.shape[0], tokens.shape[1] + 2), np.int64)
    line[:, 0], line[:, 1:-1], line[:, -1] = vocabulary["cls"], tokens, vocabulary["sep"]
    return line


def cloze(
    tokens: np.ndarray, keys: np.ndarray, rate: float, unit: Unit, disguise: Disguise
) -> tuple[np.ndarray, np.ndarray]:
    """[n t] twice: what the model sees, and the targets. Only text is chosen, at least one token a row."""
    vocabulary = disguise.vocabulary
    text = vocabulary.is_text[tokens]
    words = distinct(hashing.bits(keys, tokens.shape[1]))
    if unit == "word":
        assert vocabulary.words is not None
        begins = np.ones(vocabulary.size, bool)
        begins[: vocabulary.stored] = vocabulary.words
        begins[list(vocabulary.specials.values())] = True
        # A special before a word's tail ends that word, so what follows it begins one too.
        starts = begins[tokens]
        starts[:, 1:] |= ~text[:, :-1]
        words = alike(words, starts)
    counts = np.maximum(1, np.rint(rate * text.sum(axis=1)).astype(np.int64))
    chosen = choose(words, counts, among=text)
    return disguise(tokens, chosen, chosen, keys), np.where(chosen, tokens, IGNORE)


class Disguise:
    """What a chosen token looks like: [MASK] by `masked`, another by `random`, itself otherwise; drawn once a start."""

    def __init__(self, vocabulary: Vocabulary, masked: float, random: float):
        if min(masked, random) < 0 or masked + random > 1:
            raise ScalingError(
                "masked and random are fractions of one whole", key="masked", value=masked, fix="take .8 and .1"
            )
        self.vocabulary, self.masked, self.random = vocabulary, masked, random

    def __call__(self, tokens: np.ndarray, chosen: np.ndarray, starts: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """A copy of the tokens with the chosen ones disguised, all from one of `starts` to the next alike."""
        rows, places = np.nonzero(chosen)
        drawn = hashing.bits_at(hashing.branch(keys, "disguise")[rows], places)
        if starts is not chosen:
            first = starts[rows, places]
            drawn = drawn[np.maximum.accumulate(np.where(first, np.arange(len(first)), 0))]
        fate = (drawn >> np.uint64(11)) * 2.0**-53
        hidden = tokens.copy()
        mask = fate < self.masked
        hidden[rows[mask], places[mask]] = self.vocabulary["mask"]
        swap = ~mask & (fate < self.masked + self.random)
        rows, places = rows[swap], places[swap]
        drawn = hashing.bits_at(hashing.branch(keys, "random")[rows], places)
        text = self.vocabulary.text
        hidden[rows, places] = text[hashing.below(drawn, len(text)).astype(np.int64)]
        return hidden
