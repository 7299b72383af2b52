"""Objectives: from windows of a source to what a model reads and what it must predict.

Each is a pure function of (rows, keys). It is built from what the assembly shares (the vocabulary, the model's length
and its family) and from the keys of its line.
"""

from scaling.objective.answer import Answer
from scaling.objective.both_ways import BothWays
from scaling.objective.causal import Causal
from scaling.objective.denoising import BertStyle, Deshuffle, DropTokens, MassStyle
from scaling.objective.distil import Distil
from scaling.objective.masked import Masked
from scaling.objective.next_sentence import NextSentence
from scaling.objective.prefix import Prefix
from scaling.objective.sequence import Sequence
from scaling.objective.span_corruption import SpanCorruption
from scaling.objective.spans import Spans

__all__ = [
    "Answer",
    "BertStyle",
    "BothWays",
    "Causal",
    "Deshuffle",
    "Distil",
    "DropTokens",
    "Masked",
    "MassStyle",
    "NextSentence",
    "Prefix",
    "Sequence",
    "SpanCorruption",
    "Spans",
]
