"""Metrics of text: of answers, each compared with several references that are equally right; of translations and
summaries, by the packages that papers are compared by.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar, Literal

import numpy as np

from scaling.base.errors import imported
from scaling.metrics.classes import grouped
from scaling.metrics.metric import Groups, Metric, Values, f1

_PUNCTUATION = set(string.punctuation)
_TRIVIA_PUNCTUATION = _PUNCTUATION | set("‘’´`")
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def squad(text: str) -> str:
    """Lower case, without punctuation, articles and spare spaces: SQuAD's script. (Rajpurkar et al. 2016)"""
    text = "".join(letter for letter in text.lower() if letter not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def open_domain(text: str) -> str:
    """SQuAD's rule after Unicode's decomposition, of open-domain questions. (Lee et al. 2019, Karpukhin et al. 2020)"""
    return squad(unicodedata.normalize("NFD", text))


def trivia(text: str) -> str:
    """As SQuAD's rule, but punctuation becomes a space: TriviaQA's script. (Joshi et al. 2017)"""
    text = text.replace("_", " ").lower()
    text = "".join(" " if letter in _TRIVIA_PUNCTUATION else letter for letter in text)
    return " ".join(_ARTICLES.sub(" ", text).split())


NORMALISATIONS = {"none": str.strip, "squad": squad, "open": open_domain, "trivia": trivia}


def token_f1(prediction: str, reference: str) -> float:
    """F1 of the words of two normalised texts, with their counts; 0 of two empty texts, as in SQuAD 1.1's script."""
    predicted, right = prediction.split(), reference.split()
    shared = (Counter(predicted) & Counter(right)).total()
    return 2 * shared / (len(predicted) + len(right)) if shared else 0.0


def _best(prediction: str | None, references: Sequence[str], normalisation: str) -> tuple[float, float]:
    """The best exact match and the best F1 of a prediction over its references."""
    if prediction is None:
        return 0.0, 0.0
    normalise = NORMALISATIONS[normalisation]
    predicted, right = normalise(prediction), [normalise(reference) for reference in references]
    return float(predicted in right), max((token_f1(predicted, reference) for reference in right), default=0.0)


def texts(references: Any) -> list[str]:
    """The texts of a reference: one, several, or none."""
    if references is None:
        return []
    return [references] if isinstance(references, str) else list(references)


class _OfTexts(Metric):
    """A metric of a text beside the best of its references."""

    normalisation: str
    ratios = {"exact_match": (0, 2), "f1": (1, 2)}

    def row(self, prediction: Any, reference: Any) -> Sequence[float]:
        return *_best(prediction, texts(reference), self.normalisation), 1


@dataclass(frozen=True, kw_only=True)
class ExactMatch(_OfTexts):
    """exact_match = the fraction of predictions that equal some reference once both are normalised; `f1` is that of the
    words, with the best reference.

    `squad`: lower case, no punctuation, no articles. `open`: the same after Unicode's decomposition (Natural Questions,
    WebQuestions). `trivia`: punctuation becomes a space (TriviaQA). `none`: spaces at the ends aside, as it is.
    """

    normalisation: Literal["none", "squad", "open", "trivia"] = "open"
    answers = ("span", "text")
    main = "exact_match"


@dataclass(frozen=True, kw_only=True)
class SQuAD(_OfTexts):
    """f1 = the mean F1 of the words of an answer with the best of its references, `exact_match` the fraction that equal
    one, by SQuAD's normalisation. (Rajpurkar et al. 2016, SQuAD 1.1)
    """

    normalisation: ClassVar[str] = "squad"
    answers = ("options", "span", "text")
    main = "f1"


@dataclass(frozen=True, kw_only=True)
class SQuAD2(Metric):
    """As `SQuAD`, over questions that may have no answer: their reference lists no text, and right is to predict "".

    `answerable_f1` and `answerable_exact_match` are over questions with an answer, `unanswerable_accuracy` over those
    without. (Rajpurkar et al. 2018, SQuAD 2.0)
    """

    answers = ("span", "text")
    main = "f1"
    ratios = {
        "exact_match": (0, 2),
        "f1": (1, 2),
        "answerable_exact_match": (3, 5),
        "answerable_f1": (4, 5),
        "unanswerable_accuracy": (6, 7),
    }

    def row(self, prediction: Any, reference: Any) -> Sequence[float]:
        # References that nothing is left of are not answers, and F1 is 1 of two empty texts, as in the script.
        right = [text for text in texts(reference) if squad(text)]
        exact, words = _best(prediction, right or [""], "squad")
        words = max(exact, words)
        return exact, words, 1, *((exact, words, 1, 0, 0) if right else (0, 0, 0, exact, 1))


@dataclass(frozen=True, kw_only=True)
class ReCoRD(SQuAD):
    """mean = (F1 + exact match) / 2 of an entity that fills a gap, with its best reference. (Zhang et al. 2018)"""

    main = "mean"
    averaged = ("f1", "exact_match")


@dataclass(frozen=True, kw_only=True)
class MultiRC(Metric):
    """mean = (F1a + exact match) / 2: `f1a` is the F1 of "this answer is right" over all answers of all questions,
    `exact_match` the fraction of questions with every answer judged rightly. (Khashabi et al. 2018; SuperGLUE)

    An example is one answer, and its group is its question; or it is a question, whose prediction and reference list a
    0 or 1 for each answer.
    """

    answers = ("class", "classes", "options")
    main = "mean"
    averaged = ("f1a", "exact_match")
    ratios = {"exact_match": (0, 1)}

    def rows(self, predictions: Values, references: Values, groups: Groups = None) -> np.ndarray:
        rows = []
        for members in grouped(groups, len(references)):
            right, predicted = [], []
            for index in members:
                real, guess = np.atleast_1d(references[index]), predictions[index]
                right += real.tolist()
                predicted += (1 - real if guess is None else np.atleast_1d(guess)).tolist()  # invalid: the wrong ones
            both = sum(p == 1 and r == 1 for p, r in zip(predicted, right))
            rows.append([predicted == right, 1, both, predicted.count(1), right.count(1)])
        return np.array(rows, float)

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        return {"f1a": f1(*sums[:, 2:].T)["f1"], **super().values(sums)}


# --- by packages ---

_COMPOUND = re.compile(r"(\S)-(\S)")  # as in tensor2tensor's get_ende_bleu.sh


def _package(module: str) -> Any:
    name = module.partition(".")[0].replace("_", "-")
    return imported(module, f"it needs the package {name}", "pip install 'scaling[eval]'", key="metric")


@dataclass(frozen=True, kw_only=True)
class BLEU(Metric):
    """bleu, from 0 to 100: the geometric mean of the precisions of 1- to 4-grams of the corpus, with the brevity
    penalty, by sacrebleu. (Papineni et al. 2002, Post 2018)
    """

    tokenize: Literal["13a", "intl", "zh", "char", "none"] = "13a"
    lowercase: bool = False
    answers = ("text",)
    main = "bleu"

    def _scorer(self, **settings: Any) -> Any:
        return _package("sacrebleu.metrics").BLEU(tokenize=self.tokenize, lowercase=self.lowercase, **settings)

    def rows(self, predictions: Values, references: Values, groups: Groups = None) -> np.ndarray:
        scorer = self._scorer(effective_order=True)
        each = [scorer.sentence_score(p or "", texts(r)) for p, r in zip(predictions, references)]
        return np.array([[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in each], float)

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        compute = _package("sacrebleu.metrics").BLEU.compute_bleu
        totals = sums.round().astype(int).tolist()
        scores = (compute(row[:4], row[4:8], row[8], row[9], smooth_method="exp").score for row in totals)
        return {"bleu": np.array([*scores])}

    def signature(self, references: Sequence[Any]) -> str:
        """sacrebleu's own."""
        scorer = self._scorer()
        counts = {len(texts(reference)) for reference in references}
        scorer.num_refs = counts.pop() if len(counts) == 1 else -1  # which its signature states as `var`
        return str(scorer.get_signature())


@dataclass(frozen=True, kw_only=True)
class CompoundSplitBLEU(Metric):
    """bleu_compound_split: BLEU of tokenised text in which every `a-b` is three tokens, `a ##AT##-##AT## b`, as Vaswani
    et al. (2017) scored English to German.

    It is higher than sacrebleu's, and the two are not compared. Words are cut by mteval's rules (13a), where the paper
    took those of Moses.
    """

    answers = ("text",)
    main = "bleu_compound_split"

    def rows(self, predictions: Values, references: Values, groups: Groups = None) -> np.ndarray:
        tokens = _package("sacrebleu.tokenizers.tokenizer_13a").Tokenizer13a()

        def split(text: str) -> str:
            return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", tokens(text))

        split_references = [[split(text) for text in texts(reference)] for reference in references]
        return BLEU(tokenize="none").rows([split(p or "") for p in predictions], split_references)

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        return {"bleu_compound_split": BLEU().values(sums)["bleu"]}

    def signature(self, references: Sequence[Any]) -> str:
        """sacrebleu's own of what it counted, and that words were cut and compounds split before."""
        return f"{BLEU(tokenize='none').signature(references)}|before:13a,compound-split"


@dataclass(frozen=True, kw_only=True)
class ROUGE(Metric):
    """rouge_l: the mean F1 of the union of the longest common subsequences of sentences (ROUGE-Lsum) with the best
    reference; `rouge_1` and `rouge_2` of words and of pairs of words, by rouge-score. (Lin 2004)

    A sentence ends at a line break and behind " . ", as T5's evaluation cuts them. (Raffel et al. 2019)
    """

    stem: bool = True
    answers = ("text",)
    main = "rouge_l"
    ratios = {"rouge_1": (0, 3), "rouge_2": (1, 3), "rouge_l": (2, 3)}

    def rows(self, predictions: Values, references: Values, groups: Groups = None) -> np.ndarray:
        kinds = ["rouge1", "rouge2", "rougeLsum"]
        scorer = _package("rouge_score.rouge_scorer").RougeScorer(kinds, use_stemmer=self.stem)

        def lines(text: str) -> str:
            return text.replace(" . ", " .\n")

        each = (scorer.score_multi([*map(lines, texts(r))], lines(p or "")) for p, r in zip(predictions, references))
        return np.array([[*(score[kind].fmeasure for kind in kinds), 1] for score in each])

    def signature(self, references: Sequence[Any]) -> str:
        """rouge-score has none: which values, whether words are stemmed, what several references count, its version."""
        _package("rouge_score.rouge_scorer")
        stem = "yes" if self.stem else "no"
        return f"rouge1,rouge2,rougeLsum|stem:{stem}|refs:best|package:rouge-score|version:{version('rouge-score')}"
