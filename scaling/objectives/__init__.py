"""Objectives: from windows of a source to what a model reads and what it must predict.

Each is a pure function of (rows, keys). It is built from what the assembly shares (the vocabulary, the model's length
and its family) and from the keys of its line.
"""

from scaling.objectives.answer import Answer
from scaling.objectives.causal import BothWays, Causal, Prefix, Sequence
from scaling.objectives.distil import Distil
from scaling.objectives.masked import (
    BertStyle,
    Deshuffle,
    DropTokens,
    Masked,
    MassStyle,
    NextSentence,
    SpanCorruption,
    Spans,
)

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
