"""The families of two towers: an encoder with a decoder that reads it, and decoders in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import ScalingError, under
from scaling.config.schema import Line, Recipe, check_keys, overlay, recipe
from scaling.config.shape import Shape
from scaling.model.assembly import assembled, built
from scaling.model.context import Cache
from scaling.model.contract import Memory
from scaling.model.family import (
    Family,
    Loss,
    OneTower,
    Output,
    Tower,
    check_reads,
    check_writes,
    share_tables,
    targets_of,
    vectors,
)
from scaling.model.stacks import Transparent

TOWER = ("embedding", "position", "pattern", "block", "blocks", "stack")


class BiLM(OneTower):
    """Two language models in opposite directions that share the embedding and the head. (Peters et al. 2018, ELMo)

    With a head of tokens it learns −Σ ln p(x_t | x_{<t}) from the forward model and −Σ ln p(x_t | x_{>t}) from the
    backward one; the forward model alone is evaluated, and generates. A head of labels reads Σ_j softmax(s)_j [f_j;
    b_j], j = 0 … N, with s learned: h_0 is the embedding and h_N the stack's output. The paper's factor γ is left out,
    since a head scales what it reads.
    """

    family = "decoder"
    decoder: Tower

    def __init__(self, size: Mapping[str, Any], **common: Any):
        super().__init__(size, **common)
        check_writes(self.decoder)
        if self.decoder.pattern.ahead:
            name = type(self.decoder.pattern).__name__
            raise ScalingError("each direction is to predict what comes next", key="pattern", value=name, fix="Causal")
        shape = Shape.of(size)
        self.backwards = Tower(shape, *assembled(shape, **{key: common[key] for key in TOWER if key in common}))
        self.backwards.embedding = self.decoder.embedding
        self.learns_previous = self.head.target == "targets"
        self.mix = None if self.learns_previous else Transparent(self.decoder.stack.executions, 1)

    def head_shape(self, shape: Shape, head: Any) -> Shape:
        return replace(shape, width=2 * shape.width) if head.kind.target == "labels" else shape

    def labels_like(self, tokens: Tensor) -> Tensor:
        return tokens if self.learns_previous else super().labels_like(tokens)

    def forward(self, batch: Batch, cache: Cache | None = None) -> Output:
        if self.mix is None:
            return self.decoder(batch, cache=cache)
        if self.decoder.prompt is not None:
            fix = "take another tuning"
            raise ScalingError("layers that a prompt lengthens are not mixed", key="tuning", value="Prompt", fix=fix)
        forwards, backwards = [], []
        plain = Batch(batch.tokens, batch.targets, documents=batch.documents, positions=batch.positions)
        output, behind = self.decoder(plain, layers=forwards), self._backwards(batch, backwards)
        (mixed,) = self.mix([torch.cat([ahead, back.flip(1)], -1) for ahead, back in zip(forwards, backwards)])
        return replace(output, hidden=mixed, auxiliary=_summed(output.auxiliary, behind.auxiliary))

    def loss(self, batch: Batch, smoothing: float = 0.0) -> Loss:
        loss = super().loss(batch, smoothing)
        if not self.learns_previous:
            return loss
        behind, previous = self._backwards(batch), targets_of(self.head, batch, "labels")
        hidden = vectors(self.head, replace(behind, hidden=behind.hidden.flip(1), documents=batch.documents), batch)
        backwards = self.head.loss(hidden, previous, smoothing).sum() / (previous != IGNORE).sum().clamp(min=1)
        return Loss(loss.tokens, {**_summed(loss.auxiliary, behind.auxiliary), "backwards": backwards})

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        counts = super().counts(batch)
        if self.learns_previous:
            counts["backwards"] = (targets_of(self.head, batch, "labels") != IGNORE).sum()
        return counts

    def _backwards(self, batch: Batch, layers: list[Tensor] | None = None) -> Output:
        """The backward model's pass over the rows from their end; its positions count from there."""
        documents = None if batch.documents is None else batch.documents.flip(1)
        return self.backwards(Batch(batch.tokens.flip(1), batch.targets, documents=documents), layers=layers)


