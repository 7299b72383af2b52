"""Ties: tables that several parts of a model share."""

from __future__ import annotations

from scaling.errors import ScalingError, nearest
from scaling.model.family import Tower
from scaling.nn.contract import Head, TiedHead


def share_tables(tables: dict[str, Tower], head: Head, names: list[str]) -> None:
    """Let the named parts share the vectors of one embedding, that of the first tower among them: the other towers read
    them, the head predicts by them.
    """
    parts = [*tables, "head"]
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
    if "head" in names:
        if not isinstance(head, TiedHead):
            kind = type(head).__name__
            raise ScalingError(f"the head {kind} has no table to tie", key="tie", value=names, fix="leave out head")
        head.tie(first)
