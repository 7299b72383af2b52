"""Prompted: a pass of a tower over documents that each begin with virtual tokens, as prompt tuning has it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from scaling.errors import ScalingError
from scaling.nn.context import Cache, Context, Places, outside_tree


def prompted(
    tower: Any, tokens: Tensor, segments: Tensor | None, context: Context
) -> tuple[Tensor, dict[str, Tensor], Tensor | None]:
    """The hidden vectors of a tower that has a prompt, the auxiliary losses, and the vectors' documents.

    `context` is the pass over the text alone. Where the prompt is for a decoder to read, its vectors are returned too.
    """
    cache, prompt = context.cache, tower.prompt
    if context.position.reads_tree and context.places.tree is not None:
        raise outside_tree("a prompt puts virtual tokens before the text")
    x = tower.embedding(tokens, context, segments)  # of the text's own tokens, at their own positions
    layout = Layout.of(context.places, len(tokens), prompt.length, cache)
    if layout is not None:
        whole: Context = tower.context(layout.places, cache, context.layers)
        whole.memories, whole.memory_mask = context.memories, context.memory_mask
        x, text, context = layout.add(x, prompt(x)), context.places.documents, whole
    hidden = tower.stack(x, context)
    if cache is not None:
        cache.virtual += hidden.shape[1] - tokens.shape[1]
        cache.places = context.keys
    if layout is None or prompt.shown:
        return hidden, dict(context.auxiliary), context.places.documents
    return layout.drop(hidden), dict(context.auxiliary), text


@dataclass(frozen=True)
class Layout:
    """The places of the text's tokens and of the virtual ones in longer rows.

    `source` [b T] is what each place holds: token j of the text as j, virtual token i of t as t + i, nothing as
    t + n; `text` [b t] is the place of each token of the text. Both are None where n virtual tokens begin each row.
    """

    places: Places
    length: int  # n
    source: Tensor | None = None
    text: Tensor | None = None

    @staticmethod
    def of(places: Places, rows: int, length: int, cache: Cache | None) -> Layout | None:
        """The rows with `length` virtual tokens before each document that begins in them; None where none does."""
        past = None if cache is None else cache.places
        if places.documents is None or places.documents.is_meta:  # the meta device has no values
            return None if past is not None else Layout(_behind(replace(places, documents=None), length), length)
        before = None if past is None or past.documents is None else past.documents[:, -1:]
        return _inserted(places, places.documents, rows, length, before)

    def add(self, x: Tensor, vectors: Tensor) -> Tensor:
        """The stream [b t w] with the vectors [b n w] where they belong."""
        if self.source is None:
            return torch.cat([vectors, x], 1)
        every = torch.cat([x, vectors, x.new_zeros(len(x), 1, x.shape[-1])], 1)
        return every.gather(1, self.source[..., None].expand(-1, -1, x.shape[-1]))

    def drop(self, x: Tensor) -> Tensor:
        """The vectors of the text alone."""
        if self.text is None:
            return x[:, self.length :]
        return x.gather(1, self.text[..., None].expand(-1, -1, x.shape[-1]))


def _behind(places: Places, length: int) -> Places:
    first = places.positions[:, :1]
    virtual = first + torch.arange(-length, 0, device=first.device)
    return replace(places, positions=torch.cat([virtual, places.positions], 1))


def _inserted(places: Places, documents: Tensor, rows: int, length: int, before: Tensor | None) -> Layout | None:
    previous = torch.cat([torch.zeros_like(documents[:, :1]) if before is None else before, documents[:, :-1]], 1)
    begins = (documents > 0) & (documents != previous)
    counts = begins.sum(1)
    most = int(counts.max())
    if most == 0:
        return None
    if before is not None and int(counts.min()) != most:
        raise ScalingError(
            "documents begin in some rows where they go on in others", key="documents", fix="read the rows at once"
        )
    t, extra = documents.shape[1], length * most
    # Rows with fewer documents are filled on the left, so that a row's last token stays its last.
    text = torch.arange(t, device=documents.device) + length * begins.cumsum(1) + (extra - length * counts)[:, None]
    source = text.new_full((rows, t + extra), t + length)
    source.scatter_(1, text, torch.arange(t, device=text.device).expand(rows, -1))
    row, token = begins.nonzero(as_tuple=True)
    virtual = torch.arange(length, device=text.device)
    at = text[row, token, None] - length + virtual  # [documents n]
    source[row[:, None], at] = t + virtual
    positions = places.positions.expand(rows, -1)
    new_positions = text.new_zeros(rows, t + extra).scatter(1, text, positions)
    new_positions[row[:, None], at] = positions[row, token, None] - length + virtual
    new_documents = documents.new_zeros(rows, t + extra).scatter(1, text, documents)
    new_documents[row[:, None], at] = documents[row, token, None]
    return Layout(Places(new_positions, new_documents, places.prefix), length, source, text)
