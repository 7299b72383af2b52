"""Places: where the tokens of a batch stand."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Places:
    """Where tokens stand: position within the document, which document (0 is padding), and the length of a prefix.

    `plain` says that positions are 0, 1, 2, … and each row is one document, so that kernels may use what they know of
    that.
    """

    positions: Tensor  # [b or 1, t]
    documents: Tensor | None = None  # [b, t]
    prefix: Tensor | None = None  # [b]
    plain: bool = False

    @staticmethod
    def of(
        tokens: Tensor,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
        prefix: Tensor | None = None,
        start: int = 0,
    ) -> Places:
        """The places of `tokens` [b t]; positions not given count from `start`, or from each document's first token."""
        plain = positions is None and documents is None
        if positions is None and documents is not None:
            positions = within(documents)
        elif positions is None:
            positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)[None]
        assert positions is not None
        return Places(positions, documents, prefix, plain)

    def after(self, past: Places | None) -> Places:
        """The places of the cached tokens `past` and of these, in order."""
        if past is None:
            return self
        rows = max(self.positions.shape[0], past.positions.shape[0])
        positions = torch.cat([past.positions.expand(rows, -1), self.positions.expand(rows, -1)], 1)
        documents = None
        if self.documents is not None and past.documents is not None:
            documents = torch.cat([past.documents, self.documents], 1)
        return Places(positions, documents, self.prefix)

    def select(self, rows: Tensor) -> Places:
        def pick(tensor: Tensor | None) -> Tensor | None:
            return tensor if tensor is None or tensor.shape[0] == 1 else tensor.index_select(0, rows)

        positions = pick(self.positions)
        assert positions is not None
        return Places(positions, pick(self.documents), pick(self.prefix), self.plain)


def within(documents: Tensor) -> Tensor:
    """Each token's distance from the first token of its document."""
    index = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    first = torch.ones_like(documents, dtype=torch.bool)
    first[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return index - torch.where(first, index, 0).cummax(1).values
