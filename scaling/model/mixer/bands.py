"""Bands: the keys of neighbouring queries as blocks, where a pattern has a layout, so that attention reads these and
not the square.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from scaling.model.context import Context, Layout, Mask, Places


@dataclass
class Blocks:
    """A row of `s` keys, the last `t` of which are the queries' own, as `count` blocks of `span` queries each.

    The row is first taken apart into `step` rows of every `step`-th token (dilation). A block reads the keys from
    `back` before its first query to `ahead` after its last one, and those of the layout that are far: the row's `first`
    keys, and whole blocks that are drawn. Blocks begin at query `start`.
    """

    t: int
    s: int
    start: int
    span: int
    back: int
    ahead: int
    step: int
    layout: Layout

    def __post_init__(self) -> None:
        """Count the blocks, and the consecutive and the first keys that each block reads."""
        self.count = -(-(self.s - self.start) // (self.step * self.span))
        self.near, self.first = self.span + self.back + self.ahead, min(self.layout.first, self.s)

    @property
    def read(self) -> int:
        """The number of keys that a block reads."""
        random_blocks = self._drawn(torch.device("meta"))
        return self.near + self.first + (0 if random_blocks is None else random_blocks.shape[1] * self.span)

    def queries(self, x: Tensor) -> Tensor:
        """[b t …] as [b·step·count span …], with zeros for what is before the first query and after the last."""
        return self._spans(x, self.s - self.t - self.start, self.span)

    def keys(self, x: Tensor) -> Tensor:
        """[b s …] as [b·step·count read …]."""
        parts, random_blocks = [self._spans(x, self.back * self.step - self.start, self.near)], self._drawn(x.device)
        if self.first:
            first = x[:, None, : self.first].expand(-1, self.step * self.count, *(-1 for _ in x.shape[1:]))
            parts.append(first.flatten(0, 1))
        if random_blocks is not None:
            chosen = _padded(x, 0, -self.s % self.span).unflatten(1, (-1, self.span))
            chosen = chosen.index_select(1, random_blocks.clamp(min=0).flatten())
            parts.append(chosen.unflatten(1, random_blocks.shape).flatten(2, 3).flatten(0, 1))
        return torch.cat(parts, 1) if len(parts) > 1 else parts[0]

    def unread(self, device: torch.device) -> Tensor | None:
        """Whether a block reads a key for the first time [1 step·count read], so that none counts twice."""
        random_blocks = self._drawn(device)
        if not self.first and random_blocks is None:
            return None
        rows, blocks = torch.arange(self.step, device=device)[:, None], torch.arange(self.count, device=device)
        low = (self.start + rows + self.step * (blocks * self.span - self.back)).flatten()[:, None]
        far = torch.arange(self.first, device=device).expand(len(low), -1)
        new = torch.ones_like(far, dtype=torch.bool)
        if random_blocks is not None:
            index = (random_blocks[..., None] * self.span + torch.arange(self.span, device=device)).flatten(1)
            far, new = torch.cat([far, index], 1), torch.cat([new, index >= self.first], 1)
        is_near = (far >= low) & (far < low + self.step * self.near) & ((far - low) % self.step == 0)
        return torch.cat([new.new_ones(len(low), self.near), new & ~is_near], 1)[None]

    def mask(self, mask: Mask, b: int) -> Mask:
        """The mask of the blocks: rows are one document, unless all tokens have theirs."""
        packed = mask.queries.documents is not None and mask.keys.documents is not None

        def cut(places: Places, part: Callable[[Tensor], Tensor]) -> Places:
            rows = replace(places, documents=places.documents if packed else torch.ones_like(places.positions))
            of_rows = partial(torch.repeat_interleave, repeats=self.step * self.count)
            return rows.map(lambda tensor: part(tensor.expand(b, *tensor.shape[1:])), of_rows)

        queries, keys = cut(mask.queries, self.queries), cut(mask.keys, self.keys)
        unread = self.unread(keys.positions.device)
        if unread is not None and keys.documents is not None:
            once = keys.documents.view(b, self.step * self.count, -1) * unread
            keys = replace(keys, documents=once.flatten(0, 1))
        return Mask(mask.pattern, queries, keys, square=True)

    def whole(self, mixed: Tensor, b: int) -> Tensor:
        """The blocks' answers [b·step·count span …] as those of the queries [b t …]."""
        rows = mixed.unflatten(0, (b, self.step, -1)).flatten(2, 3).transpose(1, 2).flatten(1, 2)
        return rows[:, self.s - self.t - self.start :][:, : self.t]

    def _spans(self, x: Tensor, before: int, width: int) -> Tensor:
        """Spans of [b n …] as rows [b·step·count width …]: padded by zeros, or cut where `before` is less."""
        x = _padded(x, before, self.step * (self.span * (self.count - 1) + width) - before - x.shape[1])
        if self.step > 1:
            x = x.unflatten(1, (-1, self.step)).transpose(1, 2).flatten(0, 1)
        return x.unfold(1, width, self.span).movedim(-1, 2).flatten(0, 1)

    def _drawn(self, device: torch.device) -> Tensor | None:
        """The blocks that are drawn for each [count r]; −1: none, or beyond the row."""
        if self.layout.drawn is None:
            return None
        first = self.start // self.span
        random_blocks = self.layout.drawn(torch.arange(first, first + self.count, device=device))
        return torch.where(random_blocks * self.span < self.s, random_blocks, -1)


def blocks_of(context: Context, t: int, s: int) -> Blocks | None:
    """The blocks of a pattern that has a layout, where they read fewer keys than there are and tokens follow one
    another; None: attention computes the square.
    """
    layout = getattr(context.mask.pattern, "layout", None)
    if layout is None or context.mask.square or (context.cache is None and s != t):
        return None
    if context.position.reads_content and (layout.first or layout.drawn or layout.step > 1):
        return None  # such positions count on the keys being neighbours
    back, ahead, step, block = layout.back // layout.step, layout.ahead // layout.step, layout.step, layout.block
    if (block or layout.first) and not in_order(context):
        if layout.first or layout.drawn or not block:
            return None
        back, ahead, block = back + block - 1, ahead + block - 1, None
    unit = block or step
    start = (s - t) // unit * unit
    span = block or min(-(-(s - start) // step), 1 + back + ahead)
    blocks = Blocks(t, s, start, span, back, ahead, step, layout)
    return blocks if blocks.read < s else None


def in_order(context: Context) -> bool:
    """Whether each row is one document from its first token on, padded behind or not at all."""
    keys = context.keys
    if keys.plain or keys.positions.is_meta:
        return keys.plain

    def compare() -> bool:
        order = keys.positions == torch.arange(keys.positions.shape[1], device=keys.positions.device)
        return bool((order if keys.documents is None else order | (keys.documents == 0)).all())

    return context.once("in order", compare)


def _padded(x: Tensor, before: int, after: int) -> Tensor:
    return F.pad(x, (0, 0) * (x.ndim - 2) + (before, after))