def _summed(some: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The auxiliary losses of two towers, by name."""
    return {**some, **{name: some[name] + loss if name in some else loss for name, loss in others.items()}}


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
        common: dict[str, Any] = dict(zip(TOWER, (embedding, position, pattern, block, blocks, stack), strict=True))
        self.encoder = _tower("encoder", size, common, encoder)
        self.decoder = _tower("decoder", size, common, decoder)
        check_reads(self.encoder, "encoder.block.branches", "put it into decoder.block.branches")
        if self.encoder.shape.width != self.decoder.shape.width:
            width, fix = self.encoder.shape.width, f"the decoder reads vectors of {self.decoder.shape.width}"
            raise ScalingError("encoder and decoder differ in width", key="size.encoder.width", value=width, fix=fix)
        with under("decoder") if "stack" in decoder else nullcontext():
            check_writes(self.decoder)
        if share == "stacks":
            _share(self.encoder.stack, self.decoder.stack)
        layers = self.encoder.stack
        with under("memory"):
            self.memory: Memory = recipe("memory", memory)(layers.executions, self.decoder.stack.executions)
        if self.memory.reads == "every layer" and layers.looks_ahead:
            kind, fix = type(self.memory).__name__, f"take Last, or a stack other than {type(layers).__name__}"
            what = "layers of different lengths have no mean"
            raise ScalingError(what, key="memory.kind", value=kind, fix=fix)
        self.head = built("head", head, self.decoder.shape)
        share_tables({"encoder": self.encoder, "decoder": self.decoder}, {"head": self.head}, tie)

    def encode(self, batch: Batch) -> Output:
        """The encoder's output on the source."""
        if batch.source is None:
            what = "an encoder-decoder reads a source, and the objective makes none"
            raise ScalingError(what, key="objective", fix="take objective=SpanCorruption or another that makes pairs")
        layers: list[Tensor] | None = [] if self.memory.reads == "every layer" else None
        source = Batch(batch.source, batch.source, documents=batch.source_documents, positions=batch.source_positions)
        output = self.encoder(source, layers=layers)
        return replace(output, memories=self.memory(layers or [output.hidden]))

    def decode(self, batch: Batch, memory: Any, cache: Cache | None = None) -> Output:
        """The decoder's output, given the encoder's."""
        target = Batch(batch.tokens, batch.targets, batch.documents, batch.positions, batch.prefix)
        output = self.decoder(target, memory=memory, cache=cache)
        return replace(output, auxiliary=_summed(memory.auxiliary, output.auxiliary))

    def forward(self, batch: Batch, cache: Cache | None = None) -> Output:
        return self.decode(batch, self.encode(batch), cache)


def _share(encoder: Any, decoder: Any) -> None:
    """Give the decoder's stack every parameter of the encoder's, under the same name, as T5's graphs did (Raffel et
    al. 2019).
    """
    decoder_parameters = dict(decoder.named_parameters())
    for name, parameter in encoder.named_parameters():
        if name not in decoder_parameters or decoder_parameters[name].shape != parameter.shape:
            what = f"the decoder's stack has no {name} of the encoder's shape"
            fix = "let both have the same layers and pieces, but for cross-attention"
            raise ScalingError(what, key="share", value="stacks", fix=fix)
        owner, _, last = name.rpartition(".")
        setattr(decoder.get_submodule(owner), last, parameter)


def _tower(name: str, size: Mapping[str, Any], common: Mapping[str, Line], own: Mapping[str, Any]) -> Tower:
    """A tower from the common lines under its own. An error is placed where the key really is: in `own` or above
    it.
    """
    both = {key: value for key, value in size.items() if key not in ("encoder", "decoder")}
    shape = Shape.of({**both, **(size.get(name) or {})})
    with under(name):
        check_keys(own, dict.fromkeys(common, Any), "a tower")
    lines, recipes = overlay(dict(common), dict(own)), {}
    blocks = lines.pop("blocks")
    for slot, line in lines.items():
        try:
            recipes[slot] = recipe(slot, line)
        except ScalingError as error:
            inner = error.under(slot)
            *above, key = str(inner.key).split(".")
            is_own = _stands(own, [*above, key]) or _stands(own, [*above, "kind"])  # a line with a kind replaces
            raise (inner.under(name) if is_own else inner) from None
    return Tower(shape, *assembled(shape, blocks=blocks, **recipes))


def _stands(tree: Any, keys: list[str]) -> bool:
    """Whether a tree has a value at the end of these keys."""
    return not keys or (isinstance(tree, Mapping) and keys[0] in tree and _stands(tree[keys[0]], keys[1:]))
