"""A look: the maps of a model over one text, with the tokens and what each head does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from scaling.batch import IGNORE, Batch
from scaling.data.codec import Codec
from scaling.errors import ScalingError, nearest
from scaling.inside.heads import HeadScores, repetition, scores
from scaling.inside.maps import Map, maps, towers
from scaling.model.family import Family, Tower

MASK = "[MASK]"


@dataclass(frozen=True)
class Look:
    """The maps of a pass, the names of their layers, the tokens of each tower, and the scores of each head."""

    family: str
    tokens: Mapping[str, Sequence[str]]
    maps: Sequence[Map]
    heads: Sequence[HeadScores]

    @property
    def names(self) -> list[str]:
        """A name for each map: `3`, where there are two towers `encoder.3`, `decoder.3` and `cross.3`; where a layer
        has several mixers, that of the branch too.
        """
        several = len(self.tokens) > 1

        def short(each: Map) -> str:
            group = "cross" if each.slot == "cross" else each.tower
            return f"{group}.{each.layer}" if several or each.slot == "cross" else str(each.layer)

        plain = [short(each) for each in self.maps]
        return [
            name if plain.count(name) == 1 else f"{name}.{_branch(each.name)}" for name, each in zip(plain, self.maps)
        ]

    def rows(self, each: Map) -> list[str]:
        """What the queries of a map are called."""
        return _labels(self.tokens[each.tower], each.weights.shape[1])

    def columns(self, each: Map) -> list[str]:
        """What its keys are called: tokens, behind the learned ones."""
        of = self.tokens["encoder" if each.slot == "cross" else each.tower]
        return [f"learned {number}" for number in range(each.before)] + _labels(of, each.of_tokens.shape[2])

    def at(self, head: str) -> tuple[int, int]:
        """The number of the map and of the head that a text names, as `3.5` or `cross.3.5`: layer, head, from 0."""
        every = [f"{name}.{number}" for name, each in zip(self.names, self.maps) for number in range(each.heads)]
        if head not in every:
            raise ScalingError("there is no such head", key="head", value=head, fix=nearest(head, every))
        name, _, number = head.rpartition(".")
        return self.names.index(name), int(number)


def look(model: Family, ids: Mapping[str, int], codec: Codec | None, tokens: Mapping[str, Sequence[int]]) -> Look:
    """The maps of the family's towers over these tokens."""
    seen = maps(model, batch_of(model, tokens))
    tower = _writing(model)
    special = set(ids.values()) | set(() if codec is None else codec.specials.values())
    ordinary = [
        token for token in range(tower.shape.vocabulary if codec is None else codec.size) if token not in special
    ]
    repeated = repetition(model, ordinary, tower.shape.length)
    shown = {name: [_spelled(token, ids, codec) for token in row] for name, row in tokens.items()}
    return Look(model.family, shown, seen, scores(seen, repeated, tokens))


def batch_of(model: Family, tokens: Mapping[str, Sequence[int]]) -> Batch:
    """One row without targets, of the tokens of each tower."""
    device = next(model.parameters()).device
    for name, tower in towers(model):
        given, limit = len(tokens[name]), tower.shape.length
        if given > limit:
            what = f"{given:,} tokens are more than the {limit:,} that its {name} reads"
            raise ScalingError(what, key="text", fix="shorten the text")
        if not given:
            raise ScalingError("there is nothing to look at", key="text", value="", fix="write some text")
    rows = {name: torch.tensor([list(row)], device=device) for name, row in tokens.items()}
    largest, limit = max(int(row.max()) for row in rows.values()), _writing(model).shape.vocabulary
    if largest >= limit:
        raise ScalingError(f"token {largest} is beyond the vocabulary of {limit}", key="text")
    if model.family == "encoder_decoder":
        written = rows["decoder"]
        return Batch(written, torch.full_like(written, IGNORE), source=rows["encoder"])
    written = rows[model.family]
    return Batch(written, torch.full_like(written, IGNORE))


def _writing(model: Family) -> Tower:
    """The tower whose vectors the head reads."""
    return list(towers(model))[-1][1]


def framed(family: str, ids: Mapping[str, int], encode: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """The tokens of each tower as its training frames them: `encode` has the text's and, of a model that reads a
    source, the target's.
    """

    def token(*names: str) -> list[int]:
        return [ids[name] for name in names if name in ids][:1]

    text = list(encode["text"])
    if family == "encoder":
        return {"encoder": [*token("cls"), *text, *token("sep")]}
    if family == "decoder":
        return {"decoder": [*token("start", "bos"), *text]}
    start = token("start", "bos") or [0]
    return {"encoder": [*text, *token("eos")], "decoder": [*start, *encode["target"]]}


def masked(codec: Codec, ids: Mapping[str, int], text: str) -> list[int]:
    """The tokens of a text in which [MASK] is the token of that name, or else one sentinel after another."""
    gaps = itertools.repeat(ids["mask"]) if "mask" in ids else _sentinels(ids)
    parts = text.split(MASK) if "mask" in ids or "sentinel_0" in ids else [text]
    # The space before a word is a part of its token.
    pieces = codec.encode([part.removesuffix(" ") for part in parts[:-1]] + parts[-1:])
    return [token for piece, gap in zip(pieces[:-1], gaps) for token in (*piece, gap)] + list(pieces[-1])


def _sentinels(ids: Mapping[str, int]) -> Iterator[int]:
    for number in itertools.count():
        if f"sentinel_{number}" not in ids:
            what = f"the run has {number} sentinels, and the text has more gaps"
            raise ScalingError(what, key="text", fix=f"write fewer {MASK}")
        yield ids[f"sentinel_{number}"]


def _spelled(token: int, ids: Mapping[str, int], codec: Codec | None) -> str:
    for name, number in ids.items():
        if number == token:
            return f"[{name.upper()}]"
    return str(token) if codec is None else codec.decode([token])


def _labels(tokens: Sequence[str], count: int) -> list[str]:
    """The tokens, or numbers where a stack has made another number of places of them."""
    return list(tokens) if len(tokens) == count else [str(number) for number in range(count)]


def _branch(name: str) -> str:
    parts = name.split(".")
    return parts[parts.index("branches") + 1] if "branches" in parts else parts[-1]


def levels(each: Map) -> np.ndarray:
    """The weights in 256 levels."""
    return np.round(255 * each.weights).astype(np.uint8)
