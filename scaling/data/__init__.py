"""From any corpus to `batch(step)`: sources, their order, and the kinds that a `data:` line may name."""

KINDS = {
    "mixture": ("Mixture",),
    "synthetic.language": ("Synthetic", "SyntheticPairs"),
    "synthetic.list_ops": ("ListOps",),
    "synthetic.tasks": ("Copy", "LanguageSwitch", "RankTags", "Recall", "WhichLanguage"),
    "task.task": ("Task",),
    "text": ("Text",),
    "tokens": ("Tokens",),
}
