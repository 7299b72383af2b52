"""Metrics of answers in text, each compared with several references that are equally right."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from scaling.metric.classes import grouped
from scaling.metric.metric import Metric, f1, ratio

_PUNCTUATION = set(string.punctuation)
_TRIVIA_PUNCTUATION = _PUNCTUATION | set("‘’´`")
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def squad(text: str) -> str:
    """Lower case, without punctuation, articles and spare spaces: SQuAD's script. (Rajpurkar et al. 2016)"""
    text = "".join(letter for letter in text.lower() if letter not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def open_domain(text: str) -> str:
    """SQuAD's rule after Unicode's canonical decomposition: open-domain questions, Natural Questions and WebQuestions
    (Lee et al. 2019, Karpukhin et al. 2020).
    """
    return squad(unicodedata.normalize("NFD", text))


def trivia(text: str) -> str:
    """As SQuAD's rule, but punctuation becomes a space: TriviaQA's script. (Joshi et al. 2017)"""
    text = text.replace("_", " ").lower()
    text = "".join(" " if letter in _TRIVIA_PUNCTUATION else letter for letter in text)
    return " ".join(_ARTICLES.sub(" ", text).split())


NORMALISATIONS = {"none": str.strip, "squad": squad, "open": open_domain, "trivia": trivia}


def token_f1(prediction: str, reference: str) -> float:
    """F1 of the words that two normalised texts have in common, with their counts; of an empty one, equality."""
    predicted, right = prediction.split(), reference.split()
    if not predicted or not right:
        return float(predicted == right)
    shared = np.array(sum((Counter(predicted) & Counter(right)).values()))
    return float(f1(shared, np.array(len(predicted)), np.array(len(right))))


def _best(prediction: str | None, references: Iterable[str], normalisation: str) -> tuple[float, float]:
    """The best exact match and the best F1 of a prediction over its references."""
    normalise = NORMALISATIONS[normalisation]
    if prediction is None:
        return 0.0, 0.0
    predicted, right = normalise(prediction), [normalise(reference) for reference in references]
    return float(predicted in right), max((token_f1(predicted, reference) for reference in right), default=0.0)


def texts(references: Any) -> list[str]:
    """The texts of a reference: one, several, or none."""
    if references is None:
        return []
    return [references] if isinstance(references, str) else list(references)


@dataclass(frozen=True, kw_only=True)
class ExactMatch(Metric):
    """exact_match = the fraction of predictions that equal some reference once both are normalised; `f1` is that of the
    words, with the best reference.

    `squad`: lower case, no punctuation, no articles. `open`: the same after Unicode's decomposition (Natural Questions,
    WebQuestions). `trivia`: punctuation becomes a space (TriviaQA). `none`: spaces at the ends aside, as it is.
    """

    normalisation: Literal["none", "squad", "open", "trivia"] = "open"
    main = "exact_match"

    def rows(
        self, predictions: Sequence[Any], references: Sequence[Any], groups: Sequence[Hashable] | None = None
    ) -> np.ndarray:
        each = [_best(p, texts(r), self.normalisation) for p, r in zip(predictions, references)]
        return np.array([[exact, words, 1] for exact, words in each])

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        exact, words, count = sums.T
        return {"exact_match": ratio(exact, count, np.nan), "f1": ratio(words, count, np.nan)}


@dataclass(frozen=True, kw_only=True)
class SQuAD(Metric):
    """f1 = the mean F1 of the words of an answer with the best of its references, `exact_match` the fraction that equal
    one, by SQuAD's normalisation. (Rajpurkar et al. 2016, SQuAD 1.1)
    """

    main = "f1"

    def rows(
        self, predictions: Sequence[Any], references: Sequence[Any], groups: Sequence[Hashable] | None = None
    ) -> np.ndarray:
        each = [_best(p, texts(r), "squad") for p, r in zip(predictions, references)]
        return np.array([[exact, words, 1] for exact, words in each])

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        exact, words, count = sums.T
        return {"exact_match": ratio(exact, count, np.nan), "f1": ratio(words, count, np.nan)}


@dataclass(frozen=True, kw_only=True)
class SQuAD2(Metric):
    """As `SQuAD`, over questions that may have no answer: their reference lists no text, and right is to predict "".

    `answerable_f1` and `answerable_exact_match` are over questions with an answer, `unanswerable_accuracy` over those
    without. (Rajpurkar et al. 2018, SQuAD 2.0)
    """

    main = "f1"

    def rows(
        self, predictions: Sequence[Any], references: Sequence[Any], groups: Sequence[Hashable] | None = None
    ) -> np.ndarray:
        rows = []
        for prediction, reference in zip(predictions, references):
            # References that nothing is left of are no answers, as in the script.
            right = [text for text in texts(reference) if squad(text)]
            exact, words = _best(prediction, right or [""], "squad")
            answerable = float(bool(right))
            rows.append([exact, words, 1, exact * answerable, words * answerable, answerable])
        return np.array(rows)

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        without = sums[:, 2] - sums[:, 5]
        return {
            "exact_match": ratio(sums[:, 0], sums[:, 2], np.nan),
            "f1": ratio(sums[:, 1], sums[:, 2], np.nan),
            "answerable_exact_match": ratio(sums[:, 3], sums[:, 5], np.nan),
            "answerable_f1": ratio(sums[:, 4], sums[:, 5], np.nan),
            "unanswerable_accuracy": ratio(sums[:, 0] - sums[:, 3], without, np.nan),
        }


@dataclass(frozen=True, kw_only=True)
class ReCoRD(SQuAD):
    """mean = (F1 + exact match) / 2 of an entity that fills a gap, with its best reference. (Zhang et al. 2018)"""

    main = "mean"

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        values = super().values(sums)
        return {"mean": (values["f1"] + values["exact_match"]) / 2, **values}


@dataclass(frozen=True, kw_only=True)
class MultiRC(Metric):
    """mean = (F1a + exact match) / 2: `f1a` is the F1 of "this answer is right" over all answers of all questions,
    `exact_match` the fraction of questions with every answer judged rightly. (Khashabi et al. 2018; SuperGLUE)

    An example is one answer, and its group is its question; or it is a question, whose prediction and reference list a
    0 or 1 for each answer.
    """

    main = "mean"

    def rows(
        self, predictions: Sequence[Any], references: Sequence[Any], groups: Sequence[Hashable] | None = None
    ) -> np.ndarray:
        rows = []
        for members in grouped(groups, len(references)):
            right = [judgement for index in members for judgement in _judged(references[index])]
            predicted = [
                judgement for i in members for judgement in _judged(predictions[i], len(_judged(references[i])))
            ]
            both = sum(p == 1 and r == 1 for p, r in zip(predicted, right))
            # An invalid output is wrong either way: it is counted among the yes where the answer is no.
            yes = sum(p == 1 or (p is None and r == 0) for p, r in zip(predicted, right))
            rows.append([predicted == right, 1, both, yes, right.count(1)])
        return np.array(rows, float)

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        exact = ratio(sums[:, 0], sums[:, 1], np.nan)
        f1a = f1(*sums[:, 2:].T)
        return {"mean": (exact + f1a) / 2, "f1a": f1a, "exact_match": exact}


def _judged(answers: Any, count: int = 1) -> list[int | None]:
    """0 or 1 for each answer of an example."""
    if answers is None:
        return [None] * count
    if not isinstance(answers, list | tuple | np.ndarray):
        answers = [answers]
    return [None if answer is None else int(answer) for answer in answers]
