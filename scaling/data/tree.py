"""Trees over the words of a text, as the head of each: from 1 in the order of the words, 0 the root's."""

from __future__ import annotations

from collections.abc import Sequence

from scaling.base.errors import ScalingError, plural

OUTSIDE: tuple[int, int, int] = (0, 0, 2**31 - 1)  # the place of a token that is in no tree: above all others


def places(heads: Sequence[str | int]) -> list[tuple[int, int, int]]:
    """Each word's depth, its number when the tree is read from the root downwards, from 1, and the number behind its
    last descendant: word i is above j where first_i <= first_j < last_i. Heads that make no tree are refused.
    """
    below: list[list[int]] = [[] for _ in range(len(heads) + 1)]
    for word, head in enumerate(map(str, heads), 1):
        if not head.isdecimal() or int(head) > len(heads):
            what = f"the sentence has {plural(len(heads), 'word')}, and the head is none of them"
            raise ScalingError(what, key="heads", value=head, fix="write its number, or 0")
        below[int(head)].append(word)
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
    if 0 in depth[1:]:  # no path leads there from the root
        raise ScalingError("the heads of the sentence form a circle", key="heads")
    return list(zip(depth[1:], first[1:], last[1:]))
