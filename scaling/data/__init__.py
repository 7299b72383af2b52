"""From any corpus to `batch(step)`: sources, their order, and the kinds that a `data:` line may name."""

from scaling.data.mixture import Mixture
from scaling.data.synthetic import (
    Copy,
    LanguageSwitch,
    ListOps,
    RankTags,
    Recall,
    Synthetic,
    SyntheticPairs,
    WhichLanguage,
)
from scaling.data.task.task import Task
from scaling.data.text import Text
from scaling.data.tokens import Tokens

__all__ = [
    "Copy",
    "LanguageSwitch",
    "ListOps",
    "Mixture",
    "RankTags",
    "Recall",
    "Synthetic",
    "SyntheticPairs",
    "Task",
    "Text",
    "Tokens",
    "WhichLanguage",
]
