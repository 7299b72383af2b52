"""Metrics of classes, of tags, one for each word, and of numbers."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from scaling.base.errors import refuse
from scaling.base.numbers import NonNegativeInt
from scaling.metrics.metric import Groups, Metric, PartsF1, Values, f1, ratio

Average = Literal["binary", "macro", "micro"]


@dataclass(frozen=True, kw_only=True)
class Accuracy(Metric):
    """accuracy = the fraction of examples whose prediction is right; of several classes, all of them."""

    main = "accuracy"
    ratios = {"accuracy": (0, 1)}

    def row(self, prediction: Any, reference: Any) -> Sequence[float]:
        return _set(prediction) == _set(reference), 1


@dataclass(frozen=True, kw_only=True)
class F1(Accuracy):
    """F1 = 2 P R / (P + R) of the class `positive` (`binary`), its mean over classes (`macro`), or that of all
    classes counted together (`micro`).

    `positive` is the number of a class: 1 where there are two, and `binary` of more states it. `macro` is over the
    classes that some reference or prediction has. `precision` and `recall` are averaged alike. Each is 0 where its
    denominator is.
    """

    average: Average = "binary"
    positive: NonNegativeInt | None = None
    answers = ("class", "classes", "options")
    main = "f1"

    def check(self, classes: Sequence[Hashable]) -> None:
        """Refuse a binary score of more than two classes that does not name its class, or of a class beyond them."""
        count, is_binary = len(classes), self.average == "binary"
        what, fix = f"binary F1 is of one class, and there are {count}", "set average: macro, or positive"
        refuse(is_binary and self.positive is None and count > 2, what, fix, key="metric.average", value=self.average)
        is_beyond, fix = is_binary and 1 < count <= (self.positive or 0), f"name one below {count}"
        refuse(is_beyond, "there is no such class", fix, key="metric.positive", value=self.positive)

    def rows(self, predictions: Values, references: Values, groups: Groups = None) -> np.ndarray:
        guessed, right = [_set(p) for p in predictions], [_set(r) for r in references]
        found = frozenset().union(*guessed, *right) - {None}
        classes = sorted(found, key=lambda label: (isinstance(label, str), label))
        if self.average == "binary":
            if self.positive is None:
                self.check(classes)
            positive = 1 if self.positive is None else self.positive
            is_other = classes and not isinstance(positive, tuple(map(type, classes)))
            what, fix = "no example has such a class", f"name one of {', '.join(map(str, classes))}"
            refuse(is_other, what, fix, key="metric.positive", value=positive)
            classes = [positive]
        predicted, real = (
            np.array([[label in each for label in classes] for each in side], float) for side in (guessed, right)
        )
        equal = np.array([p == r for p, r in zip(guessed, right)], float)
        return np.column_stack([equal, np.ones_like(equal), predicted * real, predicted, real])

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        correct, predicted, real = np.split(sums[:, 2:], 3, axis=1)
        if self.average == "micro":
            correct, predicted, real = (part.sum(1, keepdims=True) for part in (correct, predicted, real))
        some = (predicted + real > 0) if self.average == "macro" else np.ones_like(real, bool)
        each = f1(correct, predicted, real).items()
        values = {name: ratio((value * some).sum(1), some.sum(1)) for name, value in each}
        return {**values, **super().values(sums)}


@dataclass(frozen=True, kw_only=True)
class F1AndAccuracy(F1):
    """mean = (F1 + accuracy) / 2: GLUE's MRPC and QQP (`binary`), SuperGLUE's CB (`macro`). (Wang et al. 2018, 2019)"""

    main = "mean"
    averaged = ("f1", "accuracy")


@dataclass(frozen=True, kw_only=True)
class MCC(Accuracy):
    """Matthews' correlation, for any number of classes (c·s − Σ p t) / √((s² − Σ p²)(s² − Σ t²)): c of s examples are
    right, and a class has p predictions and t references. 0 where either has one class only. (Gorodkin 2004)
    """

    answers = ("class", "classes", "options")
    main = "mcc"
    guessing = 0.0

    def rows(self, predictions: Values, references: Values, groups: Groups = None) -> np.ndarray:
        classes = sorted({*map(str, predictions), *map(str, references)})
        predicted, right = (
            np.array([classes.index(str(label)) for label in side]) for side in (predictions, references)
        )
        one_hot = np.eye(len(classes))
        return np.column_stack([predicted == right, np.ones(len(predicted)), one_hot[predicted], one_hot[right]])

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        correct, count = sums[:, 0], sums[:, 1]
        predicted, real = np.split(sums[:, 2:], 2, axis=1)
        scale = (count**2 - (predicted**2).sum(1)) * (count**2 - (real**2).sum(1))
        mcc = ratio(correct * count - (predicted * real).sum(1), np.sqrt(scale))
        return {"mcc": mcc, **super().values(sums)}


@dataclass(frozen=True, kw_only=True)
class GenderParity(Accuracy):
    """accuracy, and `gender_parity`: the fraction of groups, two texts that differ in a pronoun's gender, whose
    predictions are equal. (Rudinger et al. 2018; AX-g of SuperGLUE)
    """

    ratios = {"accuracy": (0, 1), "gender_parity": (2, 3)}

    def rows(self, predictions: Values, references: Values, groups: Groups = None) -> np.ndarray:
        each = super().rows(predictions, references)
        members = grouped(groups, len(predictions))
        parity = [[len({str(predictions[index]) for index in group}) == 1, 1] for group in members]
        return np.array([[*each[group].sum(0), *equal] for group, equal in zip(members, parity)], float)


def grouped(groups: Groups, count: int) -> list[list[int]]:
    """The examples of each group, in the order of first mention; each by itself where there are no groups."""
    members: dict[Hashable, list[int]] = {}
    for index in range(count):
        members.setdefault(index if groups is None else groups[index], []).append(index)
    return list(members.values())


def _set(value: Any) -> frozenset[Any]:
    """The classes of an example: one, or those listed; None of an invalid output, which no reference is."""
    return frozenset(value) if isinstance(value, list | tuple | set | frozenset | np.ndarray) else frozenset({value})


OUTSIDE = "O"


@dataclass(frozen=True, kw_only=True)
class TagAccuracy(Accuracy):
    """accuracy = the fraction of words whose tag is right. A word without a predicted tag counts as wrong."""

    answers = ("tags",)

    def row(self, prediction: Any, reference: Any) -> Sequence[float]:
        return sum(p == r for p, r in zip(prediction or (), reference)), len(reference)


@dataclass(frozen=True, kw_only=True)
class EntityF1(PartsF1):
    """F1 of entities, right where their words and their type are: conlleval's counts. (Tjong Kim Sang and De Meulder
    2003)

    Tags are `O`, `B-TYPE`, `I-TYPE` (IOB1 or IOB2), also `E-TYPE` and `S-TYPE`. An entity begins at B or S, and at I or
    E after O, E, S or another type. Words beyond the predicted tags count as `O`. `accuracy` is over tags.
    """

    answers = ("tags",)
    ratios = {"accuracy": (3, 4)}

    def row(self, prediction: Any, reference: Any) -> Sequence[float]:
        predicted = [*(prediction or ()), *[OUTSIDE] * len(reference)][: len(reference)]
        guessed, real = set(entities(predicted)), set(entities(reference))
        equal = sum(p == r for p, r in zip(predicted, reference))
        return len(guessed & real), len(guessed), len(real), equal, len(reference)


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


@dataclass(frozen=True, kw_only=True)
class Correlation(Metric):
    """mean = (Pearson's r + Spearman's ρ) / 2, as for STS-B of GLUE. (Wang et al. 2018)

    Equal numbers share the mean of their ranks. 0 where all predictions or all references are equal. An invalid output
    counts as the reference that is farthest from what is right.
    """

    answers = ("class", "number")
    main = "mean"
    guessing = 0.0

    def rows(self, predictions: Values, references: Values, groups: Groups = None) -> np.ndarray:
        right = np.array(references, float)
        worst = np.where(right > (right.min() + right.max()) / 2, right.min(), right.max())
        predicted = [wrong if guess is None else float(guess) for guess, wrong in zip(predictions, worst)]
        return np.column_stack([predicted, right])

    def weighted(self, rows: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
        predicted, right = rows.T
        pearson = _correlation(predicted[None], right[None], weights)
        spearman = _correlation(_ranks(predicted, weights), _ranks(right, weights), weights)
        return {"mean": (pearson + spearman) / 2, "pearson": pearson, "spearman": spearman}


def _correlation(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Pearson's r [s] of columns [s n] in samples that count their examples `weights` times."""
    count, size = weights.sum(1, keepdims=True), abs(x).max(1) * abs(y).max(1)
    x = x - (weights * x).sum(1, keepdims=True) / count
    y = y - (weights * y).sum(1, keepdims=True) / count
    scale = np.sqrt((weights * x**2).sum(1) * (weights * y**2).sum(1))
    # Of a column of equal numbers there remains what rounding left.
    flat = scale <= 1e-12 * count[:, 0] * size
    return np.clip(ratio((weights * x * y).sum(1), np.where(flat, 0, scale)), -1, 1)


def _ranks(column: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The rank [s n] of each number in every sample, 1 first; equal ones share the mean of theirs."""
    order = np.argsort(column, kind="stable")
    _, starts, which = np.unique(column[order], return_index=True, return_inverse=True)
    counts = np.add.reduceat(weights[:, order], starts, axis=1)
    ranks = np.empty_like(weights)
    ranks[:, order] = (counts.cumsum(1) - (counts - 1) / 2)[:, which]
    return ranks
