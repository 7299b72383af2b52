"""Prompted: a pass of a tower over documents that each begin with virtual tokens, as prompt tuning has it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from scaling.base.errors import ScalingError
from scaling.model.context import Context, Mask, Places, outside_tree


def prompted(
    tower: Any, tokens: Tensor, segments: Tensor | None, context: Context
) -> tuple[Tensor, dict[str, Tensor], Tensor | None]:
    """The hidden vectors of a tower that has a prompt, the auxiliary losses, and the vectors' documents.

    `context` is the pass over the text alone. Where the prompt is for a decoder to read, its vectors are returned too.
    """
    cache, prompt, documents = context.cache, tower.prompt, context.places.documents
    if context.position.reads_tree and context.places.tree is not None:
        raise outside_tree("a prompt puts virtual tokens before the text")
    x = tower.embedding(tokens, context, segments)  # of the text's own tokens, at their own positions
    placed = _placed(context.places, len(tokens), prompt.length, None if cache is None else cache.places)
    if placed is not None:
        places, source, _ = placed
        keys = places if cache is None else cache.then(places)
        every = torch.cat([x, prompt(x), x.new_zeros(len(x), 1, x.shape[-1])], 1)
        x, context = _taken(every, source), replace(context, mask=Mask(tower.pattern, places, keys))
    hidden = tower.stack(x, context)
    if cache is not None:
        cache.virtual += hidden.shape[1] - tokens.shape[1]
        cache.places = context.keys
    if placed is None or prompt.shown:
        return hidden, dict(context.notes.losses), context.places.documents
    return _taken(hidden, placed[2]), dict(context.notes.losses), documents


def _taken(x: Tensor, index: Tensor) -> Tensor:
    return x.gather(1, index[..., None].expand(len(x), -1, x.shape[-1]))


def _placed(places: Places, rows: int, length: int, past: Places | None) -> tuple[Places, Tensor, Tensor] | None:
    """The places of longer rows with `length` virtual tokens before each document that begins in them; None where none
    does. Then what each place holds: token j of the text as j, virtual token i of t as t + i, nothing as t + length;
    and the place of each token of the text.
    """
    t, documents, device = places.positions.shape[1], places.documents, places.positions.device
    index, virtual = torch.arange(t, device=device), torch.arange(length, device=device)
    if documents is None or documents.is_meta:  # the meta device has no values
        if past is not None:
            return None
        positions = torch.cat([places.positions[:, :1] - length + virtual, places.positions], 1)
        source = torch.cat([t + virtual, index])[None]
        return replace(places, positions=positions, documents=None), source, length + index[None]
    before = torch.zeros_like(documents[:, :1])
    if past is not None and past.documents is not None:
        before = past.documents[:, -1:]
    begins = (documents > 0) & (documents != torch.cat([before, documents[:, :-1]], 1))
    counts = begins.sum(1, keepdim=True)
    most = int(counts.max())
    if not most:
        return None
    if past is not None and int(counts.min()) != most:
        raise ScalingError(
            "documents begin in some rows where they go on in others", key="documents", fix="read the rows at once"
        )
    # A virtual token stands before the first token of its document. Rows with fewer documents are filled on the left,
    # so that a row's last token stays its last.
    first = (~begins).long().argsort(dim=1, stable=True)[:, :most]
    real = (torch.arange(most, device=device) < counts)[..., None]
    before_first = torch.where(real, 2 * first[..., None], -1).expand(-1, -1, length)

    def joined(text: Tensor, of_virtual: Tensor) -> Tensor:
        return torch.cat([text.expand(rows, -1), of_virtual.flatten(1)], 1)

    order = joined(2 * index + 1, before_first).argsort(dim=1, stable=True)
    source = joined(index, torch.where(real, t + virtual, t + length)).gather(1, order)
    at_first, document = (part.expand(rows, -1).gather(1, first)[..., None] for part in (places.positions, documents))
    positions = joined(places.positions, torch.where(real, at_first - length + virtual, 0)).gather(1, order)
    of_document = torch.where(real, document, 0).expand(-1, -1, length)
    inside = Places(positions, joined(documents, of_document).gather(1, order), places.prefix)
    return inside, source, order.argsort(1)[:, :t]
