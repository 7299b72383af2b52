"""A model's table of names: what another project calls each of our tensors, and how it lays it out.

    decoder.embedding.table                          wte.weight
    <block>.mixer.piece.{query+key+value}.weight     h.*.attn.c_attn.weight        transposed

`*` is a layer's number, `{a,b}` runs over names (on both sides at once, in order), `{a+b}` joins tensors along their
first dimension, `<name>` is a part written once. The third column states how theirs differs:
transposed (columns first), row (a leading dimension of one), by_head (joined head by head).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Name:
    """One line of a table: our tensors, in the order in which theirs joins them."""

    ours: tuple[str, ...]
    theirs: str
    layout: str = "plain"


def table(text: str, **parts: str) -> tuple[Name, ...]:
    """The lines of a table."""
    for part, meaning in parts.items():
        text = text.replace(f"<{part}>", meaning)
    return tuple(itertools.chain.from_iterable(_line(*line.split()) for line in text.splitlines() if line.strip()))


def pairs(names: Iterable[Name], ours: Iterable[str]) -> list[Name]:
    """The table's lines for the tensors that we have, layers numbered."""
    present, lines = set(ours), {}
    for name in names:
        pattern = re.compile(re.escape(name.ours[0]).replace(r"\*", r"(\d+)"))
        for first in present:
            if match := pattern.fullmatch(first):
                layer = match[1] if match.groups() else ""
                theirs = name.theirs.replace("*", layer)
                lines[theirs] = Name(tuple(own.replace("*", layer) for own in name.ours), theirs, name.layout)
    return list(lines.values())


def to_theirs(names: Iterable[Name], tensors: Mapping[str, Tensor], heads: int) -> dict[str, Tensor]:
    """Our tensors under their names, laid out as theirs."""
    return {pair.theirs: join(pair, [tensors[o] for o in pair.ours], heads) for pair in pairs(names, tensors)}


def to_ours(names: Iterable[Name], ours: Iterable[str], tensors: Mapping[str, Tensor], heads: int) -> dict[str, Tensor]:
    """Their tensors under the names that we have, laid out as ours."""
    return {
        name: part
        for pair in pairs(names, ours)
        for name, part in zip(pair.ours, split(pair, tensors[pair.theirs], heads), strict=True)
    }


def join(pair: Name, parts: list[Tensor], heads: int, *, is_product: bool = False) -> Tensor:
    """Their tensor of ours; a map's matrix as a product B A is joined by the rows of B, which no format transposes."""
    if pair.layout == "by_head":
        return torch.cat([part.unflatten(0, (heads, -1)) for part in parts], 1).flatten(0, 1)
    joined = torch.cat(parts) if len(parts) > 1 else parts[0]
    if pair.layout == "transposed" and not is_product:
        return joined.T
    return joined[None] if pair.layout == "row" else joined


def split(pair: Name, tensor: Tensor, heads: int, *, is_product: bool = False) -> list[Tensor]:
    """Our tensors of theirs."""
    count = len(pair.ours)
    if pair.layout == "by_head":
        return [part.flatten(0, 1) for part in tensor.unflatten(0, (heads, -1)).chunk(count, 1)]
    if is_product:
        return list(tensor.chunk(count))
    tensor = {"transposed": lambda: tensor.T, "row": lambda: tensor[0]}.get(pair.layout, lambda: tensor)()
    return list(tensor.chunk(count))


def _line(ours: str, theirs: str, layout: str = "plain") -> Iterator[Name]:
    for our, their in zip(_expanded(ours), _expanded(theirs), strict=True):
        joined = re.search(r"\{([^{}]*)\}", our)
        parts = [our] if joined is None else [our.replace(joined[0], part) for part in joined[1].split("+")]
        yield Name(tuple(parts), their, layout)


def _expanded(pattern: str) -> Iterator[str]:
    """The pattern with its `{a,b}` spelled out; `{a+b}` stays."""
    pieces = re.split(r"(\{[^{}+]*\})", pattern)
    choices = [piece[1:-1].split(",") if piece.startswith("{") and "+" not in piece else [piece] for piece in pieces]
    return map("".join, itertools.product(*choices))
