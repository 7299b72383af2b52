"""Labelled brackets of trees, by the rules of EVALB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.metric import trees
from scaling.metric.answers import texts
from scaling.metric.metric import Metric, f1, ratio
from scaling.metric.trees import Tree

DELETED = frozenset([trees.TRACE, ",", ":", "``", "''", "."])  # tags whose words EVALB takes out (COLLINS.prm)
EQUAL = {"PRT": "ADVP"}


@dataclass(frozen=True, kw_only=True)
class BracketF1(Metric):
    """f1 of labelled brackets, a label and the words that it spans: 2PR / (P + R) over all trees, as EVALB computes it
    with COLLINS.prm. (Black et al. 1991; Sekine & Collins 1997)

    The bracket around a sentence, traces, empty constituents and punctuation do not count, functions are cut off labels
    (NP-SBJ is NP), and PRT is ADVP. A prediction is a tree's sequence (`scaling.metric.trees`), repaired where it is
    unbalanced; it takes words and tags from the reference, whose last text is the tree in brackets. `complete` is the
    fraction of trees without an error.
    """

    main = "f1"
    guessing = 0.0

    def rows(
        self, predictions: Sequence[Any], references: Sequence[Any], groups: Sequence[Hashable] | None = None
    ) -> np.ndarray:
        rows = []
        for prediction, reference in zip(predictions, references, strict=True):
            real = trees.parse(texts(reference)[-1])
            words = [(leaf.label, leaf.word or "") for leaf in real.words() if leaf.label != trees.TRACE]
            predicted, right = brackets(trees.repaired(prediction or "", words)), brackets(real)
            correct = (predicted & right).total()
            rows.append((correct, predicted.total(), right.total(), predicted == right, 1))
        return np.array(rows, float)

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        correct, predicted, real, complete, count = sums.T
        return {
            "f1": f1(correct, predicted, real),
            "precision": ratio(correct, predicted),
            "recall": ratio(correct, real),
            "complete": ratio(complete, count, np.nan),
        }


def brackets(tree: Tree) -> Counter[tuple[str, int, int]]:
    """(label, first word, word after the last) of each constituent that counts, words numbered as EVALB leaves them."""
    found: Counter[tuple[str, int, int]] = Counter()

    def walk(node: Tree, begin: int) -> int:
        if node.word is not None:
            return begin + (node.label not in DELETED)
        end = begin
        for child in node.children:
            end = walk(child, end)
        label = trees.without_function(node.label)
        if end > begin and label not in trees.ROOTS:
            found[EQUAL.get(label, label), begin, end] += 1
        return end

    walk(tree, 0)
    return found
