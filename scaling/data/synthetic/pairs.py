"""Synthetic pairs: sentences of a language and their translations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np

from scaling.data import hashing
from scaling.data.source import Rows, Source, spelled
from scaling.data.synthetic.language import Ranks, Synthetic, fingerprint, ranks_of, translation
from scaling.errors import ScalingError
from scaling.schema import Range, Seed, SmallInt, check_fields


@dataclass(frozen=True, kw_only=True)
class SyntheticPairs:
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
    symbols: Annotated[int, Range(least=2, most=8192)] = 64
    order: Annotated[int, Range(least=1, most=25)] = 2
    exponent: Annotated[float, Range(least=0, most=64)] = 1.6
    joint: Annotated[float, Range(least=-1000, most=1000)] = 0.5
    seed: Seed = 3401

    version = 1

    def __post_init__(self) -> None:
        check_fields(self)
        if self.longest < self.shortest:
            fix = f"take one from {self.shortest}, which is the shortest"
            raise ScalingError("no sentence is so short", key="longest", value=self.longest, fix=fix)
        _ = self.language  # its own keys are checked too

    @cached_property
    def language(self) -> Synthetic:
        """The law of the source sentences."""
        return Synthetic(
            symbols=self.symbols, order=self.order, exponent=self.exponent, joint=self.joint, seed=self.seed
        )

    @cached_property
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


@dataclass(frozen=True)
class Translation(Source):
    """One split of the pairs as a source; both sides end in `eos`."""

    law: SyntheticPairs
    split: str

    gives = "pairs"

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.law, self.split)

    @property
    def vocabulary(self) -> int:
        return self.law.symbols + 3

    @property
    def specials(self) -> Mapping[str, int]:
        return {name: self.law.symbols + number for number, name in enumerate(("bos", "eos", "pad"))}

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
        drawn = self.law.shortest + hashing.below(words, self.law.longest - self.law.shortest + 1).astype(np.int32)
        return np.stack([drawn + 1, drawn + 1], axis=1).astype(np.int32)

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
        target = self.law.translated(source, words, ranks)
        filled = [self._filled(side, words, length) for side in (source, target)]
        inside = np.arange(length) < words[:, None]
        truth = np.zeros((len(rows), length), np.float32)
        truth[inside] = self.law.ranks.losses[_wide(ranks, length)[inside]]
        real = (np.arange(length) <= words[:, None]).astype(np.int64)
        return Rows(filled[1], real, truth, filled[0], real)

    def _filled(self, side: np.ndarray, words: np.ndarray, length: int) -> np.ndarray:
        """[n length] uint16: words, `eos`, and `pad` to the end."""
        places = np.arange(length)
        filled = np.where(places < words[:, None], _wide(side, length), self.specials["pad"])
        filled[places == words[:, None]] = self.specials["eos"]
        return filled.astype(np.uint16)

    def _keys(self, rows: np.ndarray, side: str) -> np.ndarray:
        return hashing.keys(self.law.seed, f"pairs {self.split} {side}", rows)

    def decode(self, tokens: np.ndarray) -> str:
        return spelled(tokens, self.specials)


def _wide(array: np.ndarray, length: int) -> np.ndarray:
    """Cut or filled up with zeros to `length` columns."""
    return np.pad(array[:, :length], ((0, 0), (0, max(0, length - array.shape[1]))))
