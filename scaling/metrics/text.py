"""Metrics of written text, by the packages that papers are compared by."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

import numpy as np

from scaling.base.errors import ScalingError
from scaling.metrics.answers import texts
from scaling.metrics.metric import Groups, Metric, Values

_COMPOUND = re.compile(r"(?<=\S)-(?=\S)")


def _package(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        name = module.partition(".")[0].replace("_", "-")
        raise ScalingError(f"it needs the package {name}", key="metric", fix="pip install 'scaling[eval]'") from None


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
            return _COMPOUND.sub(r" ##AT##-##AT## ", tokens(text))

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
