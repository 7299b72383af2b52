"""What the three families have in common: a loss over a batch, and tables that are tied."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from scaling.batch import IGNORE, Batch
from scaling.errors import ScalingError, nearest
from scaling.model.tower import Output, Tower
from scaling.nn.context import Cache
from scaling.nn.contract import Head, TiedHead


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
            mend="choose another objective or another head",
        )
    return targets


def mean_loss(head: Head, hidden: Tensor, batch: Batch, smoothing: float) -> Tensor:
    """The head's loss, averaged over the targets that count."""
    return head.loss(hidden, _targets(head, batch), smoothing).sum() / counted(head, batch).clamp(min=1)


def counted(head: Head, batch: Batch) -> Tensor:
    """How many targets of a head bear a loss."""
    return (_targets(head, batch) != IGNORE).sum()


def share_tables(tables: dict[str, Tower], head: Head, names: list[str]) -> None:
    """Let the named parts share the vectors of one embedding, that of the first tower among them: the other towers read
    them, the head predicts by them.
    """
    parts = [*tables, "head"]
    for name in names:
        if name not in parts:
            raise ScalingError("no such part to tie", key="tie", value=name, mend=nearest(name, parts))
    if not names:
        return
    towers = [tables[name] for name in tables if name in names]
    if len(set(names)) < 2 or not towers:
        raise ScalingError("tying takes two parts", key="tie", value=names, mend=f"name two of {', '.join(parts)}")
    first = towers[0].embedding
    for tower in towers[1:]:
        if tower.embedding.form != first.form:
            raise ScalingError("tables of different shapes cannot be tied", key="tie", value=names)
        tower.embedding.tie(first)
    if "head" in names:
        if not isinstance(head, TiedHead):
            kind = type(head).__name__
            raise ScalingError(f"the head {kind} has no table to tie", key="tie", value=names, mend="leave out head")
        head.tie(first)
