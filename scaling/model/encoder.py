from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from scaling.batch import Batch
from scaling.errors import ScalingError
from scaling.model.assembly import built
from scaling.model.family import Family, Output, Tower, share_tables
from scaling.nn.context import Cache
from scaling.nn.contract import Head
from scaling.schema import Checked, Recipe
from scaling.shape import Shape


class Encoder(Family):
    """A bidirectional stack with a head: masked language models and classifiers. (Devlin et al. 2018, BERT)

    `sentence` is a second head, over the whole sequence (next sentence), whose loss is added where a batch has labels;
    `boundary` is a third, which predicts a hidden span from the tokens next to it (SpanBERT).
    `tie: [encoder, head]` lets the head predict by the embedding's table. `blocks` names those that differ, and how.
    """

    family = "encoder"

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
        sentence: Recipe | None = None,
        boundary: Recipe | None = None,
    ):
        super().__init__()
        shape = Shape.of(size)
        self.encoder = Tower(
            shape,
            embedding=embedding,
            position=position,
            pattern=pattern,
            block=block,
            blocks=blocks,
            stack=stack,
        )
        if self.encoder.crosses():
            raise ScalingError(
                "cross-attention reads an encoder, and this is one",
                key="block.branches",
                value="cross",
                fix="leave out cross, or take model.kind=EncoderDecoder",
            )
        self.head = built("head", head, shape)
        self.sentence = built("sentence", sentence, shape) if sentence else None
        self.boundary = built("boundary", boundary, shape) if boundary else None
        if self.encoder.stack.shortens and self.head.reads != "text":
            raise ScalingError(
                f"the head {type(self.head).__name__} reads a vector for every token, and the stack makes fewer",
                key="stack.kind",
                value=type(self.encoder.stack).__name__,
                fix="take UpsampledFunnel, or a head that reads the whole text, as Sequence",
            )
        share_tables({"encoder": self.encoder}, {"head": self.head}, tie)
        if self.boundary is not None and "head" in tie:
            self.boundary.tie(self.encoder.embedding)

    def forward(self, batch: Batch, cache: Cache | None = None) -> Output:
        with self.chosen(batch):
            return self.encoder(
                batch.tokens,
                positions=batch.positions,
                documents=batch.documents,
                prefix=batch.prefix,
                segments=batch.segments,
                tree=batch.tree,
            )

    def decode(self, batch: Batch, memory: Output | None, cache: Cache | None = None) -> Output:
        raise ScalingError(
            "an encoder sees what comes after and cannot write",
            key="model.kind",
            value="Encoder",
            fix="take a Decoder or an EncoderDecoder",
        )

    def further(self, batch: Batch) -> dict[str, tuple[Head, Tensor | None]]:
        sentence = None if batch.labels is None else self.sentence
        heads = {"sentence": sentence, "boundary": self.boundary}
        return {name: (head, None) for name, head in heads.items() if head is not None}
