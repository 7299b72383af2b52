"""Recomputation: what a function keeps for the backward pass is let go, and made again when that reads it. (Chen et al.
2016)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from scaling.nn.context import Context, Notes


def recomputed(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)`, computed a second time in the backward pass, with the same draws of dropout."""
    if not torch.is_grad_enabled():
        return function(*arguments)
    from torch.utils.checkpoint import checkpoint

    return checkpoint(function, *arguments, use_reentrant=False)


def through(block: nn.Module, x: Tensor, context: Context, *more: Any) -> Tensor:
    """A block's output. Where the pass has `checkpointing`, what it was given is kept and nothing of what it made."""
    if not context.checkpointing or not torch.is_grad_enabled() or context.cache is not None:
        return block(x, context, *more)
    given = [part for part in (context, *more) if isinstance(part, Context)]
    before = [_as_it_is(part) for part in given]
    is_first = iter((True,))

    def run(x: Tensor) -> Tensor:
        if next(is_first, False):
            return block(x, context, *more)
        again = {id(part): _as_it_is(copy) for part, copy in zip(given, before, strict=True)}
        return block(x, *(again.get(id(part), part) for part in (context, *more)))

    return recomputed(run, x)


def _as_it_is(context: Context) -> Context:
    """A pass for the second time: what it made once before the block is there, and what the block adds to losses and
    shows is not read again.
    """
    weights = None if context.weights is None else _unseen
    return replace(context, auxiliary=Notes(context.auxiliary), layers=None, weights=weights, _kept=Notes(context.kept))


def _unseen(weights: Tensor) -> None:
    """They were shown the first time."""
