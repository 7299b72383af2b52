"""Corpora: where documents come from. The public classes here are the kinds of `corpus:`."""

from scaling.data.corpus.docstrings import Docstrings
from scaling.data.corpus.files import Files
from scaling.data.corpus.gettext import Gettext
from scaling.data.corpus.hub import Hub
from scaling.data.corpus.parallel import Parallel
from scaling.data.corpus.python import Python
from scaling.data.corpus.saved import Saved

__all__ = ["Docstrings", "Files", "Gettext", "Hub", "Parallel", "Python", "Saved"]
