from __future__ import annotations

import math
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.errors import ScalingError
from scaling.kernel.linear_cross_entropy import Parts, cross_entropy_over, scores
from scaling.nn.head.linear import Linear
from scaling.nn.head.log_chances import log_softmax, smoothed
from scaling.nn.rows import Rows, bounds_of, widths_of
from scaling.schema import PositiveFloat
from scaling.shape import Shape


class AdaptiveSoftmax(Linear):
    """p(i) = p₀(i) in the first cluster, p₀(gate c) p_c(i) in cluster c, p₀ = softmax(s h [E₀ᵀ, G]), p_c = softmax(s h
    P_c E_cᵀ). (Grave et al. 2017)

    `forward` gives log p. A cluster is computed where the target lies in it, so ids must fall in frequency. Clusters
    begin at token 0 and at each of `cutoffs`; numbers below 1 are fractions. Without `widths` there are no P_c; tied,
    E_c and P_c are the embedding's.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        cutoffs: list[PositiveFloat],
        widths: list[PositiveFloat] | None = None,
        scale: Literal["none", "inverse_sqrt_width"] = "none",
    ):
        super().__init__(shape, scale=scale)
        self.bounds = bounds_of(cutoffs, shape.vocabulary)
        if widths is not None:
            self.weight = None
            self.rows = Rows(self.bounds, widths_of(widths, self.bounds, shape.width), shape.width, "hidden")
        self.gates = nn.Linear(shape.width, len(self.bounds) - 2, bias=False)

    def tie(self, embedding: Any) -> None:
        if self.rows is not None:
            raise ScalingError("a tied head's widths are the embedding's", key="head.widths", fix="leave them out")
        if embedding.rows is not None and embedding.rows.bounds != self.bounds:
            raise ScalingError(
                "a tied head has the clusters of the embedding",
                key="head.cutoffs",
                value=list(self.bounds[1:-1]),
                fix=f"take {list(embedding.rows.bounds[1:-1])}",
            )
        super().tie(embedding)

    def forward(self, hidden: Float[Tensor, "b t w"]) -> Float[Tensor, "b t v"]:
        hidden = self.scaled(hidden)
        first = log_softmax(scores(self._first(hidden), None))
        words, *gates = first.split([self.bounds[1], *[1] * self.gates.out_features], -1)
        rest = [gate + log_softmax(scores([self._cluster(c, hidden)], None)) for c, gate in enumerate(gates, 1)]
        return torch.cat([words, *rest], -1)

    def loss(
        self, hidden: Float[Tensor, "b t w"], targets: Int[Tensor, "b t"], smoothing: float = 0.0
    ) -> Float[Tensor, "b t"]:
        if smoothing:  # which needs the chance of every word
            return smoothed(self(hidden), targets, smoothing)
        flat, target = self.scaled(hidden).flatten(0, 1), targets.flatten()
        cluster = torch.stack([target >= bound for bound in self.bounds[1:-1]]).sum(0)
        gated = torch.where(cluster == 0, target, self.bounds[1] - 1 + cluster)
        losses = cross_entropy_over(self._first(flat), None, gated)
        for c in range(1, len(self.bounds) - 1):
            rows = self._lying(cluster, c)
            own = self._cluster(c, flat.index_select(0, rows))
            within = target.index_select(0, rows) - self.bounds[c]
            losses = losses.index_add(0, rows, cross_entropy_over([own], None, within))
        return losses.view_as(targets)

    def _first(self, hidden: Float[Tensor, "*n w"]) -> Parts:
        """The words of the first cluster, and a gate to each of the others."""
        return [self._cluster(0, hidden), (hidden, self.gates.weight)]

    def _cluster(self, c: int, hidden: Float[Tensor, "*n w"]) -> tuple[Tensor, Tensor]:
        if self.rows is None:
            return hidden, self.weight[self.bounds[c] : self.bounds[c + 1]]
        return self.rows.narrow(c, hidden), self.rows.tables[c]

    def _lying(self, cluster: Int[Tensor, " n"], c: int) -> Int[Tensor, " m"]:
        """The rows whose target is in cluster c. On the meta device there are no targets, and the number that
        Zipf's law, p(i) ~ 1/i, lets lie there stand for them: a model is counted as on a text.
        """
        if not cluster.is_meta:
            return (cluster == c).nonzero()[:, 0]
        start, stop = self.bounds[c], self.bounds[c + 1]
        share = math.log(stop / start) / (math.log(self.bounds[-1]) + 0.5772)
        return cluster.new_empty(math.ceil(share * len(cluster)))
