"""Rows: the vectors of a vocabulary in clusters of their own widths; embeddings read them, heads predict by them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.base.errors import ScalingError
from scaling.config.shape import counted
from scaling.model.contract import Role, declare, drawn


class Rows(nn.Module):
    """e(i) = E_c[i − b_c] P_cᵀ for b_c ≤ i < b_(c+1). (Baevski & Auli 2018; one cluster: Lan et al. 2019, ALBERT)

    P_c, whose role is `projection`, is left out where E_c is as wide as the stream.
    """

    def __init__(self, bounds: Sequence[int], widths: Sequence[int], width: int, projection: Role):
        super().__init__()
        self.bounds, self.tables, self.ups = tuple(bounds), nn.ParameterList(), nn.ModuleDict()
        for c, ((start, stop), cluster_width) in enumerate(zip(pairwise(bounds), widths, strict=True)):
            role: dict[str, Any] = {str(c): "table"}
            declare(self.tables.append(drawn(stop - start, cluster_width)), **role)
            if cluster_width != width:
                self.ups[str(c)] = declare(nn.Linear(cluster_width, width, bias=False), weight=projection)

    @property
    def form(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(table.shape) for table in self.tables)

    def forward(self, tokens: Int[Tensor, "*b"]) -> Float[Tensor, "*b w"]:
        parts = []
        for c, table in enumerate(self.tables):
            # Every cluster is asked about every token: shapes that do not depend on data run anywhere.
            index, count = tokens - self.bounds[c], len(table)
            vectors = nn.functional.embedding(index.clamp(0, count - 1), table)
            vectors = vectors.masked_fill(((index < 0) | (index >= count))[..., None], 0)
            parts.append(self.ups[str(c)](vectors) if str(c) in self.ups else vectors)
        return torch.stack(parts).sum(0)

    def part(self, c: int, hidden: Float[Tensor, "*b w"]) -> tuple[Float[Tensor, "*b r"], Float[Tensor, "v r"]]:
        """(h P_c, E_c): their product is the logits of cluster c."""
        narrow = hidden @ cast(nn.Linear, self.ups[str(c)]).weight if str(c) in self.ups else hidden
        return narrow, self.tables[c]


def bounds_of(cutoffs: Sequence[float], vocabulary: int) -> tuple[int, ...]:
    """0, the cutoffs, V: where the clusters of a vocabulary begin and end."""
    bounds = (0, *(counted("cutoffs", cutoff, vocabulary, vocabulary) for cutoff in cutoffs), vocabulary)
    if not cutoffs or any(start >= stop for start, stop in pairwise(bounds)):
        what = f"expected rising cutoffs within the vocabulary of {vocabulary:,}"
        raise ScalingError(what, key="cutoffs", value=list(cutoffs))
    return bounds


def widths_of(widths: Sequence[float], bounds: Sequence[int], width: int) -> list[int]:
    """The width of each cluster; 1 is a fraction too, all of the stream's."""
    if len(widths) != len(bounds) - 1:
        raise ScalingError(f"expected {len(bounds) - 1} widths, one a cluster", key="widths", value=list(widths))
    return [width if fraction == 1 else counted("widths", fraction, width, width) for fraction in widths]
