"""Sections: the tokens of each document cut into runs of equal length, counted from its first token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from scaling.nn.context import Places


@dataclass(frozen=True)
class Sections:
    """Which tokens [b s] are in which section of `size` tokens, `count` of them for each row.

    `index` [b s] is each token's place among the sections', or None where rows begin with their document and are cut
    as they are. `places` are those of the sections [b or 1, count]: the document, and the place of the last token of
    a full section.
    """

    size: int
    count: int
    places: Places
    index: Tensor | None = None

    @staticmethod
    def of(keys: Places, size: int) -> Sections:
        if keys.documents is None or keys.documents.is_meta:  # the meta device has no values
            count = -(-keys.positions.shape[1] // size)
            last = torch.arange(1, count + 1, device=keys.positions.device)[None] * size - 1
            return Sections(size, count, Places(last))
        documents = keys.documents
        positions = keys.positions.expand_as(documents)
        before = F.pad(documents, (1, 0))[:, :-1]
        begins = (documents > 0) & ((positions % size == 0) | (documents != before))
        number = (begins.cumsum(1) - 1).clamp(min=0)
        count = int(number.max()) + 1
        index = torch.where(documents > 0, number * size + positions % size, count * size)
        # Padding is written to a last place, which is cut off.
        of_document = documents.new_zeros(len(documents), count + 1)
        last = documents.new_zeros(len(documents), count + 1)
        place = torch.where(documents > 0, number, count)
        of_document.scatter_(1, place, documents)
        last.scatter_(1, place, (positions // size + 1) * size - 1)
        return Sections(size, count, Places(last[:, :-1], of_document[:, :-1]), index)

    def cut(self, x: Tensor) -> Tensor:
        """Tokens [b s …] as sections [b count size …], with zeros where a section has none."""
        if self.index is None:
            return cut(x, self.size)
        whole = self.count * self.size
        index = self.index.view(*self.index.shape, *(1 for _ in x.shape[2:])).expand_as(x)
        placed = x.new_zeros(len(x), whole + 1, *x.shape[2:]).scatter(1, index, x)
        return placed[:, :whole].unflatten(1, (self.count, self.size))


def cut(x: Tensor, size: int) -> Tensor:
    """A row's tokens [b s …] as sections [b c size …], with zeros behind the last."""
    count = -(-x.shape[1] // size)
    x = F.pad(x, (0, 0) * (x.ndim - 2) + (0, count * size - x.shape[1]))
    return x.reshape(len(x), count, size, *x.shape[2:])
