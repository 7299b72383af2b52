"""Sources of known entropy: a language, and a translation into a second one; and tasks whose best score is known."""

from scaling.data.synthetic.language import Synthetic, SyntheticPairs
from scaling.data.synthetic.list_ops import ListOps
from scaling.data.synthetic.tasks import Copy, LanguageSwitch, RankTags, Recall, WhichLanguage

__all__ = ["Copy", "LanguageSwitch", "ListOps", "RankTags", "Recall", "Synthetic", "SyntheticPairs", "WhichLanguage"]
