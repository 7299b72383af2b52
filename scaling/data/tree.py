"""Trees over the words of a text, as the head of each: from 1 in the order of the words, 0 the root's."""

from __future__ import annotations

from collections.abc import Sequence


def depths(heads: Sequence[int]) -> list[int] | None:
    """How many words there are from each up to the root, itself counted; None where the heads form a circle."""
    known: dict[int, int] = {0: 0}
    for word in range(1, len(heads) + 1):
        path, at = [], word
        while at not in known:
            if at in path:
                return None
            path.append(at)
            at = heads[at - 1]
        for below in reversed(path):
            known[below] = known[heads[below - 1]] + 1
    return [known[word] for word in range(1, len(heads) + 1)]
