"""Synthetic: an endless language whose entropy is known exactly at every position (docs/synthetic.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from scaling.data import hashing
from scaling.data.source import Rows
from scaling.data.synthetic import successors
from scaling.data.synthetic.ranks import Ranks
from scaling.errors import ScalingError
from scaling.schema import Long, Range, Seed, check_fields

LARGEST = 1 << 26  # entries of the table of successors: 400 MB


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """Rank through permutation: x_t = succ[x_{t−k} … x_{t−1}, r_t], ranks r_t drawn i.i.d. by q(r) ∝ (r + 1)^−exponent.

    Rank to symbol is one to one in every context, so each symbol's entropy is H(q) and its true loss −ln q(r_t). Which
    symbol a rank means depends on the context through parts of rising order, which models learn one by one.
    Without `tokens` the training split is endless.
    """

    symbols: Annotated[int, Range(least=2, most=8192)] = 64
    order: Annotated[int, Range(least=1, most=25)] = 2
    exponent: Annotated[float, Range(least=0, most=64)] = 1.6
    joint: Annotated[float, Range(least=-1000, most=1000)] = 0.5
    tokens: Long | None = None  # of the training split; None: endless
    validation: Long = 1 << 18  # tokens of the other split
    seed: Seed = 3401  # of unigram and bigram entropies of 3.163 and 2.801 nats; over seeds 3.29 ± 0.10, 2.78 ± 0.06

    version = 1

    def __post_init__(self) -> None:
        check_fields(self)
        if self.symbols ** (self.order + 1) > LARGEST:
            longest = max(k for k in range(1, 26) if self.symbols ** (k + 1) <= LARGEST)
            fix = f"take an order from 1 to {longest}, or fewer symbols"
            raise ScalingError(f"{self.symbols} symbols have too large a table", key="order", value=self.order, fix=fix)

    @cached_property
    def ranks(self) -> Ranks:
        return Ranks.of(self.symbols, self.exponent)

    @property
    def entropy(self) -> float:
        """H(q) in nats per symbol: no model's expected loss is below it."""
        return self.ranks.entropy

    def successors(self) -> np.ndarray:
        """[symbols^order, symbols]: succ, contexts counted with their last symbol varying fastest."""
        return successors.language(self.symbols, self.order, self.joint, self.seed)

    def conditional_entropies(self) -> list[float]:
        """H(x_t | the j symbols before it) for j from 0 to the order: what a model that sees so far back can reach."""
        contexts, table = self.symbols**self.order, self.successors().astype(np.int64)
        into = (np.arange(contexts)[:, None] % (contexts // self.symbols)) * self.symbols + table
        stationary, before = np.full(contexts, 1 / contexts), np.zeros(contexts)
        while np.abs(stationary - before).sum() > 1e-12:
            flow = stationary[:, None] * self.ranks.probabilities
            before, stationary = stationary, np.bincount(into.ravel(), flow.ravel(), contexts)
        blocks = stationary.reshape((self.symbols,) * self.order)
        joint = [0.0] + [_entropy(blocks.sum(axis=tuple(range(j, self.order)))) for j in range(1, self.order + 1)]
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
    kept = np.arange(contexts, dtype=np.int64)[:, None] % (contexts // law.symbols) * law.symbols
    return ((kept + law.successors()) * law.symbols).astype(np.int32).ravel()


def _entropy(probabilities: np.ndarray) -> float:
    positive = probabilities[probabilities > 0]
    return float(-(positive * np.log(positive)).sum())


@dataclass(frozen=True)
class Language:
    """One split of a synthetic language as a source; each window is a document that begins with `bos`."""

    law: Synthetic
    split: str

    words = bytes_per_token = lengths = None

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.law, self.split)

    @property
    def vocabulary(self) -> int:
        return self.law.symbols + 1

    @property
    def specials(self) -> Mapping[str, int]:
        return {"bos": self.law.symbols}

    @property
    def tokens(self) -> int | None:
        return self.law.tokens if self.split == "train" else self.law.validation

    @property
    def entropy(self) -> float:
        return self.law.entropy

    def windows(self, length: int) -> int | None:
        return None if self.tokens is None else self.tokens // length

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

    def decode(self, tokens: np.ndarray) -> str:
        return spelled(tokens, self.specials)


@lru_cache
def fingerprint(law: Any, split: str) -> str:
    """Names a law by its parameters and version, and one of its splits."""
    description = f"{type(law).__name__} {law.version} {sorted(asdict(law).items())} {split}"
    return hashlib.blake2b(description.encode(), digest_size=16).hexdigest()


def spelled(tokens: np.ndarray, specials: Mapping[str, int]) -> str:
    """Symbols as their numbers, specials by their names."""
    names = {number: f"<{name}>" for name, number in specials.items()}
    return " ".join(names.get(int(token), str(int(token))) for token in tokens)
