"""Objectives: from windows of a source to what a model reads and what it must predict.

Each is a pure function of (rows, keys). It is built from what the assembly shares (the vocabulary, the model's length
and its family) and from the keys of its line.
"""

KINDS = {
    "answer": ("Answer",),
    "causal": ("BothWays", "Causal", "Prefix", "Sequence"),
    "distil": ("Distil",),
    "masked": (
        "BertStyle",
        "Deshuffle",
        "DropTokens",
        "Masked",
        "MassStyle",
        "NextSentence",
        "SpanCorruption",
        "Spans",
    ),
}
