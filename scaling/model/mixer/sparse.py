"""Attention with a pattern of its own within that of the stack: block-local, BigBird, Longformer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from scaling.base.errors import ScalingError
from scaling.base.numbers import NonNegativeInt, PositiveInt, Seed
from scaling.config.shape import Shape
from scaling.model import patterns
from scaling.model.context import Context, Pattern
from scaling.model.mixer.attention import Attention, Projections, attend, with_first
from scaling.model.mixer.bands import in_order

Limit = Callable[[], Pattern]


class _Patterned(Attention):
    """Attention with the pattern that `line` describes: layers of the same line read the same mask."""

    line: tuple[int, ...]

    @abstractmethod
    def pattern(self, limit: Limit) -> Pattern:
        """The pattern within that of the stack."""

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, context: Context) -> Tensor:
        limit = context.mask.pattern
        mask = context.once(
            ("within", type(self), self.line), lambda: replace(context.mask, pattern=self.pattern(lambda: limit))
        )
        return super()._attend(q, k, v, replace(context, mask=mask))


class BlockLocal(_Patterned):
    """softmax(s Q Kᵀ + position) V W_O within blocks of `size` tokens. (Liu et al. 2018, section 4.2.4, local
    attention)

    With `before` and `after` a token sees so many blocks next to its own too; what comes after only in stacks that look
    ahead. The other keys are those of `Attention`.
    """

    def __init__(
        self, shape: Shape, *, size: PositiveInt, before: NonNegativeInt = 0, after: NonNegativeInt = 0, **common: Any
    ):
        super().__init__(shape, **common)
        _check_within(shape, "size", size, "a block of {} tokens")
        self.line = size, before, after

    def pattern(self, limit: Limit) -> Pattern:
        size, before, after = self.line
        return patterns.BlockLocal(size=size, before=before, after=after, pattern=limit)


class BigBird(_Patterned):
    """softmax(s Q Kᵀ + position) V W_O, each block of `block` tokens over its neighbours, the first blocks and some
    drawn ones. (Zaheer et al. 2020, section 2)

    A block sees the `window` blocks around it (or up to its own), the `blocks` first ones, which see everything, and
    `random` others drawn by `seed` (`scaling.model.patterns.RandomBlocks`). The first tokens of the text are its global
    ones (the paper's internal construction). The other keys are those of `Attention`.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        seed: Seed,
        block: PositiveInt = 64,
        window: PositiveInt = 3,
        blocks: PositiveInt = 2,
        random: PositiveInt = 3,
        **common: Any,
    ):
        super().__init__(shape, **common)
        _check_within(shape, "window", window, "a window of {} tokens", block)
        _check_within(shape, "blocks", blocks, "{} global tokens", block)
        self.line = block, window, blocks, random, seed, shape.length

    def pattern(self, limit: Limit) -> Pattern:
        block, window, blocks, random, seed, length = self.line
        after = window // 2 if limit().ahead else 0
        before = window - 1 - after
        near = partial(patterns.BlockLocal, size=block, before=before, after=after, pattern=limit)
        random_blocks = partial(patterns.RandomBlocks, size=block, blocks=random, seed=seed, length=length)
        far = partial(random_blocks, near=before, skip=blocks, pattern=near)
        return patterns.Global(tokens=blocks * block, pattern=far)


class Longformer(_Patterned):
    """softmax(s Q Kᵀ + position) V W_O over a sliding window of `window` tokens; the first `tokens` of the text see all
    and are seen by all. (Beltagy et al. 2020, section 3)

    A window's tokens are `dilation` places apart. The global tokens see by projections of their own, softmax(s Q_g
    K_gᵀ) V_g; the paper starts them as copies of the others, here they are drawn. A stack that looks back has windows
    alone, as the paper's language model, whose heads differ in dilation. The other keys are those of `Attention`.
    """

    takes_queries = False

    def __init__(
        self, shape: Shape, *, window: PositiveInt, dilation: PositiveInt = 1, tokens: NonNegativeInt = 0, **common: Any
    ):
        super().__init__(shape, **common)
        self.tokens, self.line = tokens, (window, tokens, dilation)
        _check_within(shape, "window", window, "a window of {} tokens")
        _check_within(shape, "tokens", tokens, "{} global tokens")
        self.own = Projections(shape, bias=self.key.bias is not None) if tokens else None

    def _mixed(self, x: Tensor, context: Context, queries: Tensor | None) -> Float[Tensor, "b t h e"]:
        mixed = super()._mixed(x, context, None)
        return mixed if self.own is None else self._with_global(mixed, *self.own.project(x, queries=x), context)

    def pattern(self, limit: Limit) -> Pattern:
        window, tokens, dilation = self.line
        near = partial(patterns.Window, size=window, dilation=dilation, pattern=limit)
        return patterns.Global(tokens=tokens, pattern=near) if tokens else near()

    def _with_global(self, mixed: Tensor, q: Tensor, k: Tensor, v: Tensor, context: Context) -> Tensor:
        """The heads' outputs, those of the global tokens by their own projections."""
        if not context.mask.pattern.ahead:
            what, key = "a causal stack has no tokens that see the whole text", "model.block.mixer.tokens"
            raise ScalingError(what, key=key, value=self.tokens, fix="take tokens: 0")
        q, k = self._placed(q, k, context, context.places)
        k, v = context.extended(self, **{"global key": k, "global value": v})
        settings = {"scale": self.scale, "dropout": self.dropout if self.training else 0.0}
        if not in_order(context):
            is_global = (context.places.positions < self.tokens)[..., None, None]
            return torch.where(is_global, attend(q, k, v, context, **settings), mixed)
        first = min(self.tokens, k.shape[1]) - (k.shape[1] - q.shape[1])
        return with_first(mixed, first, q, k, v, context, **settings)


def _check_within(shape: Shape, key: str, value: int, what: str, times: int = 1) -> None:
    """Refuse what reaches beyond a window of the model."""
    if value * times > shape.length:
        fix = f"take at most {shape.length // times}, or a larger size.length"
        raise ScalingError(f"{what.format(value * times)} in texts of {shape.length}", key=key, value=value, fix=fix)
