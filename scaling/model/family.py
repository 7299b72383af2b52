"""The families of one tower, an encoder and a decoder; and what all families have: towers, and a loss over a batch.

A tower is an embedding under a stack, with the positions and the mask that they share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import ScalingError, nearest
from scaling.config.schema import Checked, Recipe
from scaling.config.shape import Shape
from scaling.model.assembly import assembled, built
from scaling.model.context import Cache, Context, Mask, Notes, Pattern, Places, tokens_at
from scaling.model.contract import Embedding, Head, Mixer, Stack
from scaling.model.patterns import Bidirectional
from scaling.model.prompted import prompted
from scaling.model.watch import watch


@dataclass
class Output:
    """The result of a forward pass: the last hidden vectors, auxiliary losses of the pieces by name, the document of
    each vector, where it is known, and what a decoder reads of an encoder: one tensor for all its layers, or one each.
    """

    hidden: Tensor
    auxiliary: dict[str, Tensor] = field(default_factory=dict)
    documents: Tensor | None = None
    memories: tuple[Tensor, ...] = ()

    @property
    def places(self) -> Places:
        """The positions of the vectors, for those who read them."""
        return Places(torch.arange(self.hidden.shape[1], device=self.hidden.device)[None], self.documents)

    def select(self, rows: Tensor) -> Output:
        """These rows, in this order."""
        documents = None if self.documents is None else self.documents[rows]
        return Output(self.hidden[rows], self.auxiliary, documents, tuple(memory[rows] for memory in self.memories))


class Tower(nn.Module):
    """An embedding under a stack, with the pattern of who sees whom."""

    def __init__(self, shape: Shape, pattern: Pattern, embedding: Embedding, stack: Stack):
        super().__init__()
        self.shape, self.pattern, self.embedding, self.stack = shape, pattern, embedding, stack
        self.prompt: Any = None  # of prompt tuning
        self.weights: Callable[[Tensor], None] | None = None  # is shown every attention's weights
        self.attends: Callable[[Callable[..., str]], None] | None = None  # as `Context.attends`
        self.checkpointing = False  # blocks keep their input alone for the backward pass

    def forward(
        self,
        batch: Batch,
        *,
        tree: Int[Tensor, "b t 3"] | None = None,
        memory: Output | None = None,
        cache: Cache | None = None,
        layers: list[Tensor] | None = None,
    ) -> Output:
        """`memory` is the output that cross-attention reads; `layers` collects the stream between blocks."""
        places = Places.of(batch, 0 if cache is None else cache.length, tree)
        mask = Mask(self.pattern, places, places if cache is None else cache.then(places))
        context = Context(mask, self.stack.position(0), Notes(), cache, layers=layers)
        context.weights, context.attends = self.weights, self.attends
        context.checkpointing = self.checkpointing and self.training
        if memory is not None:
            context.memories, context.memory_mask = memory.memories, Mask(Bidirectional(), places, memory.places)
        if self.prompt is not None:
            return Output(*prompted(self, batch.tokens, batch.segments, context))
        hidden = self.stack(self.embedding(batch.tokens, context, batch.segments), context)
        if cache is not None:
            cache.places = context.keys
        return Output(hidden, dict(context.notes.losses), context.places.documents)


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
    learns_previous = False  # whether `labels` of a batch are the token before each, which one direction predicts
    watch = watch

    @property
    def towers(self) -> dict[str, Tower]:
        """The towers by name, the one that predicts last."""
        return {name: child for name, child in self.named_children() if isinstance(child, Tower)}

    @abstractmethod
    def forward(self, batch: Batch, cache: Cache | None = None) -> Output:
        """Hidden vectors of the tokens that predict."""

    def encode(self, batch: Batch) -> Output | None:
        """The part that is computed once before generation: the encoder's output, where there is one."""

    def decode(self, batch: Batch, memory: Output | None, cache: Cache | None = None) -> Output:
        """Hidden vectors of the tokens, given what `encode` returned."""
        return self(batch, cache)

    def logits(self, batch: Batch, cache: Cache | None = None) -> Tensor:
        return predict(self.head, self(batch, cache), batch)

    def losses(self, batch: Batch) -> Tensor:
        """The loss of each target, 0 where it is ignored: what evaluation averages as it needs."""
        return losses_of(self.head, self(batch), batch)

    def labels_like(self, tokens: Tensor) -> Tensor:
        """Labels of the shape that the model learns from, for rows of such tokens."""
        return self.head.labels_like(tokens)

    def heads_of(self, batch: Batch) -> dict[str, tuple[Head, Tensor | None]]:
        """The heads whose losses are added on this batch, with the weight of each row [b]; `tokens` is the first."""
        return {"tokens": (self.head, None)}

    def loss(self, batch: Batch, smoothing: float = 0.0) -> Loss:
        """The loss that training minimises."""
        output = self(batch)
        means = {
            name: losses_of(head, output, batch, smoothing, weights).sum() / counted(head, batch).clamp(min=1)
            for name, (head, weights) in self.heads_of(batch).items()
        }
        return Loss(means.pop("tokens"), {**output.auxiliary, **means})

    def counts(self, batch: Batch) -> dict[str, Tensor]:
        """The number of terms of each mean of `loss`, by which the means of parts make the total mean: a head's by its
        name, and `rows`, over which the pieces take theirs.
        """
        rows = torch.tensor(batch.rows, device=batch.tokens.device)
        return {name: counted(head, batch) for name, (head, _) in self.heads_of(batch).items()} | {"rows": rows}

    def checkpoint(self, what: Literal["none", "blocks"]) -> None:
        """Choose what training makes again in the backward pass in the place of keeping it."""
        for tower in self.towers.values():
            tower.checkpointing = what == "blocks"


