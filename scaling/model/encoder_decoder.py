from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from torch import Tensor, nn

from scaling.batch import Batch
from scaling.errors import ScalingError, nearest, under
from scaling.model.assembly import built
from scaling.model.family import Family, Output, Tower, share_tables
from scaling.nn.context import Cache
from scaling.nn.contract import Memory
from scaling.schema import Line, Recipe, overlay, recipe
from scaling.shape import Shape


class EncoderDecoder(Family):
    """An encoder reads the source, a decoder writes the target and reads the encoder. (Vaswani et al. 2017; Raffel et
    al. 2019)

    The slots at the top hold for both; `encoder` and `decoder` overlay them for one, and so do `size.encoder` and
    `size.decoder`. `tie` names the parts that share a table: [encoder, decoder, head] is T5's, [encoder, decoder] T5
    v1.1's, [decoder, head] and [] are the ablations'. `share: stacks` makes the decoder's stack the encoder's, but for
    cross-attention. `memory` is what the decoder reads of the encoder's layers, `blocks` names those that differ, and
    how.
    """

    family = "encoder_decoder"

    def __init__(
        self,
        size: Mapping[str, Any],
        *,
        embedding: Line,
        position: Line,
        pattern: Line,
        block: Line,
        stack: Line,
        encoder: Mapping[str, Any],
        decoder: Mapping[str, Any],
        head: Recipe,
        tie: list[str],
        share: Literal["nothing", "stacks"] = "nothing",
        memory: Line = "Last",
        blocks: Mapping[str, Any] = {},
    ):
        super().__init__()
        common: dict[str, Any] = {
            "embedding": embedding,
            "position": position,
            "pattern": pattern,
            "block": block,
            "blocks": blocks,
            "stack": stack,
        }
        self.encoder = _tower("encoder", size, common, encoder)
        self.decoder = _tower("decoder", size, common, decoder)
        if self.encoder.crosses():
            raise ScalingError(
                "cross-attention is in the encoder, which has nothing to read",
                key="encoder.block.branches",
                value="cross",
                fix="put it into decoder.block.branches",
            )
        if self.encoder.shape.width != self.decoder.shape.width:
            raise ScalingError(
                "encoder and decoder differ in width",
                key="size.encoder.width",
                value=self.encoder.shape.width,
                fix=f"the decoder reads vectors of {self.decoder.shape.width}",
            )
        try:
            self.decoder.check_writes()
        except ScalingError as error:
            raise (error.under("decoder") if _stands(decoder, ["stack"]) else error) from None
        if share == "stacks":
            _share(self.encoder.get_submodule("stack"), self.decoder.get_submodule("stack"))
        self.memory = _memory(memory, self.encoder, self.decoder)
        self.head = built("head", head, self.decoder.shape)
        share_tables({"encoder": self.encoder, "decoder": self.decoder}, {"head": self.head}, tie)

    def encode(self, batch: Batch) -> Output:
        """The encoder's output on the source."""
        if batch.source is None:
            raise ScalingError(
                "an encoder-decoder reads a source, and the objective makes none",
                key="objective",
                fix="take objective=SpanCorruption or another that makes pairs",
            )
        layers: list[Tensor] | None = [] if self.memory.reads == "every layer" else None
        with self.chosen(batch):
            output = self.encoder(
                batch.source,
                positions=batch.source_positions,
                documents=batch.source_documents,
                layers=layers,
            )
        return replace(output, memories=self.memory(layers or [output.hidden]))

    def decode(self, batch: Batch, memory: Output | None, cache: Cache | None = None) -> Output:
        """The decoder's output, given the encoder's."""
        assert memory is not None
        with self.chosen(batch):
            output = self.decoder(
                batch.tokens,
                positions=batch.positions,
                documents=batch.documents,
                prefix=batch.prefix,
                memory=memory,
                cache=cache,
            )
        return replace(output, auxiliary=_sum(memory.auxiliary, output.auxiliary))

    def forward(self, batch: Batch, cache: Cache | None = None) -> Output:
        return self.decode(batch, self.encode(batch), cache)


def _share(encoder: nn.Module, decoder: nn.Module) -> None:
    """Give the decoder's stack every parameter of the encoder's, under the same name, as T5's graphs did (Raffel et
    al. 2019).
    """
    own = dict(decoder.named_parameters())
    for name, parameter in encoder.named_parameters():
        if name not in own or own[name].shape != parameter.shape:
            raise ScalingError(
                f"the decoder's stack has no {name} of the encoder's shape",
                key="share",
                value="stacks",
                fix="let both have the same layers and pieces, but for cross-attention",
            )
        owner, _, last = name.rpartition(".")
        setattr(decoder.get_submodule(owner), last, parameter)


def _sum(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}


def _memory(line: Line, encoder: Tower, decoder: Tower) -> Memory:
    with under("memory"):
        memory: Memory = recipe("memory", line)(encoder.stack.executions, decoder.stack.executions)
    if memory.reads == "every layer" and encoder.stack.looks_ahead:
        raise ScalingError(
            "layers of different lengths have no mean",
            key="memory.kind",
            value=type(memory).__name__,
            fix=f"take Last, or a stack other than {type(encoder.stack).__name__}",
        )
    return memory


def _tower(name: str, size: Mapping[str, Any], common: Mapping[str, Line], own: Mapping[str, Any]) -> Tower:
    """A tower from the common lines under its own. An error is placed where the key really is: in `own` or above
    it.
    """
    both = {key: value for key, value in size.items() if key not in ("encoder", "decoder")}
    shape = Shape.of({**both, **(size.get(name) or {})})
    for key in own:
        if key not in common:
            raise ScalingError("a tower has no such key", key=f"{name}.{key}", fix=nearest(str(key), common))
    lines, recipes = overlay(dict(common), dict(own)), {}
    blocks = lines.pop("blocks")
    for slot, line in lines.items():
        try:
            recipes[slot] = recipe(slot, line)
        except ScalingError as error:
            inner = error.under(slot)
            raise (inner.under(name) if _stands(own, str(inner.key).split(".")) else inner) from None
    return Tower(shape, blocks=blocks, **recipes)


def _stands(tree: Any, keys: list[str]) -> bool:
    for key in keys:
        if not isinstance(tree, Mapping) or key not in tree:
            return False
        tree = tree[key]
    return True
