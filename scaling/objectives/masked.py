"""Objectives that hide tokens: in their places or as spans behind sentinels, and T5's other ways to corrupt a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from torch import Tensor

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import refuse
from scaling.base.numbers import Fraction, OpenFraction, Range, SmallInt
from scaling.data import hashing
from scaling.data.source import Rows, Vocabulary
from scaling.data.task.example import OUTSIDE
from scaling.objectives.causal import Family, Objective, Text, fitting, maybe, pack, tensor, text_to_text


class Masked(Objective):
    """−Σ_{t ∈ M} ln p(x_t | x̃) over a fraction `rate` M of the tokens, of which x̃ shows `masked` as [MASK], `random` as
    a random token, the rest as they are. (Devlin et al. 2018)

    Exactly round(rate · tokens) are chosen; with `unit: word`, as many whole words as fit into that number. The masks
    are new in each pass (Liu et al. 2019, RoBERTa's dynamic masking).
    """

    families = separates = ("encoder",)
    frame = 2  # specials around the text

    def __init__(
        self,
        vocabulary: Vocabulary,
        length: int,
        family: Family,
        *,
        rate: OpenFraction = 0.15,
        masked: Fraction = 0.8,
        random: Fraction = 0.1,
        unit: Literal["token", "word"] = "token",
    ):
        super().__init__(vocabulary, length, family, length - self.frame, "cls", "sep", "mask")
        self.rate, self.unit, self.disguise = rate, unit, Disguise(self.vocabulary, masked, random)
        what, has_words = "the data do not mark where words begin", vocabulary.words is not None
        refuse(unit == "word" and not has_words, what, "set unit: token", key="unit", value=unit)

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        frame = np.array([self.vocabulary["cls"], self.vocabulary["sep"]])
        tokens = np.insert(rows.tokens.astype(np.int64), [0, rows.tokens.shape[1]], frame, axis=1)
        documents = None if rows.documents is None else np.pad(rows.documents, ((0, 0), (1, 1)), mode="edge")
        tree = None if rows.tree is None else np.insert(rows.tree, [0, rows.tree.shape[1]], OUTSIDE, axis=1)
        return Batch(*self.hide(tokens, keys), documents=maybe(documents), tree=maybe(tree))

    def hide(self, tokens: np.ndarray, keys: np.ndarray) -> tuple[Tensor, Tensor]:
        """[n t] twice: what the model sees, and the targets. Only text is chosen, at least one token a row."""
        chosen, starts = self.choose(tokens, keys)
        return tensor(self.disguise(tokens, chosen, starts, keys)), tensor(np.where(chosen, tokens, IGNORE))

    def choose(self, tokens: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[n t] bool twice: the tokens that are hidden, and where a disguise is drawn."""
        vocabulary = self.vocabulary
        text = vocabulary.is_text[tokens]
        words = distinct(hashing.bits(keys, tokens.shape[1]))
        if self.unit == "word":
            assert vocabulary.words is not None
            begins = np.ones(vocabulary.size, bool)
            begins[: vocabulary.stored] = vocabulary.words
            begins[list(vocabulary.specials.values())] = True
            # A special before a word's tail ends that word, so what follows it begins one too.
            starts = begins[tokens]
            starts[:, 1:] |= ~text[:, :-1]
            words = alike(words, starts)
        counts = np.maximum(1, np.rint(self.rate * text.sum(axis=1)).astype(np.int64))
        chosen = choose(words, counts, among=text)
        return chosen, chosen


class Spans(Masked):
    """Masked by contiguous spans whose lengths ℓ are geometric, P(ℓ) ∝ (1 − p)^(ℓ−1) up to `longest`, a span in one
    disguise. (Joshi et al. 2019, SpanBERT)

    No two spans touch and none touches the frame, so that there is a token on either side of each for the boundary
    objective: a run of targets is a span, and its neighbours are its boundary. The paper lets spans touch.
    """

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
        super().__init__(vocabulary, length, family, rate=rate, masked=masked, random=random)
        self.hidden = max(1, round(rate * self.reads))
        what = "spans that do not touch cannot hide so much"
        refuse(self.hidden > self.reads // 2, what, "take at most .5", key="rate", value=rate)
        self.law = np.cumsum((1 - p) ** np.arange(longest))

    def choose(self, tokens: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chosen = np.zeros(tokens.shape, bool)
        chosen[:, 1:-1] = self.chosen(keys, tokens.shape[1] - 2)
        chosen &= self.vocabulary.is_text[tokens]
        return chosen, first_of_runs(chosen)

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
        places = choose(distinct(hashing.bits(hashing.branch(keys, "place"), gaps)), counts)
        starts = np.zeros_like(lengths)
        starts[lengths > 0] = np.nonzero(places)[1]
        return runs(starts + before, lengths, width)


FOLLOWS, RANDOM = 0, 1  # the labels of sentences


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
        what = "two sentences must see one another"
        refuse(rows.documents is not None, what, "join documents", key="objective.kind", value="NextSentence")
        first_sentence, other = rows.tokens[: len(keys)].astype(np.int64), rows.tokens[len(keys) :]
        width = first_sentence.shape[1]
        random = hashing.bits(hashing.branch(keys, "sentences"), 2)
        split = 1 + hashing.below(random[:, 0], width - 1).astype(np.int64)[:, None]  # tokens of A
        labels = hashing.below(random[:, 1], 2).astype(np.int64)  # FOLLOWS or RANDOM
        both = np.where((np.arange(width) >= split) & (labels == RANDOM)[:, None], other, first_sentence)
        place, sep = np.arange(width + 3), self.vocabulary["sep"]
        line = np.pad(both, ((0, 0), (1, 2)), constant_values=sep)  # A in its place, B one token early
        line[:, 0] = self.vocabulary["cls"]
        behind = np.pad(both, ((0, 0), (2, 1)), constant_values=sep)  # B in its place
        line = np.where(place <= split, line, np.where(place == split + 1, sep, behind))
        segments = tensor(place > split + 1)
        return Batch(*self.hide(line, keys), segments=segments, labels=tensor(labels))


class Disguise:
    """The appearance of a chosen token: [MASK] by `masked`, another by `random`, else itself; drawn once a start."""

    def __init__(self, vocabulary: Vocabulary, masked: float, random: float):
        what = "masked and random are fractions of one whole"
        refuse(min(masked, random) < 0 or masked + random > 1, what, "take .8 and .1", key="masked", value=masked)
        self.vocabulary, self.masked, self.random = vocabulary, masked, random

    def __call__(self, tokens: np.ndarray, chosen: np.ndarray, starts: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """A copy of the tokens with the chosen ones disguised, all from one of `starts` to the next alike."""
        rows, places = np.nonzero(chosen)
        words = hashing.bits_at(hashing.branch(keys, "disguise")[rows], places)
        if starts is not chosen:
            words = alike(words[None], starts[rows, places][None])[0]
        fate = (words >> np.uint64(11)) * 2.0**-53
        hidden = tokens.copy()
        mask = fate < self.masked
        hidden[rows[mask], places[mask]] = self.vocabulary["mask"]
        swap = ~mask & (fate < self.masked + self.random)
        rows, places = rows[swap], places[swap]
        random = hashing.bits_at(hashing.branch(keys, "random")[rows], places)
        text = self.vocabulary.text
        hidden[rows, places] = text[hashing.below(random, len(text)).astype(np.int64)]
        return hidden


class _Denoising(Objective):
    """Source: the text with a fraction `rate` of its tokens corrupted; target: the text, or what the source lacks."""

    def __init__(self, vocabulary: Vocabulary, length: int, family: Family, *, rate: OpenFraction = 0.15):
        self.rate = rate
        reads = fitting(length, family, self.widths)
        super().__init__(vocabulary, length, family, reads, "bos", "eos", "pad", *self.marks(reads))

    def marks(self, reads: int) -> Sequence[str]:
        """The special tokens that stand for what is corrupted in `reads` tokens."""
        return ["mask"]

    def widths(self, count: int) -> tuple[int, int]:
        """The lengths of source and target that `count` tokens make, `eos` counted."""
        return count + 1, count + 1

    def corrupted(self, count: int) -> int:
        """The number of corrupted tokens out of `count`."""
        return min(max(1, round(self.rate * count)), count - 1)

    def chosen(self, keys: np.ndarray, count: int) -> np.ndarray:
        """[n count] bool: the corrupted tokens."""
        return choose(distinct(hashing.bits(keys, count)), self.corrupted(count))

    def denoised(self, tokens: np.ndarray, keys: np.ndarray) -> tuple[Text, Text]:
        """Source and target without `eos`."""
        raise NotImplementedError

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        source, target = self.denoised(rows.tokens.astype(np.int64), keys)
        eos = self.vocabulary["eos"]
        return text_to_text(source.ended(eos), target.ended(eos), self.vocabulary, self.family)


class SpanCorruption(_Denoising):
    """Each hidden run becomes one sentinel in the source; the target is the sentinels, each followed by its run.

    Of n tokens round(rate · n) are hidden, in round(hidden / mean) spans (`noise: spans`) or one by one (`noise:
    tokens`, neighbours sharing a sentinel). n is the largest that fills the source without filling: a length of 512
    reads 568 tokens and gives 114 targets. (Raffel et al. 2019, sections 3.1.4, 3.3.2 and 3.3.4)
    """

    writes_sentinels = True

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
        self.mean, self.noise = mean, noise
        super().__init__(vocabulary, length, family, rate=rate)
        self.sentinels = np.array([self.vocabulary[name] for name in self.marks(self.reads)])

    def runs(self, count: int) -> int:
        """The largest number of runs of hidden tokens out of `count`."""
        hidden = self.corrupted(count)
        if self.noise == "tokens":
            return min(hidden, count - hidden + 1)
        return min(max(1, round(hidden / self.mean)), hidden, count - hidden)

    def marks(self, reads: int) -> Sequence[str]:
        return [f"sentinel_{number}" for number in range(self.runs(reads))]

    def widths(self, count: int) -> tuple[int, int]:
        hidden, spans = self.corrupted(count), self.runs(count)
        return count - hidden + spans + 1, hidden + spans + 1

    def chosen(self, keys: np.ndarray, count: int) -> np.ndarray:
        """[n count] bool: the hidden tokens. Spans and the gaps before them are cut at random."""
        if self.noise == "tokens":
            return super().chosen(keys, count)
        hidden, spans = self.corrupted(count), self.runs(count)
        span_ends = ends_of_parts(hashing.bits(hashing.branch(keys, "spans"), hidden - 1), spans)
        gap_ends = ends_of_parts(hashing.bits(hashing.branch(keys, "gaps"), count - hidden - 1), spans)
        lengths = np.diff(span_ends, axis=1, prepend=0)
        return runs(gap_ends + span_ends - lengths, lengths, count)

    def denoised(self, tokens: np.ndarray, keys: np.ndarray) -> tuple[Text, Text]:
        rows, count = tokens.shape
        hidden = self.chosen(keys, count)
        first = first_of_runs(hidden)
        marked = np.where(first, self.sentinels[np.cumsum(first, axis=1) - 1], tokens)
        # A run's sentinel comes before its first token: two columns per token, of which the first is mostly dropped.
        both, keep = np.stack([marked, tokens], axis=2), np.stack([first, hidden], axis=2)
        sides = [(marked, ~hidden | first), (both.reshape(rows, -1), keep.reshape(rows, -1))]
        source, target = (
            Text(values[kept].reshape(rows, -1))  # every row keeps the same number
            if self.noise == "spans"
            else pack(values, kept, width - 1, self.vocabulary["pad"])
            for (values, kept), width in zip(sides, self.widths(count))
        )
        return source, target


class BertStyle(_Denoising):
    """Source: 15% of tokens as BERT disguises them, 90% as [MASK] and 10% at random; target: the text. (Raffel et al.
    2019, "BERT-style")
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        length: int,
        family: Family,
        *,
        masked: Fraction = 0.9,
        random: Fraction = 0.1,
        **keys: Any,
    ):
        super().__init__(vocabulary, length, family, **keys)
        self.disguise = Disguise(self.vocabulary, masked, random)

    def denoised(self, tokens: np.ndarray, keys: np.ndarray) -> tuple[Text, Text]:
        chosen = self.chosen(keys, tokens.shape[1])
        return Text(self.disguise(tokens, chosen, chosen, keys)), Text(tokens)


class MassStyle(_Denoising):
    """Source: 15% of tokens as [MASK]; target: the text. (Song et al. 2019, as Raffel et al. 2019 simplify it)"""

    def denoised(self, tokens: np.ndarray, keys: np.ndarray) -> tuple[Text, Text]:
        return Text(np.where(self.chosen(keys, tokens.shape[1]), self.vocabulary["mask"], tokens)), Text(tokens)


class DropTokens(_Denoising):
    """Source: the text without 15% of its tokens; target: those tokens. (Raffel et al. 2019, "drop tokens")"""

    def widths(self, count: int) -> tuple[int, int]:
        return count - self.corrupted(count) + 1, self.corrupted(count) + 1

    def denoised(self, tokens: np.ndarray, keys: np.ndarray) -> tuple[Text, Text]:
        dropped = self.chosen(keys, tokens.shape[1])
        source, target = (Text(tokens[kept].reshape(len(tokens), -1)) for kept in (~dropped, dropped))
        return source, target


class Deshuffle(_Denoising):
    """Source: the tokens in a random order; target: the text. (Liu et al. 2019; Raffel et al. 2019, "deshuffling")"""

    def __init__(self, vocabulary: Vocabulary, length: int, family: Family):
        super().__init__(vocabulary, length, family)

    def denoised(self, tokens: np.ndarray, keys: np.ndarray) -> tuple[Text, Text]:
        order = np.argsort(distinct(hashing.bits(keys, tokens.shape[1])), axis=1)
        return Text(np.take_along_axis(tokens, order, axis=1)), Text(tokens)


# Choosing positions: an exact number of them in each row, single or in runs, from hashed words

_NEVER = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


def distinct(words: np.ndarray) -> np.ndarray:
    """[n t]: the words with their positions in the low bits (16, or more of a longer row), so that their order has no
    ties; overwrites them.
    """
    words &= np.uint64((1 << 64) - (1 << max(16, (words.shape[1] - 1).bit_length())))
    words |= np.arange(words.shape[1], dtype=np.uint64)
    return words


def choose(words: np.ndarray, counts: np.ndarray | int, among: np.ndarray | None = None) -> np.ndarray:
    """[n t] bool: `counts` positions of each row, all sets of so many `among` the allowed being equally likely.

    Positions with equal words (of one word of text, say) come together or not at all, and never more than `counts`.
    """
    if among is not None:
        words = np.where(among, words, _NEVER)
    width = words.shape[1]
    ordered = np.sort(words, axis=1)
    counts = np.broadcast_to(counts, len(words))
    chosen = words < np.take_along_axis(ordered, np.minimum(counts, width - 1)[:, None], axis=1)
    chosen[counts >= width] = True
    return chosen


def alike(words: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """[n t]: each position with the word of the last start at or before it; the first position is one."""
    places = np.where(starts, np.arange(words.shape[1]), 0)
    return np.take_along_axis(words, np.maximum.accumulate(places, axis=1), axis=1)


def runs(starts: np.ndarray, lengths: np.ndarray, width: int) -> np.ndarray:
    """[n width] bool: True on the runs; `starts` and `lengths` [n k], runs of length 0 are none, and no two touch."""
    edges = np.zeros((len(starts), width + 1), np.int8)
    row, run = np.nonzero(lengths)
    first = starts[row, run]
    edges[row, first] = 1
    edges[row, first + lengths[row, run]] = -1
    return np.cumsum(edges[:, :width], axis=1, dtype=np.int8).view(bool)


def first_of_runs(chosen: np.ndarray) -> np.ndarray:
    """[n t] bool: where a run of chosen positions begins."""
    first = chosen.copy()
    first[:, 1:] &= ~chosen[:, :-1]
    return first


def ends_of_parts(words: np.ndarray, parts: int) -> np.ndarray:
    """[n parts]: where parts end that cut width + 1 things, none of them empty, all ways being equally likely."""
    rows, width = words.shape
    if parts == 1:
        return np.full((rows, 1), width + 1)
    cuts = np.nonzero(choose(distinct(words), parts - 1))[1].reshape(rows, parts - 1) + 1
    return np.concatenate([cuts, np.full((rows, 1), width + 1)], axis=1)
