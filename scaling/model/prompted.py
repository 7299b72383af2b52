"""Prompted: a pass of a tower over documents that each begin with virtual tokens, as prompt tuning has it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from scaling.base.errors import ScalingError
from scaling.model.context import Context, Mask, Places, outside_tree, tokens_at


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
    lengthened = _lengthened(context.places, prompt.length, None if cache is None else cache.places)
    if lengthened is not None:
        places, source, _ = lengthened
        keys = places if cache is None else cache.then(places)
        extended = torch.cat([x, prompt(x), x.new_zeros(len(x), 1, x.shape[-1])], 1)
        x, context = tokens_at(extended, source), replace(context, mask=Mask(tower.pattern, places, keys))
    hidden = tower.stack(x, context)
    if cache is not None:
        cache.virtual += hidden.shape[1] - tokens.shape[1]
        cache.places = context.keys
    if lengthened is None or prompt.shown:
        return hidden, dict(context.notes.losses), context.places.documents
    return tokens_at(hidden, lengthened[2]), dict(context.notes.losses), documents


def _lengthened(places: Places, length: int, past: Places | None) -> tuple[Places, Tensor, Tensor] | None:
    """The places of longer rows with `length` virtual tokens before each document that begins in them; None where none
    does. Then what each place holds: token j of the text as j, virtual token i of t as t + i, nothing as t + length;
    and the place of each token of the text.
    """
    t, documents = places.positions.shape[1], places.documents
    index = torch.arange(t, device=places.positions.device)
    if documents is None or documents.is_meta:  # the meta device has no values: a document a row
        if past is not None:
            return None
        begins, longest, documents = (index == 0).expand(len(places.positions), -1), 1, None
    else:
        earlier = None if past is None else past.documents
        before = torch.zeros_like(documents[:, :1]) if earlier is None else earlier[:, -1:]
        begins = (documents > 0) & (documents != torch.cat([before, documents[:, :-1]], 1))
        least, longest = map(int, begins.sum(1).aminmax())
        if not longest:
            return None
        if past is not None and least != longest:
            what = "documents begin in some rows where they go on in others"
            raise ScalingError(what, key="documents", fix="read the rows at once")
    # Rows with fewer documents are filled on the left, so that a row's last token stays its last.
    begun = begins.cumsum(1)
    place = index + length * (begun + longest - begun[:, -1:])
    new = torch.arange(t + length * longest, device=index.device).expand(len(begins), -1).contiguous()
    owner = torch.searchsorted(place, new)  # the next token of the text, before which virtual ones may stand
    gap = place.gather(1, owner) - new
    is_virtual = (gap > 0) & (gap <= length) & begins.gather(1, owner)
    is_real = is_virtual | (gap == 0)

    def lengthen(of_text: Tensor) -> Tensor:
        return of_text.expand(len(begins), -1).gather(1, owner)

    positions = torch.where(is_real, lengthen(places.positions) - gap, 0)
    if documents is not None:
        documents = torch.where(is_real, lengthen(documents), 0)
    source = torch.where(is_virtual, t + length - gap, torch.where(is_real, owner, t + length))
    return replace(places, positions=positions, documents=documents, tree=None, plain=False), source, place
