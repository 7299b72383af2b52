"""Synthetic: an endless language whose entropy is known exactly at every position, and its translation into a second
one (docs/synthetic.md).
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, fields
from decimal import Context, Decimal
from functools import cached_property, lru_cache
from itertools import accumulate
from math import log
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from scaling.base.errors import ScalingError, refuse
from scaling.base.numbers import Long, Range, Seed, SmallInt
from scaling.data import hashing
from scaling.data.source import Rows, Source

_DIGITS = Context(prec=50)


class Ranks:
    """Ranks 0 to `symbols` − 1, drawn by Zipf's law q(r) ∝ (r + 1)^−exponent (Zipf 1935).

    `entropy` is H(q) = −Σ q ln q in nats, `probabilities` [symbols] are q, and `losses` [symbols] −ln q in float32.
    """

    def __init__(self, symbols: int, exponent: float):
        slope = Decimal(repr(exponent))  # as it is written, not as binary rounds it: 1.6 is 16/10
        weights = [_DIGITS.exp(_DIGITS.multiply(-slope, _DIGITS.ln(Decimal(r + 1)))) for r in range(symbols)]
        total = sum(weights)
        law = [_DIGITS.divide(weight, total) for weight in weights]
        logarithms = [_DIGITS.ln(q) for q in law]
        self.entropy = float(-sum(map(_DIGITS.multiply, law, logarithms)))
        self.probabilities = np.array([float(q) for q in law])
        self.losses = np.array([float(-logarithm) for logarithm in logarithms], np.float32)
        bounds = accumulate(law[:-1], _DIGITS.add)
        words = (int(_DIGITS.multiply(bound, Decimal(1 << 64))) for bound in bounds)
        self._bounds = np.array([min(word, (1 << 64) - 1) for word in words], np.uint64)  # a sum may round to one

    def drawn(self, words: np.ndarray) -> np.ndarray:
        """The rank that each uniform 64-bit word means."""
        return np.searchsorted(self._bounds, words, side="right")


ranks_of = lru_cache(maxsize=64)(Ranks)  # its decimals are slow, and the runs of a study are of one language

_ONE = 1 << 16  # a standard deviation of `normals`; a weight is a multiple of 1 / _ONE too
_CHUNK = 1 << 20
_STEPS = 10_000  # of a language towards its stationary distribution


def normals(seed: int, stream: str, numbers: np.ndarray) -> np.ndarray:
    """int64 of the same shape: these numbers of a stream of normals with standard deviation 2¹⁶."""
    words = hashing.bits(hashing.keys(seed, stream, numbers.ravel()), 3)
    sums = words.view(np.uint16).sum(axis=1, dtype=np.int64) - 6 * (_ONE - 1)
    return sums.reshape(numbers.shape)


@lru_cache(maxsize=4)
def language(symbols: int, order: int, joint: float, seed: int) -> np.ndarray:
    """[symbols^order, symbols]: the symbol of each rank after each context, the last symbol varying fastest.

    The score of x after x₋ₖ … x₋₁ is −ln(x + 1) + Σⱼ Aⱼ[x₋ⱼ, x] + joint · Σⱼ Zⱼ[x₋ⱼ … x₋₁, x], j from 1 in the first
    sum and from 2 in the second, A and Z standard normal.
    """
    alphabet = np.arange(symbols)
    falling = np.array([-int(_ONE * _DIGITS.ln(Decimal(x + 1))) for x in range(symbols)], np.int64)
    weight = round(joint * _ONE)
    contexts = symbols**order
    successors = np.empty((contexts, symbols), np.uint16)
    step = max(1, _CHUNK // symbols)
    for start in range(0, contexts, step):
        context = np.arange(start, min(start + step, contexts))[:, None]
        score = falling * _ONE
        for lag in range(1, order + 1):
            alone, joined = context // symbols ** (lag - 1) % symbols, context % symbols**lag
            score = score + normals(seed, f"lag {lag}", alone * symbols + alphabet) * _ONE
            if lag > 1:
                score += normals(seed, f"joint {lag}", joined * symbols + alphabet) * weight
        successors[start : start + len(context)] = by_falling_score(score)
    return successors


@lru_cache(maxsize=4)
def translation(symbols: int, lexicon: float, seed: int) -> np.ndarray:
    """[symbols², symbols]: the target symbol of each rank after (target symbol before, source symbol).

    The score of y is lexicon · D[source, y] + A[before, y], both standard normal.
    """
    cells = np.arange(symbols**2)
    meaning = normals(seed, "lexicon", cells).reshape(1, symbols, symbols)
    before = normals(seed, "target lag 1", cells).reshape(symbols, 1, symbols)
    return by_falling_score((meaning * round(lexicon * _ONE) + before * _ONE).reshape(symbols**2, symbols))


def by_falling_score(score: np.ndarray) -> np.ndarray:
    """[contexts symbols] uint16: the symbols of each row, the highest score first; of equals the lower symbol."""
    symbols = score.shape[1]
    keyed = score * -symbols + np.arange(symbols)
    keyed.sort(axis=1)
    return (keyed % symbols).astype(np.uint16)


LARGEST = 1 << 26  # entries of the table of successors: 400 MB


@dataclass(frozen=True, kw_only=True)
class Law:
    """The probabilities by which a language, or a language and its translation, is drawn."""

    symbols: Annotated[int, Range(least=2, most=8192)] = 64
    order: Annotated[int, Range(least=1, most=25)] = 2
    exponent: Annotated[float, Range(least=0, most=64)] = 1.6
    joint: Annotated[float, Range(least=-1000, most=1000)] = 0.5
    seed: Seed = 3401  # of unigram and bigram entropies of 3.163 and 2.801 nats; over seeds 3.29 ± 0.10, 2.78 ± 0.06

    version = 1


@dataclass(frozen=True, kw_only=True)
class Synthetic(Law):
    """Rank through permutation: x_t = succ[x_{t−k} … x_{t−1}, r_t], ranks r_t drawn i.i.d. by q(r) ∝ (r + 1)^−exponent.

    Rank to symbol is one to one in every context, so each symbol's entropy is H(q) and its true loss −ln q(r_t). Which
    symbol a rank means depends on the context through parts of rising order, which models learn one by one.
    Without `tokens` the training split is endless.
    """

    tokens: Long | None = None  # of the training split; None: endless
    validation: Long = 1 << 18  # tokens of the other split

    def __post_init__(self) -> None:
        what, longest = f"{self.symbols} symbols have too large a table", int(log(LARGEST, self.symbols) + 1e-9) - 1
        fix = f"take an order from 1 to {longest}, or fewer symbols"
        refuse(self.order > longest, what, fix, key="order", value=self.order)

    @property
    def ranks(self) -> Ranks:
        return ranks_of(self.symbols, self.exponent)

    @property
    def entropy(self) -> float:
        """H(q) in nats per symbol: no model's expected loss is below it."""
        return self.ranks.entropy

    def successors(self) -> np.ndarray:
        """[symbols^order, symbols]: succ, contexts counted with their last symbol varying fastest."""
        return language(self.symbols, self.order, self.joint, self.seed)

    def contexts(self, symbols: np.ndarray) -> np.ndarray:
        """[n t + 1]: the row of `successors` before each of the symbols [n t], and behind the last."""
        before = sliding_window_view(np.pad(symbols, ((0, 0), (self.order, 0))), self.order, axis=1)
        return before @ self.symbols ** np.arange(self.order)[::-1]

    def conditional_entropies(self) -> list[float]:
        """H(x_t | the j symbols before it) for j from 0 to the order: what a model that sees so far back can reach."""
        contexts, table = self.symbols**self.order, self.successors().astype(np.int64)
        into = (np.arange(contexts)[:, None] % (contexts // self.symbols)) * self.symbols + table
        stationary = np.full(contexts, 1 / contexts)
        for _ in range(_STEPS):
            flow = stationary[:, None] * self.ranks.probabilities
            before, stationary = stationary, np.bincount(into.ravel(), flow.ravel(), contexts)
            if np.abs(stationary - before).sum() <= 1e-12:
                break
        else:
            what = f"its contexts are not in their stationary distribution after {_STEPS:,} steps"
            raise ScalingError(what, key="exponent", value=self.exponent, fix="take a smaller exponent")
        blocks = stationary.reshape((self.symbols,) * self.order)
        sums = (blocks.sum(axis=tuple(range(length, self.order))) for length in range(1, self.order + 1))
        joint = [0.0, *(float(-np.sum(p[p > 0] * np.log(p[p > 0]))) for p in sums)]
        return [*np.diff(joint).tolist(), self.entropy]

    def drawn(self, keys: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """[n count] symbols and their ranks, from keys; each row begins as if preceded by symbols 0."""
        ranks = self.ranks.drawn(hashing.bits(keys, count)).T.astype(np.int32, order="C")
        table = _offsets(self)
        # `offset` is the context times `symbols`: where the context's successors begin in the table.
        offsets = np.empty_like(ranks)
        offset = np.zeros(len(keys), np.int32)
        for rank, out in zip(ranks, offsets):
            offset = table.take(np.add(offset, rank), out=out, mode="clip")
        offsets //= self.symbols
        offsets %= self.symbols
        return offsets.T, ranks.T

    def open(self, split: str, folder: Path) -> Language:
        return Language(self, split)


@lru_cache(maxsize=4)
def _offsets(law: Synthetic) -> np.ndarray:
    """[symbols^(order + 1)] int32: from a context's offset plus a rank to the next context's offset."""
    contexts = law.symbols**law.order
    prefixes = np.arange(contexts, dtype=np.int64)[:, None] % (contexts // law.symbols) * law.symbols
    return ((prefixes + law.successors()) * law.symbols).astype(np.int32).ravel()


class Language(Source):
    """One split of a synthetic language as a source; each window is a document that begins with `bos`."""

    def __init__(self, law: Synthetic, split: str):
        self.law, self.split, self.fingerprint = law, split, fingerprint(law, split)
        self.vocabulary, self.specials, self.entropy = law.symbols + 1, {"bos": law.symbols}, law.entropy
        self.tokens = law.tokens if split == "train" else law.validation

    def drawn(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """[n count] the symbols behind `bos` of these windows, and their ranks."""
        return self.law.drawn(hashing.keys(self.law.seed, f"synthetic {self.split}", rows), count)

    def read(self, rows: np.ndarray, length: int, *, documents: bool = False) -> Rows:
        symbols, ranks = self.drawn(rows, length - 1)
        tokens = np.empty((len(rows), length), np.uint16)
        tokens[:, 0] = self.specials["bos"]
        tokens[:, 1:] = symbols
        truth = np.zeros((len(rows), length), np.float32)
        truth[:, 1:] = self.law.ranks.losses[ranks]
        return Rows(tokens, np.ones((len(rows), length), np.int64) if documents else None, truth)


@lru_cache
def fingerprint(law: Any, split: str) -> str:
    """Names a law by its parameters and version, and one of its splits."""
    description = f"{type(law).__name__} {law.version} {sorted(asdict(law).items())} {split}"
    return hashlib.blake2b(description.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, kw_only=True)
class SyntheticPairs(Law):
    """Sentences of `Synthetic` and their translations y_t = succ'[y_{t−1}, s_{π(t)}, r_t], q'(r) ∝ (r + 1)^−freedom.

    π turns around the words of each block of `block`, so that a model has to align; succ' orders symbols by a lexicon
    and by the symbol before. Rank 0 is the likeliest in every context, so the best translation is rank 0 throughout.
    """

    pairs: Annotated[int, Range(least=1, most=10**7)] = 1_000_000  # of the training split
    validation: Annotated[int, Range(least=1, most=10**7)] = 4096  # pairs of the other split
    shortest: SmallInt = 8
    longest: SmallInt = 31
    block: SmallInt = 4
    freedom: Annotated[float, Range(least=0, most=64)] = 3.0
    lexicon: Annotated[float, Range(least=-1000, most=1000)] = 2.0

    def __post_init__(self) -> None:
        what, fix = "no sentence is so short", f"take one from {self.shortest}, which is the shortest"
        refuse(self.longest < self.shortest, what, fix, key="longest", value=self.longest)
        _ = self.language  # its own keys are checked too

    @cached_property
    def language(self) -> Synthetic:
        """The law of the source sentences."""
        return Synthetic(**{key.name: getattr(self, key.name) for key in fields(Law)})

    @property
    def ranks(self) -> Ranks:
        """The law of the translation's ranks."""
        return ranks_of(self.symbols, self.freedom)

    def aligned(self, lengths: np.ndarray) -> np.ndarray:
        """[n longest]: π, the source word that each target word goes with; the last block of a row may be short."""
        places = np.arange(self.longest)
        start = places // self.block * self.block
        stop = np.minimum(start + self.block, lengths[:, None])
        return np.clip(start + stop - 1 - places, 0, self.longest - 1)

    def translated(self, source: np.ndarray, lengths: np.ndarray, ranks: np.ndarray) -> np.ndarray:
        """[n longest]: the translation with these ranks, as if preceded by symbol 0."""
        table = translation(self.symbols, self.lexicon, self.seed)
        meant = np.take_along_axis(source, self.aligned(lengths), axis=1).astype(np.int64)
        target = np.empty_like(meant)
        before = np.zeros(len(source), np.int64)
        for place in range(self.longest):
            before = table[before * self.symbols + meant[:, place], ranks[:, place]].astype(np.int64)
            target[:, place] = before
        return target

    def open(self, split: str, folder: Path) -> Translation:
        return Translation(self, split)


class Translation(Source):
    """One split of the pairs as a source; both sides end in `eos`."""

    gives = "pairs"

    def __init__(self, law: SyntheticPairs, split: str):
        self.law, self.split, self.fingerprint = law, split, fingerprint(law, split)
        self.vocabulary = law.symbols + 3
        self.specials = {name: law.symbols + number for number, name in enumerate(("bos", "eos", "pad"))}

    @property
    def tokens(self) -> int:
        return int(self.lengths.sum())

    @property
    def entropy(self) -> float:
        """H(q') for each word and nothing for `eos`, which is certain: in nats per target token."""
        words, tokens = float((self.lengths[:, 1] - 1).sum()), float(self.lengths[:, 1].sum())
        return self.law.ranks.entropy * words / tokens

    @cached_property
    def lengths(self) -> np.ndarray:
        words = hashing.bits(self._keys(np.arange(self.windows(0)), "length"), 1)[:, 0]
        counts = self.law.shortest + hashing.below(words, self.law.longest - self.law.shortest + 1).astype(np.int32)
        return np.stack([counts + 1, counts + 1], axis=1).astype(np.int32)

    def windows(self, length: int) -> int:
        return self.law.pairs if self.split == "train" else self.law.validation

    def read(self, rows: np.ndarray, length: int, *, documents: bool = True) -> Rows:
        ranks = self.law.ranks.drawn(hashing.bits(self._keys(rows, "target"), self.law.longest))
        return self._read(rows, length, ranks)

    def best(self, rows: np.ndarray, length: int) -> Rows:
        """The same sources, each with its likeliest translation."""
        return self._read(rows, length, np.zeros((len(rows), self.law.longest), np.int64))

    def _read(self, rows: np.ndarray, length: int, ranks: np.ndarray) -> Rows:
        words = np.minimum(self.lengths[rows, 1], length) - 1  # a longer sentence is cut before it is translated
        source, _ = self.law.language.drawn(self._keys(rows, "source"), self.law.longest)
        inside, word = (np.arange(width) < words[:, None] for width in (length, self.law.longest))
        sides = []
        for side in (source, self.law.translated(source, words, ranks)):  # words, `eos`, and `pad` to the end
            sides.append(np.full((len(rows), length), self.specials["pad"], np.uint16))
            sides[-1][inside] = side[word]
            sides[-1][np.arange(len(rows)), words] = self.specials["eos"]
        truth = np.zeros((len(rows), length), np.float32)
        truth[inside] = self.law.ranks.losses[ranks[word]]
        real = (np.arange(length) <= words[:, None]).astype(np.int64)
        return Rows(sides[1], real, truth, sides[0], real)

    def _keys(self, rows: np.ndarray, side: str) -> np.ndarray:
        return hashing.keys(self.law.seed, f"pairs {self.split} {side}", rows)
