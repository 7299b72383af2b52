"""What the three families have in common: towers, and a loss over a batch.

A tower is an embedding under a stack, with the positions and the mask that they share; each family has one or two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn

from scaling.batch import IGNORE, Batch
from scaling.build import Checked, Recipe
from scaling.errors import ScalingError
from scaling.model.blocks import Blocks
from scaling.nn.context import Cache, Context, Mask, Places
from scaling.nn.contract import Embedding, Head, Mixer, Position, Stack
from scaling.nn.pattern import render
from scaling.shape import Shape

CONTRACTS = {"position": Position, "stack": Stack, "head": Head}


@dataclass
class Output:
    """What a forward pass returns: the last hidden vectors, and the auxiliary losses of the pieces by name.

    `documents` is the document of each vector, where it is known; `memories` is what a decoder reads of an
    encoder: one tensor for all its layers, or one for each.
    """

    hidden: Tensor
    auxiliary: dict[str, Tensor] = field(default_factory=dict)
    documents: Tensor | None = None
    memories: tuple[Tensor, ...] = ()

    def select(self, rows: Tensor) -> Output:
        """These rows, in this order."""
        documents = None if self.documents is None else self.documents[rows]
        return Output(self.hidden[rows], self.auxiliary, documents, tuple(memory[rows] for memory in self.memories))


class Tower(nn.Module):
    def __init__(
        self,
        shape: Shape,
        *,
        embedding: Recipe,
        position: Recipe,
        pattern: Recipe,
        block: Checked,
        blocks: Mapping[str, Any],
        stack: Recipe,
    ):
        super().__init__()
        self.shape, self.pattern = shape, built("pattern", pattern)
        read: set[str] = set()
        self.embedding: Embedding = built("embedding", embedding, shape)
        made = Blocks(shape.noting(read), block, blocks)
        within = replace(shape, width=self.embedding.width)
        self.stack: Stack = built(
            "stack", stack, shape, made, lambda: built("position", position, within, self.pattern)
        )
        made.check()
        self.shape.check_read(read)

    def crosses(self) -> bool:
        """Whether some piece is a cross-attention."""
        return any(isinstance(piece, Mixer) and piece.reads_memory for piece in self.modules())

    def check_writes(self) -> None:
        """Refuse a stack that lets tokens see what comes after them, where the tower is to predict that."""
        if self.stack.looks_ahead:
            kind = type(self.stack).__name__
            raise ScalingError(
                f"{kind} pools tokens with those that come after, which a decoder is to predict",
                key="stack.kind",
                value=kind,
                fix="take Sequential here; an encoder may pool",
            )

    def forward(
        self,
        tokens: Int[Tensor, "b t"],
        *,
        positions: Int[Tensor, "b t"] | None = None,
        documents: Int[Tensor, "b t"] | None = None,
        prefix: Int[Tensor, " b"] | None = None,
        segments: Int[Tensor, "b t"] | None = None,
        memory: Output | None = None,
        cache: Cache | None = None,
        layers: list[Tensor] | None = None,
    ) -> Output:
        """`memory` is the output that cross-attention reads; `layers` collects the stream between blocks."""
        places = Places.of(tokens, positions, documents, prefix, start=0 if cache is None else cache.length)
        keys = places if cache is None else places.after(cache.places)
        context = Context(
            places, keys, render(self.pattern, places, keys), self.stack.position(0), cache=cache, layers=layers
        )
        if memory is not None:
            context.memories, context.memory_mask = memory.memories, _memory_mask(documents, memory.documents)
        hidden = self.stack(self.embedding(tokens, context, segments), context)
        if cache is not None:
            cache.places = keys
        return Output(hidden, context.auxiliary, context.places.documents)


def _memory_mask(documents: Tensor | None, memory_documents: Tensor | None) -> Mask:
    """Which source tokens a target token may read: those of its own document, or all that are not padding."""
    if memory_documents is None:
        return Mask()
    real = (memory_documents > 0)[:, None, :]
    if documents is None:
        return Mask(real)
    return Mask(real & (documents[:, :, None] == memory_documents[:, None, :]))


def built(slot: str, recipe: Recipe, *shared: object) -> Any:
    """The piece of a slot; an error in it is placed under the slot."""
    try:
        piece = recipe(*shared)
        contract = CONTRACTS.get(slot)
        if contract is not None and not isinstance(piece, contract):
            raise ScalingError(
                f"a piece of the slot {slot} declares more than this one does",
                key="kind",
                value=type(piece).__name__,
                fix=f"let it inherit from scaling.nn.contract.{contract.__name__} (docs/pieces.md)",
            )
        return piece
    except ScalingError as error:
        # A stack makes its blocks and positions; their errors are placed under their own lines, not the stack's.
        beside = slot == "stack" and str(error.key).startswith(("block.", "blocks.", "position."))
        raise error if beside else error.under(slot) from None


@dataclass
class Loss:
    """The mean loss of the targets in nats, and the auxiliary losses by name: a second head's, averaged over its own
    targets, and those of pieces (a load balance), averaged over rows.
    """

    tokens: Tensor
    auxiliary: dict[str, Tensor]

    @property
    def total(self) -> Tensor:
        return sum(self.auxiliary.values(), self.tokens)


class Family(nn.Module, ABC):
    """A model: `forward` gives hidden vectors, `head` turns them into predictions and owns the loss."""

    family: ClassVar[Literal["encoder", "decoder", "encoder_decoder"]]
    head: Head

    @abstractmethod
    def forward(self, batch: Batch, cache: Cache | None = None) -> Output:
        """Hidden vectors of the tokens that predict."""

    def encode(self, batch: Batch) -> Output | None:
        """What is read once before anything is written: the encoder's output, where there is one."""
        return None

    def decode(self, batch: Batch, memory: Output | None, cache: Cache | None = None) -> Output:
        """Hidden vectors of the tokens, given what `encode` returned."""
        return self(batch, cache)

    def logits(self, batch: Batch, cache: Cache | None = None) -> Tensor:
        return self.head(self(batch, cache).hidden)

    def losses(self, batch: Batch) -> Tensor:
        """The loss of each target, 0 where it is ignored: what evaluation averages as it needs."""
        return self.head.loss(self(batch).hidden, _targets(self.head, batch))

    def loss(self, batch: Batch, smoothing: float = 0.0) -> Loss:
        """What training minimises."""
        output = self(batch)
        return Loss(mean_loss(self.head, output.hidden, batch, smoothing), output.auxiliary)

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """How many terms each mean of `loss` has, by which the means of parts make that of the whole: `tokens`, a
        second head's by its name, and `rows`, over which the pieces take theirs.
        """
        rows = torch.tensor(batch.rows, device=batch.tokens.device)
        return {"tokens": counted(self.head, batch), "rows": rows}


def _targets(head: Head, batch: Batch) -> Tensor:
    targets = batch.targets if head.target == "targets" else batch.labels
    if targets is None:
        name = type(head).__name__
        raise ScalingError(
            f"the head {name} learns from {head.target}, and the objective makes none",
            key="model.head.kind",
            value=name,
            fix="choose another objective or another head",
        )
    return targets


def mean_loss(head: Head, hidden: Tensor, batch: Batch, smoothing: float) -> Tensor:
    """The head's loss, averaged over the targets that count."""
    return head.loss(hidden, _targets(head, batch), smoothing).sum() / counted(head, batch).clamp(min=1)


def counted(head: Head, batch: Batch) -> Tensor:
    """How many targets of a head bear a loss."""
    return (_targets(head, batch) != IGNORE).sum()
