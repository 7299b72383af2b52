"""Heads: hidden vectors -> predictions. A head owns its loss, because what is cheap or exact differs from head to
head.
"""

from scaling.nn.head.adaptive import AdaptiveSoftmax
from scaling.nn.head.classes import Classes
from scaling.nn.head.linear import Linear
from scaling.nn.head.mixture import MixtureOfSoftmaxes
from scaling.nn.head.number import Number
from scaling.nn.head.options import Options
from scaling.nn.head.sequence import NextSentence, Sequence
from scaling.nn.head.span import Span
from scaling.nn.head.tokens import Tokens
from scaling.nn.head.transform import Transform

__all__ = [
    "AdaptiveSoftmax",
    "Classes",
    "Linear",
    "MixtureOfSoftmaxes",
    "NextSentence",
    "Number",
    "Options",
    "Sequence",
    "Span",
    "Tokens",
    "Transform",
]
