"""Metrics of tags, one for each word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.metric.metric import Metric, f1

OUTSIDE = "O"


@dataclass(frozen=True, kw_only=True)
class TagAccuracy(Metric):
    """accuracy = the fraction of words whose tag is right. A word without a predicted tag counts as wrong."""

    main = "accuracy"
    ratios = {"accuracy": (0, 1)}

    def row(self, prediction: Any, reference: Any) -> Sequence[float]:
        return sum(p == r for p, r in zip(prediction or (), reference)), len(reference)


@dataclass(frozen=True, kw_only=True)
class EntityF1(Metric):
    """F1 of entities, right where their words and their type are: conlleval's counts. (Tjong Kim Sang and De Meulder
    2003)

    Tags are `O`, `B-TYPE`, `I-TYPE` (IOB1 or IOB2), also `E-TYPE` and `S-TYPE`. An entity begins at B or S, and at I or
    E after O, E, S or another type. Words beyond the predicted tags count as `O`. `accuracy` is over tags.
    """

    main = "f1"
    guessing = 0.0
    ratios = {"accuracy": (3, 4)}

    def row(self, prediction: Any, reference: Any) -> Sequence[float]:
        predicted = _whole(prediction, reference)
        guessed, real = set(entities(predicted)), set(entities(reference))
        equal = sum(p == r for p, r in zip(predicted, reference))
        return len(guessed & real), len(guessed), len(real), equal, len(reference)

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        correct, guessed, real = sums[:, :3].T
        return {**f1(correct, guessed, real), **super().values(sums)}


def entities(tags: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """(first word, word after the last, type) of each entity of a sentence."""
    begin, before, kind = 0, OUTSIDE, ""
    for index, tag in enumerate([*tags, OUTSIDE]):
        prefix, _, name = tag.partition("-")
        goes_on = prefix in ("I", "E") and before in ("B", "I") and name == kind
        if before != OUTSIDE and not goes_on:
            yield begin, index, kind
        if not goes_on:
            begin = index
        before, kind = prefix, name


def _whole(predicted: Sequence[str] | None, right: Sequence[str]) -> list[str]:
    """A tag for each word."""
    tags = [OUTSIDE if tag is None else tag for tag in (predicted or ())][: len(right)]
    return [*tags, *[OUTSIDE] * (len(right) - len(tags))]
