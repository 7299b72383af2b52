"""Tower: an embedding under a stack, with the positions and the mask that they share. Each family has one or two."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.build import Recipe
from scaling.errors import ScalingError
from scaling.nn.context import Cache, Context, Mask, Places
from scaling.nn.pattern import render
from scaling.shape import Shape


@dataclass
class Output:
    """What a forward pass returns: the last hidden vectors, and the auxiliary losses of the pieces by name."""

    hidden: Tensor
    auxiliary: dict[str, Tensor] = field(default_factory=dict)


class Tower(nn.Module):
    def __init__(
        self, shape: Shape, *, embedding: Recipe, position: Recipe, pattern: Recipe, block: Recipe, stack: Recipe
    ):
        super().__init__()
        self.shape, self.pattern = shape, pattern()
        self.embedding = _made("embedding", embedding, shape)
        self.stack = _made(
            "stack",
            stack,
            shape,
            lambda: _made("block", block, shape),
            lambda: _made("position", position, shape, self.pattern),
        )

    def crosses(self) -> bool:
        """Whether some piece is a cross-attention."""
        return any(getattr(piece, "reads_memory", False) for piece in self.modules())

    def forward(
        self,
        tokens: Int[Tensor, "b t"],
        *,
        positions: Int[Tensor, "b t"] | None = None,
        documents: Int[Tensor, "b t"] | None = None,
        prefix: Int[Tensor, " b"] | None = None,
        segments: Int[Tensor, "b t"] | None = None,
        memory: Float[Tensor, "b s w"] | None = None,
        memory_documents: Int[Tensor, "b s"] | None = None,
        cache: Cache | None = None,
    ) -> Output:
        places = Places.of(tokens, positions, documents, prefix, start=0 if cache is None else cache.length)
        keys = places if cache is None else places.after(cache.places)
        context = Context(
            places, keys, render(self.pattern, places, keys), self.stack.position(0), memory=memory, cache=cache
        )
        if memory is not None:
            context.memory_mask = _memory_mask(documents, memory_documents)
        hidden = self.stack(self.embedding(tokens, context, segments), context)
        if cache is not None:
            cache.places = keys
        return Output(hidden, context.auxiliary)


def _memory_mask(documents: Tensor | None, memory_documents: Tensor | None) -> Mask:
    """Which source tokens a target token may read: those of its own document, or all that are not padding."""
    if memory_documents is None:
        return Mask()
    real = (memory_documents > 0)[:, None, :]
    if documents is None:
        return Mask(real)
    return Mask(real & (documents[:, :, None] == memory_documents[:, None, :]))


def _made(slot: str, recipe: Recipe, *shared: object) -> Any:
    try:
        return recipe(*shared)
    except ScalingError as error:
        # A stack makes its blocks and positions; their mistakes are told under their own lines, beside the stack's.
        beside = slot == "stack" and str(error.key).startswith(("block.", "position."))
        raise error if beside else error.under(slot) from None
