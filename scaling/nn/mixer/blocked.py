"""Attention in blocks: neighbouring queries share the keys that some of them see, so that the cost grows with length
and not with its square. What a block reads follows from the layout of the pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from scaling.nn.context import Context, Mask, Notes, Places, layout_of
from scaling.nn.layout import Layout
from scaling.nn.pattern import render


@dataclass(frozen=True)
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

    @property
    def count(self) -> int:
        return -(-(self.s - self.start) // (self.step * self.span))

    @property
    def near(self) -> int:
        """How many consecutive keys a block reads."""
        return self.span + self.back + self.ahead

    @property
    def first(self) -> int:
        return min(self.layout.first, self.s)

    @property
    def read(self) -> int:
        """How many keys a block reads at all."""
        drawn = self._drawn(torch.device("meta"))
        return self.near + self.first + (0 if drawn is None else drawn.shape[1] * self.span)

    def queries(self, x: Tensor) -> Tensor:
        """[b t …] as [b·step·count span …], with zeros for what is before the first query and after the last."""
        return self._spans(x, self.s - self.t - self.start, self.span)

    def keys(self, x: Tensor) -> Tensor:
        """[b s …] as [b·step·count read …]."""
        near = self._spans(x, self.back * self.step - self.start, self.near)
        far, drawn = [], self._drawn(x.device)
        if self.first:
            far.append(x[:, None, : self.first].expand(-1, self.step * self.count, *(-1 for _ in x.shape[1:])))
        if drawn is not None:
            whole = _padded(x, 0, -self.s % self.span).unflatten(1, (-1, self.span))
            chosen = whole.index_select(1, drawn.clamp(min=0).flatten())
            far.append(chosen.unflatten(1, drawn.shape).flatten(2, 3))
        return torch.cat([near, *(part.flatten(0, 1) for part in far)], 1) if far else near

    def unread(self, device: torch.device) -> Tensor | None:
        """Whether a block reads a key for the first time [1 step·count read], so that none counts twice."""
        drawn = self._drawn(device)
        if not self.first and drawn is None:
            return None
        rows, blocks = torch.arange(self.step, device=device)[:, None], torch.arange(self.count, device=device)
        low = (self.start + rows + self.step * (blocks * self.span - self.back)).flatten()[:, None]
        far = torch.arange(self.first, device=device).expand(len(low), -1)
        new = torch.ones_like(far, dtype=torch.bool)
        if drawn is not None:
            index = (drawn[..., None] * self.span + torch.arange(self.span, device=device)).flatten(1)
            far, new = torch.cat([far, index], 1), torch.cat([new, index >= self.first], 1)
        is_near = (far >= low) & (far < low + self.step * self.near) & ((far - low) % self.step == 0)
        return torch.cat([new.new_ones(len(low), self.near), new & ~is_near], 1)[None]

    def whole(self, mixed: Tensor, b: int) -> Tensor:
        """The blocks' answers [b·step·count span …] as those of the queries [b t …]."""
        rows = mixed.unflatten(0, (b, self.step, -1)).flatten(2, 3).transpose(1, 2).flatten(1, 2)
        return rows[:, self.s - self.t - self.start :][:, : self.t]

    def _spans(self, x: Tensor, before: int, width: int) -> Tensor:
        """Spans of [b n …] as rows [b·step·count width …]: padded by zeros, or cut where `before` is less."""
        total = self.step * (self.span * (self.count - 1) + width)
        x = _padded(x, before, total - before - x.shape[1])
        if self.step > 1:
            x = x.unflatten(1, (-1, self.step)).transpose(1, 2).flatten(0, 1)
        return x.unfold(1, width, self.span).movedim(-1, 2).flatten(0, 1)

    def _drawn(self, device: torch.device) -> Tensor | None:
        """The blocks that are drawn for each [count r]; −1: none, or beyond the row."""
        if self.layout.drawn is None:
            return None
        first = self.start // self.span
        drawn = self.layout.drawn(torch.arange(first, first + self.count, device=device))
        return torch.where(drawn * self.span < self.s, drawn, -1)


def blocks_of(context: Context, t: int, s: int) -> Blocks | None:
    """The blocks of a pattern that has a layout, where they read fewer keys than there are and tokens follow one
    another; None: attention computes the square.
    """
    layout = layout_of(context.mask.pattern)
    if layout is None or (context.cache is None and s != t):
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

    def compare(keys: Places) -> bool:
        if keys.plain or keys.positions.is_meta:
            return keys.plain
        order = keys.positions == torch.arange(keys.positions.shape[1], device=keys.positions.device)
        return bool((order if keys.documents is None else order | (keys.documents == 0)).all())

    return context.once(("in order", id(context.keys)), lambda: compare(context.keys))


def in_blocks(
    attend: Callable[..., Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    context: Context,
    blocks: Blocks,
    scale: float,
    dropout: float,
) -> Tensor:
    """Blocks of neighbouring queries as rows of their own, each before the keys that some of them sees."""
    b, rows = len(q), blocks.step * blocks.count

    def places(part: Callable[[Tensor], Tensor], whole: Places, documents: Tensor | None) -> Places:
        of_tokens = torch.ones_like(whole.positions) if documents is None else documents
        prefix = None if whole.prefix is None else whole.prefix.repeat_interleave(rows)
        tree = None if whole.tree is None else part(whole.tree)
        return Places(part(whole.positions.expand(b, -1)), part(of_tokens.expand(b, -1)), prefix, tree=tree)

    def rendered() -> tuple[Places, Places, Mask]:
        q_all, k_all, pattern = context.places, context.keys, context.mask.pattern
        assert pattern is not None
        whole = q_all.documents is None or k_all.documents is None
        q_places = places(blocks.queries, q_all, None if whole else q_all.documents)
        k_places = places(blocks.keys, k_all, None if whole else k_all.documents)
        unread = blocks.unread(q.device)
        if unread is not None and k_places.documents is not None:
            once = k_places.documents.view(b, rows, -1) * unread
            k_places = replace(k_places, documents=once.flatten(0, 1))
        return q_places, k_places, replace(render(pattern, q_places, k_places), pattern=None)

    q_places, k_places, mask = context.once(("blocks", id(context.mask)), rendered)
    inside = replace(context, places=q_places, keys=k_places, mask=mask)
    mixed = attend(blocks.queries(q), blocks.keys(k), blocks.keys(v), inside, scale=scale, dropout=dropout)
    mixed = blocks.whole(mixed, b)
    pattern, first = context.mask.pattern, blocks.first - (blocks.s - blocks.t)
    if pattern is None or not pattern.ahead or first <= 0:
        return mixed
    above = attend(q[:, :first], k, v, of_first(context, first), scale=scale, dropout=dropout)
    return torch.cat([above, mixed[:, first:]], 1)


def of_first(context: Context, count: int) -> Context:
    """The pass of its first queries alone, which read the square."""
    return context.once(("first", count, id(context.mask)), lambda: of_queries(context, 0, count))


def of_queries(context: Context, start: int, stop: int, keys: int | None = None) -> Context:
    """The pass of the queries `start` to `stop` alone, before all keys or the first of them."""
    rows = context.mask.rows(start, stop)
    places, seen = context.places.part(start, stop), context.keys
    if keys is not None:
        rows, seen = None if rows is None else rows[..., :keys], seen.part(0, keys)
    return replace(context, places=places, keys=seen, mask=Mask(rows), _kept=Notes())


def _padded(x: Tensor, before: int, after: int) -> Tensor:
    return F.pad(x, (0, 0) * (x.ndim - 2) + (before, after))
