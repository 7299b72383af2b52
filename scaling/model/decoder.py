from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from scaling.batch import Batch
from scaling.errors import ScalingError
from scaling.model.built import built
from scaling.model.family import Family, Output, Tower
from scaling.model.ties import share_tables
from scaling.nn.context import Cache
from scaling.nn.contract import Head
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
