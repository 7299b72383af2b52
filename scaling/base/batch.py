"""Batch: the tensors of one step, as an objective makes them and a model takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what reads examples needs no tensors, and torch takes seconds to import
    import torch
    from torch import Tensor

IGNORE = -100  # a target that bears no loss
# What a spare row is filled with.
SPARE = {"targets": IGNORE, "labels": IGNORE, "documents": 1, "source_documents": 1, "examples": -1}


@dataclass(frozen=True)
class Batch:
    """One global, per-rank or micro batch; `b` rows of `t` tokens, and `s` source tokens where there is an encoder too.

    A decoder and an encoder read `tokens`; an encoder-decoder reads `source` into its encoder and `tokens` (the targets
    shifted right) into its decoder. What is None takes its plain meaning: one document a row, positions from 0.
    """

    tokens: Tensor  # [b t]
    targets: Tensor  # [b t], IGNORE where there is no loss
    documents: Tensor | None = None  # [b t], which packed document a token belongs to; 0 is padding
    positions: Tensor | None = None  # [b t], position within the document
    prefix: Tensor | None = None  # [b], how many leading tokens see one another (prefix LM)
    segments: Tensor | None = None  # [b t], BERT's sentence A (0) or B (1)
    labels: Tensor | None = None  # targets for the text: [b] or [b k], [b c], [b t] or [b 2] (docs/pieces.md)
    reads: Tensor | None = None  # [b k], where the vectors are that a head of the whole text reads; −1: none
    language: Tensor | None = None  # [b], the weight of a row's loss of next tokens, relative to its label's; None: 1
    examples: Tensor | None = None  # [b], which example of a task a row is of; −1: none
    starts: Tensor | None = None  # [b], which token of its document a row begins with, where a document has several
    source: Tensor | None = None  # [b s]
    source_documents: Tensor | None = None  # [b s]
    source_positions: Tensor | None = None  # [b s]
    # [b t 3], the place of a token in the tree of its document: its depth, 0 of what is in none, the number of its node
    # and that behind its last descendant, counted downwards. Node i is above j where first_i <= first_j < last_i.
    tree: Tensor | None = None
    domains: Tensor | None = None  # [b], the number of a row's domain, where the data are a mixture
    truth: Tensor | None = None  # [b t], the source's own loss of each target, where its law is known

    @property
    def rows(self) -> int:
        return self.tokens.shape[0]

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """The same batch with `function` applied to every tensor it holds."""
        return self._mapped(lambda _, tensor: function(tensor))

    def to(self, device: torch.device | str) -> Batch:
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def micro(self, start: int, stop: int) -> Batch:
        """Rows `start` to `stop`: one rank's part, or one accumulation step of it."""
        return self.map(lambda tensor: tensor[start:stop])

    def spare(self) -> Batch:
        """One row of the same widths without a target, for those who must compute where no row is left for them."""
        return self._mapped(lambda name, tensor: tensor.new_full((1, *tensor.shape[1:]), SPARE.get(name, 0)))

    def _mapped(self, function: Callable[[str, Tensor], Tensor]) -> Batch:
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: function(name, tensor) for name, tensor in tensors.items() if tensor is not None})