def vectors(head: Head, output: Output, batch: Batch) -> Tensor:
    """The vectors that a head reads: one for each token, or for each of `batch.reads`, the first token's where
    that is None; 0 where nothing is read.
    """
    if head.reads != "text":
        return output.hidden
    if batch.reads is None:
        return output.hidden[:, :1]
    read = tokens_at(output.hidden, batch.reads.clamp(min=0))
    return read.masked_fill((batch.reads < 0)[..., None], 0)


def absent(head: Head, output: Output, batch: Batch) -> dict[str, Any]:
    """The keyword of a head that gives no chance where nothing is read, or where a token is padding."""
    if not head.takes_absent:
        return {}
    if head.reads == "text":
        return {} if batch.reads is None else {"absent": batch.reads < 0}
    return {} if output.documents is None else {"absent": output.documents == 0}


def predict(head: Head, output: Output, batch: Batch) -> Tensor:
    """The prediction of a head."""
    return head(vectors(head, output, batch), **absent(head, output, batch))


def losses_of(
    head: Head, output: Output, batch: Batch, smoothing: float = 0.0, weights: Tensor | None = None
) -> Tensor:
    """The loss of each of a head's targets; those of row i count `weights[i]` times."""
    read, rest = vectors(head, output, batch), absent(head, output, batch)
    losses = head.loss(read, targets_of(head, batch), smoothing, **rest)
    return losses if weights is None else losses * weights[:, None]


def counted(head: Head, batch: Batch) -> Tensor:
    """The number of targets of a head that bear a loss."""
    return (targets_of(head, batch) != IGNORE).sum()


def targets_of(head: Head, batch: Batch, name: str = "") -> Tensor:
    """The targets of a head in a batch: its own, or those of a name."""
    targets = getattr(batch, name or head.target)
    if targets is None:
        kind, fix = type(head).__name__, "choose another objective or another head"
        what = f"the head {kind} learns from {name or head.target}, and the objective makes none"
        raise ScalingError(what, key="model.head.kind", value=kind, fix=fix)
    return targets


def share_tables(towers: Mapping[str, Tower], heads: Mapping[str, Any], names: Sequence[str]) -> None:
    """Make the named parts share the vectors of one embedding, that of the first tower among them: the other towers
    read them, the heads predict by them.
    """
    parts = [*towers, *heads]
    for name in names:
        if name not in parts:
            raise ScalingError("no such part to tie", key="tie", value=name, fix=nearest(name, parts))
    embeddings = [towers[name].embedding for name in towers if name in names]
    if names and (len(set(names)) < 2 or not embeddings):
        raise ScalingError("tying takes two parts", key="tie", value=names, fix=f"name two of {', '.join(parts)}")
    for other in embeddings[1:]:
        if other.form != embeddings[0].form:
            raise ScalingError("tables of different shapes cannot be tied", key="tie", value=names)
        other.tie(embeddings[0])
    for name in heads.keys() & set(names):
        if not hasattr(heads[name], "tie"):
            what = f"the head {type(heads[name]).__name__} has no table to tie"
            raise ScalingError(what, key="tie", value=names, fix=f"leave out {name}")
        heads[name].tie(embeddings[0])


