"""Mixture: windows of several data in given proportions, each with its own held-out loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np

from scaling.data import hashing
from scaling.data.shards import digest
from scaling.data.source import Data, Rows, Source
from scaling.data.task.task import is_task
from scaling.errors import ScalingError, nearest, under
from scaling.schema import Recipes, is_number

ROUNDS = 8  # an even number brings the halves back to their places
ENDLESS = 1 << 62  # windows of a source without end: a large number, a perfect square


@lru_cache(maxsize=64)
def _round_keys(seed: int, turn: int) -> np.ndarray:
    return hashing.keys(hashing.name(seed, f"order {turn}"), "round", np.arange(ROUNDS))


def permute(items: np.ndarray, count: int, seed: int, turn: int) -> np.ndarray:
    """[n] int64: the place of each of `items`, all below `count`, in the permutation of (seed, turn)."""
    root = isqrt(count - 1) + 1 if count > 1 else 1
    a, b = np.uint64(root), np.uint64(-(-count // root))
    round_keys = _round_keys(seed, turn)
    walked = _feistel(items.astype(np.uint64), a, b, round_keys)
    outside = np.flatnonzero(walked >= np.uint64(count))
    while outside.size:
        walked[outside] = _feistel(walked[outside], a, b, round_keys)
        outside = outside[walked[outside] >= np.uint64(count)]
    return walked.astype(np.int64)


def _feistel(items: np.ndarray, a: np.uint64, b: np.uint64, round_keys: np.ndarray) -> np.ndarray:
    left, right = items // b, items % b
    for number, key in enumerate(round_keys):
        size = a if number % 2 == 0 else b
        left, right = right, (left + hashing.mix(right ^ key) % size) % size
    return left * b + right


def drawn(samples: np.ndarray, windows: int | None, seed: int) -> np.ndarray:
    """[n] int64: the window of each sample. Every window comes once in a pass, and each pass has its own order."""
    count = ENDLESS if windows is None else windows
    turns, places = np.divmod(samples.astype(np.int64), count)
    rows = np.empty(len(samples), np.int64)
    for turn in np.unique(turns):
        inside = turns == turn
        rows[inside] = permute(places[inside], count, seed, int(turn))
    return rows


PERIOD = 10_000  # windows in which the domains take turns by their shares, which are rounded to as many parts


class Mixture:
    """Windows of several `domains`, each a line of data or the name of one, in turns by their `shares` of the tokens.

    Shares are relative: `{code: 1, prose: 3}` is a quarter and three quarters. A pass ends when every window of every
    domain was read at least once, so that smaller domains are repeated. Held-out windows are taken by `weights`, equal
    unless they are given, whatever the shares are: runs that differ in shares are compared on the same text, and each
    domain's loss is measured besides. All domains have one tokenizer; they are numbered in the order of their names.
    """

    def __init__(
        self,
        *,
        domains: Recipes,
        shares: Mapping[str, Any],
        weights: Mapping[str, Any] | None = None,
    ):
        if len(domains) < 2:
            fix = "write domains: {code: python, prose: wikitext103}"
            raise ScalingError("a mixture has two domains or more", key="domains", fix=fix)
        names = tuple(sorted(domains))
        self.domains: dict[str, Data] = {}
        for name in names:
            with under(f"domains.{name}"):
                self.domains[name] = domains[name]()
        self.shares = _fractions("shares", shares, names)
        self.weights = _fractions("weights", dict.fromkeys(names, 1) if weights is None else weights, names)

    def open(self, split: str, folder: Path) -> MixedSource:
        opened = {}
        for name, data in self.domains.items():
            try:
                opened[name] = data.open(split, folder)
            except ScalingError as error:
                error.key = (error.key or "").removeprefix("data").removeprefix(".") or None
                raise error.under(f"data.domains.{name}") from None
        self._check(opened)
        fractions = self.shares if split == "train" else self.weights
        return MixedSource(tuple(opened), tuple(opened.values()), tuple(fractions.values()), split)

    def _check(self, opened: Mapping[str, Source]) -> None:
        (first, one), *others = opened.items()
        for name, source in opened.items():
            if is_task(source) or source.lengths is not None:
                what = "its data are " + ("a task" if is_task(source) else "pairs") + ", which are not mixed"
                raise ScalingError(what, key=f"data.domains.{name}", fix="take data of texts")
        for name, source in others:
            if (source.vocabulary, dict(source.specials)) != (one.vocabulary, dict(one.specials)):
                what = f"its {source.vocabulary:,} tokens are not the {one.vocabulary:,} of {first}"
                fix = "give all domains one tokenizer, as tokenizer: {kind: File, path: tokenizer.json}"
                raise ScalingError(what, key=f"data.domains.{name}", fix=fix)


@dataclass(frozen=True)
class MixedSource:
    """A split: its windows are numbered through all domains, in turns that repeat after `PERIOD`."""

    names: tuple[str, ...]
    sources: tuple[Source, ...]
    fractions: tuple[float, ...]
    split: str

    @property
    def fingerprint(self) -> str:
        parts = [[*pair] for pair in zip(self.names, (source.fingerprint for source in self.sources), self._parts)]
        return digest(["Mixture 1", self.split, parts])[:32]

    @property
    def vocabulary(self) -> int:
        return self.sources[0].vocabulary

    @property
    def specials(self) -> Mapping[str, int]:
        return self.sources[0].specials

    @property
    def words(self) -> np.ndarray | None:
        return self.sources[0].words

    @property
    def tokens(self) -> int | None:
        counts = [source.tokens for source, parts in zip(self.sources, self._parts) if parts]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def bytes_per_token(self) -> float | None:
        return self._mean([source.bytes_per_token for source in self.sources])

    @property
    def entropy(self) -> float | None:
        return self._mean([source.entropy for source in self.sources])

    @property
    def lengths(self) -> None:
        """There are no pairs."""

    def windows(self, length: int) -> int | None:
        """To train on, as many as show each window of each domain at least once; held out, as many as show none twice.

        Where a domain has no end, there is none to training, and as many held-out windows as the others have.
        """
        counts = {domain: self.sources[domain].windows(length) for domain, parts in enumerate(self._parts) if parts}
        ends = [(domain, count) for domain, count in counts.items() if count is not None]
        if self.split != "train":
            return min((self._number(domain, count) for domain, count in ends), default=None)
        if len(ends) < len(counts):
            return None
        return max(self._number(domain, count - 1) + 1 if count else 0 for domain, count in ends)

    def _number(self, domain: int, place: int) -> int:
        """The number of a domain's window at this place among its own, were they endless."""
        turns, rest = divmod(place, self._parts[domain])
        return turns * PERIOD + int(np.flatnonzero(self._turns[0] == domain)[rest])

    def read(self, rows: np.ndarray, length: int, *, documents: bool = False) -> Rows:
        turns, places = np.divmod(np.asarray(rows, np.int64), PERIOD)
        domains, before = self._turns[0][places], self._turns[1][places]
        numbers = turns * np.array(self._parts)[domains] + before
        parts = []
        for domain, source in enumerate(self.sources):
            mine = np.flatnonzero(domains == domain)
            if len(mine):
                count = source.windows(length)
                wanted = numbers[mine] if count is None else numbers[mine] % count
                parts.append((mine, source.read(wanted, length, documents=documents)))
        joined = {name: _joined([(mine, getattr(part, name)) for mine, part in parts], len(rows)) for name in _ARRAYS}
        return replace(Rows(**joined), domains=domains)

    def decode(self, tokens: np.ndarray) -> str:
        return self.sources[0].decode(tokens)

    def _mean(self, values: Sequence[float | None]) -> float | None:
        """Over tokens; None where it is not known of all domains that are read."""
        read = [(value, fraction) for value, fraction in zip(values, self.fractions) if fraction]
        if any(value is None for value, _ in read):
            return None
        return sum(value * fraction for value, fraction in read if value is not None)

    @cached_property
    def _parts(self) -> tuple[int, ...]:
        """Of a period, how many windows are each domain's: the shares, what is left over given to the largest rests."""
        exact = np.array(self.fractions) * PERIOD
        parts = np.floor(exact).astype(int)
        parts[np.argsort(parts - exact, kind="stable")[: PERIOD - parts.sum()]] += 1
        return tuple(parts.tolist())

    @cached_property
    def _turns(self) -> tuple[np.ndarray, np.ndarray]:
        """[PERIOD] the domain of each window of a period, spread evenly, and how many of its own came before."""
        domains = np.repeat(np.arange(len(self._parts)), self._parts)
        before = np.concatenate([np.arange(parts) for parts in self._parts])
        order = np.argsort((before + 0.5) / np.array(self._parts)[domains], kind="stable")
        return domains[order], before[order]


