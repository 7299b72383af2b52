"""Ties: tables that several parts of a model share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scaling.errors import ScalingError, nearest
from scaling.model.family import Tower
from scaling.nn.contract import Head, TiedHead


def share_tables(tables: Mapping[str, Tower], heads: Mapping[str, Head], names: Sequence[str]) -> None:
    """Make the named parts share the vectors of one embedding, that of the first tower among them: the other towers
    read them, the heads predict by them.
    """
    parts = [*tables, *heads]
    for name in names:
        if name not in parts:
            raise ScalingError("no such part to tie", key="tie", value=name, fix=nearest(name, parts))
    if not names:
        return
    towers = [tables[name] for name in tables if name in names]
    if len(set(names)) < 2 or not towers:
        raise ScalingError("tying takes two parts", key="tie", value=names, fix=f"name two of {', '.join(parts)}")
    first = towers[0].embedding
    for tower in towers[1:]:
        if tower.embedding.form != first.form:
            raise ScalingError("tables of different shapes cannot be tied", key="tie", value=names)
        tower.embedding.tie(first)
    for name, head in heads.items():
        if name in names:
            if not isinstance(head, TiedHead):
                kind = type(head).__name__
                raise ScalingError(
                    f"the head {kind} has no table to tie", key="tie", value=names, fix=f"leave out {name}"
                )
            head.tie(first)