class OneTower(Family):
    """A tower, which has the family's name, under a head, and further heads by name."""

    def __init__(
        self,
        size: Mapping[str, Any],
        further: Mapping[str, Recipe | None] = {},
        *,
        embedding: Recipe,
        position: Recipe,
        pattern: Recipe,
        block: Checked,
        stack: Recipe,
        head: Recipe,
        tie: list[str],
        blocks: Mapping[str, Any] = {},
    ):
        super().__init__()
        shape = Shape.of(size)
        lines: dict[str, Any] = {"embedding": embedding, "position": position, "pattern": pattern, "stack": stack}
        tower = Tower(shape, *assembled(shape, **lines, block=block, blocks=blocks))
        setattr(self, self.family, tower)
        check_reads(tower, "block.branches", "leave it out, or take model.kind=EncoderDecoder")
        self.head = built("head", head, self.head_shape(shape, head))
        for name, line in further.items():
            setattr(self, name, built(name, line, shape) if line else None)
        heads = {name: getattr(self, name) for name in ("head", "language") if getattr(self, name, None) is not None}
        share_tables({self.family: tower}, heads, tie)

    def head_shape(self, shape: Shape, head: Any) -> Shape:
        """The shape of what the head of this recipe reads."""
        return shape


def check_reads(tower: Tower, key: str, fix: str) -> None:
    """Refuse cross-attention in a tower that has no encoder to read."""
    for piece in tower.modules():
        if isinstance(piece, Mixer) and piece.reads_memory:
            raise ScalingError(f"{type(piece).__name__} reads an encoder, and the model has none", key=key, fix=fix)


def check_writes(tower: Tower) -> None:
    """Refuse a stack that lets tokens see what comes after them, where the tower is to predict that."""
    if tower.stack.looks_ahead:
        kind = type(tower.stack).__name__
        what = f"{kind} pools tokens with those that come after, which a decoder is to predict"
        raise ScalingError(what, key="stack.kind", value=kind, fix="take Sequential here; an encoder may pool")


class Encoder(OneTower):
    """A bidirectional stack with a head: masked language models and classifiers. (Devlin et al. 2018, BERT)

    `sentence` is a second head, over the whole sequence (next sentence), whose loss is added where a batch has labels;
    `boundary` is a third, which predicts a hidden span from the tokens next to it (SpanBERT).
    `tie: [encoder, head]` lets the head predict by the embedding's table. `blocks` names those that differ, and how.
    """

    family = "encoder"
    encoder: Tower
    sentence: Head | None
    boundary: Any

    def __init__(
        self, size: Mapping[str, Any], *, sentence: Recipe | None = None, boundary: Recipe | None = None, **common: Any
    ):
        super().__init__(size, {"sentence": sentence, "boundary": boundary}, **common)
        if self.encoder.stack.shortens and self.head.reads != "text":
            what = f"the head {type(self.head).__name__} reads a vector for every token, and the stack makes fewer"
            kind, fix = type(self.encoder.stack).__name__, "take UpsampledFunnel, or a head that reads the whole text"
            raise ScalingError(what, key="stack.kind", value=kind, fix=f"{fix}, as Sequence")
        if self.boundary is not None and "head" in common["tie"]:
            self.boundary.tie(self.encoder.embedding)

    def forward(self, batch: Batch, cache: Cache | None = None) -> Output:
        return self.encoder(batch, tree=batch.tree, cache=cache)

    def decode(self, batch: Batch, memory: Output | None, cache: Cache | None = None) -> Output:
        what = "an encoder cannot write text: each token sees those after it"
        raise ScalingError(what, key="model.kind", value="Encoder", fix="take a Decoder or an EncoderDecoder")

    def heads_of(self, batch: Batch) -> dict[str, tuple[Head, Tensor | None]]:
        further = {"sentence": None if batch.labels is None else self.sentence, "boundary": self.boundary}
        return super().heads_of(batch) | {name: (head, None) for name, head in further.items() if head is not None}


class Decoder(OneTower):
    """A language model: embedding, a causal or prefix stack, a head. (Radford et al. 2018, GPT; Raffel et al. 2019,
    prefix LM)

    `language` is a second head, of every next token, whose loss is added with the objective's weight while the first
    learns a task (Radford et al. 2018, equation 5). `tie: [decoder, head]` lets the head predict by the embedding's
    table, `[decoder, language]` the second. `blocks` names those that differ, and how.
    """

    family = "decoder"
    decoder: Tower
    language: Head | None

    def __init__(self, size: Mapping[str, Any], *, language: Recipe | None = None, **common: Any):
        super().__init__(size, {"language": language}, **common)
        check_writes(self.decoder)

    def forward(self, batch: Batch, cache: Cache | None = None) -> Output:
        return self.decoder(batch, cache=cache)

    def heads_of(self, batch: Batch) -> dict[str, tuple[Head, Tensor | None]]:
        heads = super().heads_of(batch)
        return heads if self.language is None else {**heads, "language": (self.language, batch.language)}
