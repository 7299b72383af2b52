"""Metrics of tags, one for each word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.metric.metric import Metric, f1, ratio

OUTSIDE = "O"


@dataclass(frozen=True, kw_only=True)
class TagAccuracy(Metric):
    """accuracy = the fraction of words whose tag is right. A word without a predicted tag counts as wrong."""

    main = "accuracy"

    def rows(
        self, predictions: Sequence[Any], references: Sequence[Any], groups: Sequence[Hashable] | None = None
    ) -> np.ndarray:
        pairs = zip(predictions, references)
        return np.array(
            [(sum(p == r for p, r in zip(predicted or (), right)), len(right)) for predicted, right in pairs], float
        )

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        return {"accuracy": ratio(sums[:, 0], sums[:, 1], np.nan)}

    def counts(self, predictions: Sequence[Any], references: Sequence[Any]) -> Mapping[str, Mapping[str, int]]:
        real, predicted, correct = Counter[str](), Counter[str](), Counter[str]()
        for predicted_tags, right in zip(predictions, references):
            real.update(map(str, right))
            predicted.update(map(str, predicted_tags or ()))
            correct.update(str(r) for p, r in zip(predicted_tags or (), right) if p == r)
        return _counted(real, predicted, correct)


@dataclass(frozen=True, kw_only=True)
class EntityF1(Metric):
    """F1 of entities, right where their words and their type are: conlleval's counts. (Tjong Kim Sang and De Meulder
    2003)

    Tags are `O`, `B-TYPE`, `I-TYPE` (IOB1 or IOB2), also `E-TYPE` and `S-TYPE`. An entity begins at B or S, and at I or
    E after O, E, S or another type. Words beyond the predicted tags count as `O`. `accuracy` is over tags.
    """

    main = "f1"
    guessing = 0.0

    def rows(
        self, predictions: Sequence[Any], references: Sequence[Any], groups: Sequence[Hashable] | None = None
    ) -> np.ndarray:
        rows = []
        for predicted, right in zip(predictions, references):
            predicted = _whole(predicted, right)
            guessed, real = set(entities(predicted)), set(entities(right))
            equal = sum(p == r for p, r in zip(predicted, right))
            rows.append((len(guessed & real), len(guessed), len(real), equal, len(right)))
        return np.array(rows, float)

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        correct, guessed, real, equal, tags = sums.T
        return {
            "f1": f1(correct, guessed, real),
            "precision": ratio(correct, guessed),
            "recall": ratio(correct, real),
            "accuracy": ratio(equal, tags, np.nan),
        }

    def counts(self, predictions: Sequence[Any], references: Sequence[Any]) -> Mapping[str, Mapping[str, int]]:
        real, guessed, correct = Counter[str](), Counter[str](), Counter[str]()
        for predicted_tags, right in zip(predictions, references):
            a, b = set(entities(_whole(predicted_tags, right))), set(entities(right))
            for counter, chunks in ((guessed, a), (real, b), (correct, a & b)):
                counter.update(kind for _, _, kind in chunks)
        return _counted(real, guessed, correct)


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


def _counted(real: Counter[str], predicted: Counter[str], correct: Counter[str]) -> dict[str, dict[str, int]]:
    return {
        kind: {"references": real[kind], "predictions": predicted[kind], "correct": correct[kind]}
        for kind in sorted({*real, *predicted})
    }
