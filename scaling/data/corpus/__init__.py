"""Corpora: where documents come from. The public classes here are the kinds of `corpus:`."""

from scaling.data.corpus.files import Files, Saved
from scaling.data.corpus.hub import Hub
from scaling.data.corpus.pairs import Parallel
from scaling.data.corpus.python import Python

__all__ = ["Files", "Hub", "Parallel", "Python", "Saved"]
