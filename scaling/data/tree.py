"""Trees over the words of a text, as the head of each: from 1 in the order of the words, 0 the root's."""

from __future__ import annotations

from collections.abc import Sequence

OUTSIDE: tuple[int, int, int] = (0, 0, 2**31 - 1)  # the place of a token that is in no tree: above all others


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


def places(heads: Sequence[int]) -> list[tuple[int, int, int]]:
    """Each word's depth, its number when the tree is read from the root downwards, from 1, and the number behind its
    last descendant: word i is above j where first_i <= first_j < last_i. The heads form no circle.
    """
    below: list[list[int]] = [[] for _ in range(len(heads) + 1)]
    for word, head in enumerate(heads, 1):
        below[head].append(word)
    depth, first, last = ([0] * len(below) for _ in range(3))
    number, path = 0, [(0, 0)]
    while path:
        word, child = path.pop()
        if child == 0:
            depth[word], first[word] = len(path), number
            number += 1
        if child < len(below[word]):
            path += [(word, child + 1), (below[word][child], 0)]
        else:
            last[word] = number
    return list(zip(depth[1:], first[1:], last[1:]))
