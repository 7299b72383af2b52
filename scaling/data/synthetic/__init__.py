"""Sources of known entropy: a language, and a translation into a second one; and tasks whose best score is known."""

from scaling.data.synthetic.language import Synthetic
from scaling.data.synthetic.pairs import SyntheticPairs
from scaling.data.synthetic.tasks import LanguageSwitch, RankTags, WhichLanguage

__all__ = ["LanguageSwitch", "RankTags", "Synthetic", "SyntheticPairs", "WhichLanguage"]