def names_of(source: Source) -> tuple[str, ...]:
    """The domains of a source, none where it is no mixture."""
    return source.names if isinstance(source, MixedSource) else ()


def tokens_of(source: Source) -> str:
    """Names the tokens that losses are of; a mixture's are the same whatever its shares are."""
    return tokens_of(source.sources[0]) if isinstance(source, MixedSource) else source.fingerprint


def shares_of(source: Source) -> dict[str, float]:
    """The fraction of each domain as a column of points, `p_1`, `p_2`, …; none where the source is no mixture."""
    fractions = source.fractions if isinstance(source, MixedSource) else ()
    return {f"p_{number}": fraction for number, fraction in enumerate(fractions, 1)}


def definitions_of(source: Source) -> dict[str, str]:
    """Which domain each of these columns is of."""
    names = enumerate(names_of(source), 1)
    return {f"p_{number}_definition": f"fraction of the tokens that are of {name}" for number, name in names}


_ARRAYS = ("tokens", "documents", "tree", "truth")


def _joined(parts: Sequence[tuple[np.ndarray, np.ndarray | None]], count: int) -> Any:
    """The rows of all domains at their places; None where one has none."""
    arrays = [(mine, array) for mine, array in parts if array is not None]
    if len(arrays) < len(parts):
        return None
    whole = np.empty((count, *arrays[0][1].shape[1:]), np.result_type(*(array for _, array in arrays)))
    for mine, array in arrays:
        whole[mine] = array
    return whole


def _fractions(key: str, given: Mapping[str, Any], domains: tuple[str, ...]) -> dict[str, float]:
    """Of each domain, in their order, summing to one."""
    for name, value in given.items():
        if name not in domains:
            raise ScalingError("there is no such domain", key=f"{key}.{name}", fix=nearest(name, domains))
        if not is_number(value) or not 0 <= value < float("inf"):
            raise ScalingError("expected a number from 0", key=f"{key}.{name}", value=value)
    missing = [name for name in domains if name not in given]
    if missing:
        raise ScalingError("a domain has none", key=f"{key}.{missing[0]}", fix="give each domain one, 0 leaves it out")
    total = float(sum(given.values()))
    if not total:
        raise ScalingError("all are 0", key=key, fix="give a domain more")
    return {name: float(given[name]) / total for name in domains}
