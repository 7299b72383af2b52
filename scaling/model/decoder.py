"""Decoders: a language model, and two of them in opposite directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from scaling.batch import IGNORE, Batch
from scaling.errors import ScalingError
from scaling.model.assembly import built
from scaling.model.family import Family, Loss, Output, Tower, share_tables, vectors
from scaling.nn.context import Cache
from scaling.nn.contract import Head
from scaling.nn.memory import Transparent
from scaling.schema import Checked, Recipe
from scaling.shape import Shape


class Decoder(Family):
    """A language model: embedding, a causal or prefix stack, a head. (Radford et al. 2018, GPT; Raffel et al. 2019,
    prefix LM)

    `language` is a second head, of every next token, whose loss is added with the objective's weight while the first
    learns a task (Radford et al. 2018, equation 5). `tie: [decoder, head]` lets the head predict by the embedding's
    table, `[decoder, language]` the second. `blocks` names those that differ, and how.
    """

    family = "decoder"

    def __init__(
        self,
        size: Mapping[str, Any],
        *,
        embedding: Recipe,
        position: Recipe,
        pattern: Recipe,
        block: Checked,
        stack: Recipe,
        head: Recipe,
        tie: list[str],
        blocks: Mapping[str, Any] = {},
        language: Recipe | None = None,
    ):
        super().__init__()
        shape = Shape.of(size)
        self.decoder = Tower(
            shape,
            embedding=embedding,
            position=position,
            pattern=pattern,
            block=block,
            blocks=blocks,
            stack=stack,
        )
        if self.decoder.crosses():
            raise ScalingError(
                "cross-attention reads an encoder, and a decoder alone has none",
                key="block.branches",
                value="cross",
                fix="leave out cross, or take model.kind=EncoderDecoder",
            )
        self.decoder.check_writes()
        self.head = built("head", head, self.head_shape(shape, head))
        self.language = built("language", language, shape) if language else None
        heads = {"head": self.head} if self.language is None else {"head": self.head, "language": self.language}
        share_tables({"decoder": self.decoder}, heads, tie)

    def head_shape(self, shape: Shape, head: Any) -> Shape:
        """The shape of what the head of this recipe reads."""
        return shape

    def forward(self, batch: Batch, cache: Cache | None = None) -> Output:
        with self.chosen(batch):
            return self.decoder(
                batch.tokens,
                positions=batch.positions,
                documents=batch.documents,
                prefix=batch.prefix,
                segments=batch.segments,
                cache=cache,
            )

    def further(self, batch: Batch) -> dict[str, tuple[Head, Tensor | None]]:
        return {} if self.language is None else {"language": (self.language, batch.language)}


class BiLM(Decoder):
    """Two language models in opposite directions that share the embedding and the head. (Peters et al. 2018, ELMo)

    With a head of tokens it learns −Σ ln p(x_t | x_{<t}) from the forward model and −Σ ln p(x_t | x_{>t}) from the
    backward one; the forward model alone is evaluated, and generates. A head of labels reads Σ_j softmax(s)_j [f_j;
    b_j], j = 0 … N, with s learned: h_0 is the embedding and h_N the stack's output. The paper's factor γ is left out,
    since a head scales what it reads.
    """

    def __init__(
        self,
        size: Mapping[str, Any],
        *,
        embedding: Recipe,
        position: Recipe,
        pattern: Recipe,
        block: Checked,
        stack: Recipe,
        head: Checked,
        tie: list[str],
        blocks: Mapping[str, Any] = {},
    ):
        lines: dict[str, Any] = {"embedding": embedding, "position": position, "pattern": pattern, "stack": stack}
        super().__init__(size, **lines, block=block, blocks=blocks, head=head, tie=tie)
        if self.decoder.pattern.ahead:
            name = type(self.decoder.pattern).__name__
            raise ScalingError("each direction is to predict what comes next", key="pattern", value=name, fix="Causal")
        self.backwards = Tower(Shape.of(size), **lines, block=block, blocks=blocks)
        self.backwards.embedding = self.decoder.embedding
        self.learns_previous = self.head.target == "targets"
        self.mix = None if self.learns_previous else Transparent(self.decoder.stack.executions, 1)

    def head_shape(self, shape: Shape, head: Any) -> Shape:
        return replace(shape, width=2 * shape.width) if head.kind.target == "labels" else shape

    def labels_like(self, tokens: Tensor) -> Tensor:
        return tokens if self.learns_previous else super().labels_like(tokens)

    def forward(self, batch: Batch, cache: Cache | None = None) -> Output:
        if self.mix is None:
            return super().forward(batch, cache)
        if self.decoder.prompt is not None:
            fix = "take another tuning"
            raise ScalingError("layers that a prompt lengthens are not mixed", key="tuning", value="Prompt", fix=fix)
        forwards, backwards = [], []
        with self.chosen(batch):
            output = self.decoder(batch.tokens, positions=batch.positions, documents=batch.documents, layers=forwards)
            behind = self._backwards(batch, backwards)
        both = [torch.cat([ahead, back.flip(1)], -1) for ahead, back in zip(forwards, backwards, strict=True)]
        (mixed,) = self.mix(both)
        return replace(output, hidden=mixed, auxiliary=_summed(output.auxiliary, behind.auxiliary))

    def loss(self, batch: Batch, smoothing: float = 0.0) -> Loss:
        loss = super().loss(batch, smoothing)
        if not self.learns_previous:
            return loss
        previous = _previous(batch)
        with self.chosen(batch):
            behind = self._backwards(batch)
        hidden = vectors(self.head, replace(behind, hidden=behind.hidden.flip(1), documents=batch.documents), batch)
        losses = self.head.loss(hidden, previous, smoothing)
        backwards = losses.sum() / (previous != IGNORE).sum().clamp(min=1)
        return Loss(loss.tokens, {**_summed(loss.auxiliary, behind.auxiliary), "backwards": backwards})

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        counts = super().counts(batch)
        return {**counts, "backwards": (_previous(batch) != IGNORE).sum()} if self.learns_previous else counts

    def _backwards(self, batch: Batch, layers: list[Tensor] | None = None) -> Output:
        """The backward model's pass over the rows from their end; its positions count from there."""
        documents = None if batch.documents is None else batch.documents.flip(1)
        return self.backwards(batch.tokens.flip(1), documents=documents, layers=layers)


def _previous(batch: Batch) -> Tensor:
    if batch.labels is None:
        raise ScalingError(
            "the backward model learns the token before each, and the objective gives none",
            key="objective.kind",
            fix="take BothWays",
        )
    return batch.labels


def _summed(some: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The auxiliary losses of both directions, by name."""
    return {**some, **{name: some[name] + loss if name in some else loss for name, loss in others.items()}}
