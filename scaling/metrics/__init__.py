"""Metrics of tasks: predictions compared with references, as sums over examples, and intervals of them.

Every value is higher for better predictions. A prediction of None is an invalid output and counts as wrong.
"""

KINDS = {
    "classes": ("Accuracy", "Correlation", "EntityF1", "F1", "F1AndAccuracy", "GenderParity", "MCC", "TagAccuracy"),
    "text": ("BLEU", "CompoundSplitBLEU", "ExactMatch", "MultiRC", "ROUGE", "ReCoRD", "SQuAD", "SQuAD2"),
    "trees": ("BracketF1",),
}
