"""Sources of known entropy: a language, and a translation into a second one; and tasks whose best score is known."""

from scaling.data.synthetic.exact import Copy, Recall
from scaling.data.synthetic.language import Synthetic
from scaling.data.synthetic.pairs import ListOps, SyntheticPairs
from scaling.data.synthetic.tasks import LanguageSwitch, RankTags, WhichLanguage

__all__ = ["Copy", "LanguageSwitch", "ListOps", "RankTags", "Recall", "Synthetic", "SyntheticPairs", "WhichLanguage"]
