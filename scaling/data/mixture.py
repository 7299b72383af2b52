"""Mixture: windows of several data in given proportions, each with its own held-out loss."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scaling.base.errors import ScalingError, refuse, under
from scaling.base.numbers import NonNegativeFloat
from scaling.config.schema import Recipes, check_keys, piece_of
from scaling.data.source import Rows, Source
from scaling.data.store import digest

PERIOD = 10_000  # windows in which the domains take turns by their shares, which are rounded to as many parts


class Mixture:
    """Windows of several `domains`, each a line of data or the name of one, in turns by their `shares` of the tokens.

    Shares are relative: `{code: 1, prose: 3}` is a quarter and three quarters. A pass ends when every window of every
    domain was read at least once, so that smaller domains are repeated. Held-out windows are taken by `weights`, equal
    unless they are given, whatever the shares are: runs that differ in shares are compared on the same text, and each
    domain's loss is measured besides. All domains have one tokenizer; they are numbered in the order of their names.
    """

    def __init__(self, *, domains: Recipes, shares: Mapping[str, Any], weights: Mapping[str, Any] | None = None):
        what = "a mixture has two domains or more"
        refuse(len(domains) < 2, what, "write domains: {code: python, prose: wikitext103}", key="domains")
        names = tuple(sorted(domains))
        self.domains = {name: piece_of(f"domains.{name}", domains[name]) for name in names}
        self.shares = _fractions("shares", shares, names)
        self.weights = _fractions("weights", dict.fromkeys(names, 1) if weights is None else weights, names)

    def open(self, split: str, folder: Path) -> MixedSource:
        opened: dict[str, Source] = {}
        for name, data in self.domains.items():
            try:
                opened[name] = data.open(split, folder)
            except ScalingError as error:
                error.key = (error.key or "").removeprefix("data").removeprefix(".") or None
                raise error.under(f"data.domains.{name}") from None
        first, one = next(iter(opened.items()))
        for name, source in opened.items():
            key, what = f"data.domains.{name}", f"its data are {source.gives}, which are not mixed"
            refuse(source.gives != "windows", what, "take data of texts", key=key)
            codecs = [each.codec.sha256 for each in (source, one) if each.codec is not None]
            differ = (source.vocabulary, dict(source.specials)) != (one.vocabulary, dict(one.specials))
            what = f"its {source.vocabulary:,} tokens are not the {one.vocabulary:,} of {first}"
            fix = "give all domains one tokenizer, as tokenizer: {kind: File, path: tokenizer.json}"
            refuse(differ or len({*codecs}) > 1, what, fix, key=key)
        fractions = self.shares if split == "train" else self.weights
        return MixedSource(tuple(opened), tuple(opened.values()), tuple(fractions.values()), split)


class MixedSource(Source):
    """A split: its windows are numbered through all domains, in turns that repeat after `PERIOD`.

    `parts` are the windows of a period that each domain has: the fractions, what is left over given to the largest
    rests. `turns` [PERIOD] are the domains of its windows, spread evenly, and `before` how many of its own came before.
    """

    def __init__(self, domains: tuple[str, ...], sources: tuple[Source, ...], fractions: tuple[float, ...], split: str):
        self.domains, self.sources, self.fractions, self.split = domains, sources, fractions, split
        exact = np.array(fractions) * PERIOD
        self.parts = np.floor(exact).astype(int)
        self.parts[np.argsort(self.parts - exact, kind="stable")[: PERIOD - self.parts.sum()]] += 1
        turns = np.repeat(np.arange(len(self.parts)), self.parts)
        before = np.concatenate([np.arange(part) for part in self.parts])
        order = np.argsort((before + 0.5) / self.parts[turns], kind="stable")
        self.turns, self.before = turns[order], before[order]
        names = [[*pair] for pair in zip(domains, (source.fingerprint for source in sources), self.parts.tolist())]
        self.fingerprint = digest(["Mixture 1", split, names])[:32]
        self.vocabulary, self.specials = sources[0].vocabulary, sources[0].specials
        counts = [source.tokens for source, part in zip(sources, self.parts) if part]
        self.tokens = None if None in counts else sum(counts)  # type: ignore[arg-type]
        self.bytes_per_token, self.entropy = self._mean("bytes_per_token"), self._mean("entropy")

    def windows(self, length: int) -> int | None:
        """To train on, as many as show each window of each domain at least once; held out, as many as show none twice.

        Where a domain has no end, there is none to training, and as many held-out windows as the others have.
        """
        counts = {number: self.sources[number].windows(length) for number in np.flatnonzero(self.parts).tolist()}
        ends = [(domain, count) for domain, count in counts.items() if count is not None]
        for domain, count in ends:
            what, fix = f"its {self.split} split has no window of {length:,} tokens", "take a smaller size.length"
            refuse(not count, what, fix, key=f"data.domains.{self.domains[domain]}")
        if self.split != "train":
            return min((self._number(domain, count) for domain, count in ends), default=None)
        if len(ends) < len(counts):
            return None
        return max(self._number(domain, count - 1) + 1 for domain, count in ends)

    def _number(self, domain: int, place: int) -> int:
        """The number of a domain's window at this place among its own, were they endless."""
        turns, rest = divmod(place, int(self.parts[domain]))
        return turns * PERIOD + int(np.flatnonzero(self.turns == domain)[rest])

    def read(self, rows: np.ndarray, length: int, *, documents: bool = False) -> Rows:
        turns, places = np.divmod(np.asarray(rows, np.int64), PERIOD)
        domains = self.turns[places]
        numbers = turns * self.parts[domains] + self.before[places]
        order, parts = np.argsort(domains, kind="stable"), []
        for domain in np.unique(domains).tolist():
            wanted, count = numbers[domains == domain], self.sources[domain].windows(length)
            wanted = wanted if count is None else wanted % count
            parts.append(self.sources[domain].read(wanted, length, documents=documents))
        joined: dict[str, Any] = {"domains": domains}
        for name in ("tokens", "documents", "tree", "truth"):  # None where a domain has none
            arrays = [getattr(part, name) for part in parts]
            if all(array is not None for array in arrays):
                joined[name] = np.concatenate(arrays)[np.argsort(order)]
        return Rows(**joined)

    @property
    def codec(self) -> Any:
        return self.sources[0].codec

    def _mean(self, name: str) -> float | None:
        """Over tokens; None where it is not known of all domains that are read."""
        read = [(getattr(source, name), part) for source, part in zip(self.sources, self.fractions) if part]
        return None if any(value is None for value, _ in read) else sum(value * part for value, part in read)


def _fractions(key: str, given: Mapping[str, Any], domains: tuple[str, ...]) -> dict[str, float]:
    """The fraction of each domain, in their order; they sum to one."""
    with under(key):
        check_keys(given, dict.fromkeys(domains, NonNegativeFloat), "the mixture")
        for name in domains:
            refuse(name not in given, "a domain has no weight", "give each domain one, 0 leaves it out", key=name)
    total = float(sum(given.values()))
    refuse(not total, "all weights are 0", "give a domain more", key=key)
    return {name: float(given[name]) / total for name in domains}
