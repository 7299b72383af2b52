"""Metrics of tasks: predictions compared with references, as sums over examples, and intervals of them.

Every value is higher for better predictions. A prediction of None is an invalid output and counts as wrong.
"""

from scaling.metrics.classes import F1, MCC, Accuracy, Correlation, EntityF1, F1AndAccuracy, GenderParity, TagAccuracy
from scaling.metrics.metric import bootstrap, over_seeds, paired_bootstrap
from scaling.metrics.text import BLEU, ROUGE, CompoundSplitBLEU, ExactMatch, MultiRC, ReCoRD, SQuAD, SQuAD2
from scaling.metrics.trees import BracketF1

__all__ = [
    "BLEU",
    "F1",
    "MCC",
    "ROUGE",
    "Accuracy",
    "BracketF1",
    "CompoundSplitBLEU",
    "Correlation",
    "EntityF1",
    "ExactMatch",
    "F1AndAccuracy",
    "GenderParity",
    "MultiRC",
    "ReCoRD",
    "SQuAD",
    "SQuAD2",
    "TagAccuracy",
    "bootstrap",
    "over_seeds",
    "paired_bootstrap",
]
