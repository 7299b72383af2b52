"""Patterns: which keys a query may see, as a predicate over places. Documents and padding are handled once, by `render`
(model/context.py).

Some are around another (`pattern`), which they narrow to what is near, or to which they add keys that are far. What is
added stays within the innermost one, the limit: under `Causal` no pattern sees what comes after.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import or_

import torch
from torch import Tensor

from scaling.base.errors import ScalingError
from scaling.base.numbers import NonNegativeInt, PositiveInt, Seed
from scaling.config.schema import Recipe
from scaling.model.context import Layout, Pattern, Places


class Bidirectional:
    """Every token sees every token. (BERT; the encoders of Vaswani et al. 2017)"""

    ahead, layout = True, None

    def __call__(self, q: Places, k: Places) -> Tensor | None:
        return None


class Causal:
    """A token sees itself and what came before. (Vaswani et al. 2017, the decoder)"""

    ahead, layout, causal = False, None, True

    def __call__(self, q: Places, k: Places) -> Tensor | None:
        return k.positions[:, None, :] <= q.positions[:, :, None]


class Prefix:
    """A token sees itself, what came before, and the whole prefix of its document. (Raffel et al. 2019, the prefix
    LM)
    """

    ahead, layout = True, None

    def __call__(self, q: Places, k: Places) -> Tensor | None:
        causal = k.positions[:, None, :] <= q.positions[:, :, None]
        return causal if q.prefix is None else causal | (k.positions[:, None, :] < q.prefix[:, None, None])


class _Around:
    """A pattern around another."""

    def __init__(self, pattern: Recipe):
        self.pattern: Pattern = pattern()
        self.ahead = self.pattern.ahead
        self.limit: Pattern = getattr(self.pattern, "limit", self.pattern)

    def narrowed(self, near: Tensor, q: Places, k: Places) -> Tensor:
        allowed = self.pattern(q, k)
        return near if allowed is None else allowed & near

    def widened(self, far: Tensor, q: Places, k: Places) -> Tensor | None:
        allowed, limit = self.pattern(q, k), self.limit(q, k)
        return None if allowed is None else allowed | (far if limit is None else far & limit)


class Window(_Around):
    """Of what `pattern` lets it see, a token sees `size` tokens: itself and those before it, or the same number around
    it where the pattern looks ahead. (Vaswani et al. 2017, section 4, restricted self-attention; Beltagy et al. 2020)

    They are `dilation` places apart. Attention then computes blocks of a band and not the square: its cost grows with
    n · `size`.
    """

    def __init__(self, *, size: PositiveInt, dilation: PositiveInt = 1, pattern: Recipe):
        super().__init__(pattern)
        after = size // 2 if self.ahead else 0
        self.layout = Layout((size - 1 - after) * dilation, after * dilation, dilation)

    def __call__(self, q: Places, k: Places) -> Tensor | None:
        offset = k.positions[:, None, :] - q.positions[:, :, None]
        near = (offset >= -self.layout.back) & (offset <= self.layout.ahead)
        if self.layout.step > 1:
            near = near & (offset % self.layout.step == 0)
        return self.narrowed(near, q, k)


class BlockLocal(_Around):
    """Of what `pattern` lets it see, a token sees its own block of `size` tokens, `before` blocks before that and
    `after` blocks after it. (Liu et al. 2018, section 4.2.4, local attention; Zaheer et al. 2020, section 2)

    A document's blocks are counted from its first token. The cost grows with n · `size` · (`before` + 1 + `after`).
    """

    def __init__(self, *, size: PositiveInt, before: NonNegativeInt = 0, after: NonNegativeInt = 0, pattern: Recipe):
        super().__init__(pattern)
        self.size, self.before, self.after = size, before, after if self.ahead else 0
        self.layout = Layout(before * size, self.after * size, block=size)

    def __call__(self, q: Places, k: Places) -> Tensor | None:
        offset = (k.positions // self.size)[:, None, :] - (q.positions // self.size)[:, :, None]
        return self.narrowed((offset >= -self.before) & (offset <= self.after), q, k)


class Global(_Around):
    """Besides what `pattern` lets it see, every token sees the first `tokens` of its document, and these see all.
    (Beltagy et al. 2020, section 3.1; Zaheer et al. 2020, section 2)
    """

    def __init__(self, *, tokens: PositiveInt, pattern: Recipe):
        super().__init__(pattern)
        self.tokens, inner = tokens, getattr(self.pattern, "layout", None)
        self.layout = None if inner is None else replace(inner, first=max(tokens, inner.first))

    def __call__(self, q: Places, k: Places) -> Tensor | None:
        q_first, k_first = q.positions < self.tokens, k.positions < self.tokens
        return self.widened(q_first[:, :, None] | k_first[:, None, :], q, k)


class RandomBlocks(_Around):
    """Besides what `pattern` lets it see, each block of `size` tokens sees `blocks` blocks drawn by `seed`. (Zaheer et
    al. 2020, section 2)

    They are drawn without repetition, one from each of `blocks` equal parts of those that it may see in a text of
    `length` tokens; the `skip` first blocks and those up to `near` blocks away are left out, because BigBird sees them
    already. A draw is a function of the seed, the block and the part, so that a longer row changes nothing.
    """

    def __init__(
        self,
        *,
        size: PositiveInt,
        blocks: PositiveInt,
        seed: Seed,
        length: PositiveInt,
        near: NonNegativeInt = 1,
        skip: NonNegativeInt = 0,
        pattern: Recipe,
    ):
        super().__init__(pattern)
        self.size, self.blocks, self.seed = size, blocks, seed
        self.near, self.skip, self.count = near, skip, -(-length // size)
        inner = getattr(self.pattern, "layout", None)
        if inner is not None and inner.block not in (None, size):
            what = f"the pattern inside has blocks of {inner.block} tokens"
            raise ScalingError(what, key="size", value=size, fix="give both the same size")
        is_sparse = inner is None or inner.step > 1 or inner.drawn is not None
        self.layout = None if inner is None or is_sparse else replace(inner, block=size, drawn=self.drawn)

    def drawn(self, block: Tensor) -> Tensor:
        """The blocks that each block sees besides [… r]; −1: none, where too few are left."""
        return torch.stack([self._drawn(block, part) for part in range(self.blocks)], -1)

    def _drawn(self, block: Tensor, part: int) -> Tensor:
        """The one of that part. It is made number by number, as a compiled mask has to be."""
        before = (block - self.near - self.skip).clamp(min=0)
        beyond = (block + self.near + 1).clamp(min=self.skip)
        left = before + (self.count - beyond).clamp(min=0) if self.ahead else before
        low, high = part * left // self.blocks, (part + 1) * left // self.blocks
        number = low + _hash(self.seed, block * self.blocks + part) % (high - low).clamp(min=1)
        chosen = torch.where(number < before, self.skip + number, beyond + number - before)
        return torch.where(high > low, chosen, -1)

    def __call__(self, q: Places, k: Places) -> Tensor | None:
        query_block, other = q.positions // self.size, (k.positions // self.size)[:, None, :]
        far = [self._drawn(query_block, part)[:, :, None] == other for part in range(self.blocks)]
        return self.widened(reduce(or_, far), q, k)


def _hash(seed: int, numbers: Tensor) -> Tensor:
    """63 bits for each number, which depend on it and the seed alone, on every device (Murmur3's finaliser)."""
    x = numbers + (seed * 0x9E3779B97F4A7C15 & (1 << 62) - 1)
    for factor in (-0xAE502812AA7333, -0x3B314601E57A13AD):
        x = (x ^ (x >> 33 & 0x7FFFFFFF)) * factor
    return (x ^ (x >> 33 & 0x7FFFFFFF)) & (1 << 63) - 1
