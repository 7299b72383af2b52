"""Pooling: neighbouring tokens of one document become one, exactly where documents are packed or padded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from scaling.nn.context import Places, within


@dataclass(frozen=True)
class Pooling:
    """Windows of two tokens, counted from each document's first; a last token that is left over is a window of its own.

    Among tokens (`among`) a window is at the place of its first token; among windows (`after`) they are counted by
    themselves. Rows with fewer windows than others end in padding.
    """

    before: Places
    among: Places
    first: Int[Tensor, "#b s"]
    last: Int[Tensor, "#b s"]
    window: Int[Tensor, "#b t"]  # the window that each token went into

    @cached_property
    def after(self) -> Places:
        return replace(self.among, positions=self.among.positions // 2)

    @staticmethod
    def of(places: Places, length: int) -> Pooling:
        """The windows of `length` tokens at their places."""
        if places.documents is None:
            index = torch.arange(length, device=places.positions.device)
            first = index[::2][None]
            last = (first + 1).clamp(max=length - 1)
            tree = None if places.tree is None else places.tree[:, ::2]
            among = Places(places.positions[:, ::2], None, places.prefix, tree=tree)
            return Pooling(places, among, first, last, index[None] // 2)
        return _packed(places, places.documents)

    def __call__(self, x: Float[Tensor, "b t w"]) -> Float[Tensor, "b s w"]:
        """The mean of each window."""
        return (_taken(x, self.first) + _taken(x, self.last)) / 2

    def undo(self, x: Float[Tensor, "b s w"]) -> Float[Tensor, "b t w"]:
        """Each window's vector in the place of every token that went into it."""
        return _taken(x, self.window)


def _packed(places: Places, documents: Tensor) -> Pooling:
    opens = (within(documents) % 2 == 0) & (documents > 0)
    count = opens.sum(1, keepdim=True)
    slots = max(1, int(count.max()))
    if slots == documents.shape[1] > 1:
        slots += 1  # every document is one token: a slot more, so that pooled and not pooled differ in length
    # Indices of the tokens that open a window, in order, before all others.
    order = pad((~opens).long().argsort(dim=1, stable=True), (0, 1))[:, :slots]
    real = torch.arange(slots, device=documents.device) < count
    first = order.where(real, 0)
    following = (first + 1).clamp(max=documents.shape[1] - 1)
    own = documents.gather(1, first)
    last = torch.where(documents.gather(1, following) == own, following, first)
    positions = places.positions.expand_as(documents).gather(1, first)
    tree = None if places.tree is None else _taken(places.tree, first)
    among = Places(positions, own.where(real, 0), places.prefix, tree=tree)
    return Pooling(places, among, first, last, (opens.cumsum(1) - 1).clamp(min=0))


def _taken(x: Tensor, index: Tensor) -> Tensor:
    return x.gather(1, index[..., None].expand(x.shape[0], -1, x.shape[-1]))
