"""Patterns: which keys a query may see, as a predicate over places. Documents and padding are handled once, in
`render`.
"""

from __future__ import annotations

from torch import Tensor

from scaling.nn.context import Mask, Pattern, Places
from scaling.nn.pattern_around import BlockLocal, Global, RandomBlocks, Window

__all__ = ["Bidirectional", "BlockLocal", "Causal", "Global", "Prefix", "RandomBlocks", "Window", "render"]


class Bidirectional:
    """Every token sees every token. (BERT; the encoders of Vaswani et al. 2017)"""

    ahead, layout = True, None

    def __call__(self, q: Places, k: Places) -> Tensor | None:
        return None


class Causal:
    """A token sees itself and what came before. (Vaswani et al. 2017, the decoder)"""

    ahead, layout = False, None

    def __call__(self, q: Places, k: Places) -> Tensor | None:
        return k.positions[:, None, :] <= q.positions[:, :, None]


class Prefix:
    """A token sees itself, what came before, and the whole prefix of its document. (Raffel et al. 2019, the prefix
    LM)
    """

    ahead, layout = True, None

    def __call__(self, q: Places, k: Places) -> Tensor | None:
        causal = k.positions[:, None, :] <= q.positions[:, :, None]
        if q.prefix is None:
            return causal
        return causal | (k.positions[:, None, :] < q.prefix[:, None, None])


def render(pattern: Pattern, q: Places, k: Places) -> Mask:
    """The pattern within documents, as a mask."""

    def part(start: int, stop: int) -> Tensor | None:
        queries = q if (start, stop) == (0, q.positions.shape[1]) else q.part(start, stop)
        allowed = pattern(queries, k)
        if queries.documents is None or k.documents is None:
            return allowed
        same = (queries.documents[:, :, None] == k.documents[:, None, :]) & (k.documents[:, None, :] > 0)
        return same if allowed is None else allowed & same

    triangular = isinstance(pattern, Causal) and q.plain and k is q
    return Mask(lambda: part(0, q.positions.shape[1]), triangular, pattern, part)
