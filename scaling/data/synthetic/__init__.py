"""A source of known entropy: a language, and a translation into a second one."""

from scaling.data.synthetic.language import Synthetic
from scaling.data.synthetic.pairs import SyntheticPairs

__all__ = ["Synthetic", "SyntheticPairs"]
