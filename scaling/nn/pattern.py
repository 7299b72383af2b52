"""Patterns: which keys a query may see, as a predicate over places. Documents and padding are handled once, in
`render`.
"""

from __future__ import annotations

from torch import Tensor

from scaling.nn.context import Mask, Pattern, Places


class Bidirectional:
    """Every token sees every token. (BERT; the encoders of Vaswani et al. 2017)"""

    ahead = True

    def __call__(self, q: Places, k: Places) -> Tensor | None:
        return None


class Causal:
    """A token sees itself and what came before. (Vaswani et al. 2017, the decoder)"""

    ahead = False

    def __call__(self, q: Places, k: Places) -> Tensor | None:
        return k.positions[:, None, :] <= q.positions[:, :, None]


class Prefix:
    """A token sees itself, what came before, and the whole prefix of its document. (Raffel et al. 2019, the prefix
    LM)
    """

    ahead = True

    def __call__(self, q: Places, k: Places) -> Tensor | None:
        causal = k.positions[:, None, :] <= q.positions[:, :, None]
        if q.prefix is None:
            return causal
        return causal | (k.positions[:, None, :] < q.prefix[:, None, None])


def render(pattern: Pattern, q: Places, k: Places) -> Mask:
    """The pattern within documents, as a mask."""
    allowed = pattern(q, k)
    if q.documents is not None and k.documents is not None:
        same = (q.documents[:, :, None] == k.documents[:, None, :]) & (k.documents[:, None, :] > 0)
        allowed = same if allowed is None else allowed & same
    triangular = isinstance(pattern, Causal) and q.plain and k is q
    return Mask(allowed, triangular)
