"""Patterns: which keys a query may see, as a predicate over places. Documents and padding are handled once, in
`render`.
"""

from __future__ import annotations

from torch import Tensor

from scaling.build import Recipe
from scaling.nn.context import Mask, Pattern, Places
from scaling.number import PositiveInt


class Bidirectional:
    """Every token sees every token. (BERT; the encoders of Vaswani et al. 2017)"""

    ahead, band = True, None

    def __call__(self, q: Places, k: Places) -> Tensor | None:
        return None


class Causal:
    """A token sees itself and what came before. (Vaswani et al. 2017, the decoder)"""

    ahead, band = False, None

    def __call__(self, q: Places, k: Places) -> Tensor | None:
        return k.positions[:, None, :] <= q.positions[:, :, None]


class Prefix:
    """A token sees itself, what came before, and the whole prefix of its document. (Raffel et al. 2019, the prefix
    LM)
    """

    ahead, band = True, None

    def __call__(self, q: Places, k: Places) -> Tensor | None:
        causal = k.positions[:, None, :] <= q.positions[:, :, None]
        if q.prefix is None:
            return causal
        return causal | (k.positions[:, None, :] < q.prefix[:, None, None])


class Window:
    """Of what `pattern` lets it see, a token sees `size` tokens: itself and those before it, or the same number around
    it where the pattern looks ahead. (Vaswani et al. 2017, section 4, restricted self-attention; Beltagy et al. 2020)

    Attention then computes blocks of a band and not the square: its cost grows with n · `size`.
    """

    def __init__(self, *, size: PositiveInt, pattern: Recipe):
        self.pattern = pattern()
        self.ahead = self.pattern.ahead
        after = size // 2 if self.ahead else 0
        self.band = size - 1 - after, after

    def __call__(self, q: Places, k: Places) -> Tensor | None:
        back, ahead = self.band
        offset = k.positions[:, None, :] - q.positions[:, :, None]
        near = (offset >= -back) & (offset <= ahead)
        allowed = self.pattern(q, k)
        return near if allowed is None else allowed & near


def render(pattern: Pattern, q: Places, k: Places) -> Mask:
    """The pattern within documents, as a mask."""

    def square() -> Tensor | None:
        allowed = pattern(q, k)
        if q.documents is None or k.documents is None:
            return allowed
        same = (q.documents[:, :, None] == k.documents[:, None, :]) & (k.documents[:, None, :] > 0)
        return same if allowed is None else allowed & same

    triangular = isinstance(pattern, Causal) and q.plain and k is q
    return Mask(square, triangular, pattern)
