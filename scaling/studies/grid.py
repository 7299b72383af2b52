"""Grids: the runs of a study. A grid without a kind is a product of axes; a list of grids is their union."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from scaling.base.errors import ScalingError, refuse
from scaling.base.numbers import NonNegativeFloat, NonNegativeInt, PositiveFloat, Range

if TYPE_CHECKING:
    from scaling.model.cost import Cost  # it imports torch, which a grid's keys do without

MOST_TOKENS = 1e18

Cell = dict[str, Any]  # a run's own keys
Price = Callable[[Cell], "Cost"]  # the cost of a cell's model; a budget is not part of it

Definition = Literal[
    "exact", "6N", "6N_non_embedding", "kaplan_with_attention", "with_last_layer", "with_attention_and_last_layer"
]


class Grid(Protocol):
    most: int  # the number of its cells at most

    def cells(self, price: Price) -> Iterator[Cell]: ...


class Product:
    """Every combination of the axes' values: dotted keys of a run's config, `seed`, and `row` of a table."""

    def __init__(self, *, axes: dict[str, Any]):
        self.axes, self.most = axes, math.prod(map(len, axes.values()))

    def cells(self, price: Price) -> Iterator[Cell]:
        for values in itertools.product(*self.axes.values()):
            yield dict(zip(self.axes, values, strict=True))


class IsoFLOP:
    """D = C / c(N) for each budget C of `flops` and each model: equal compute, split differently. (Hoffmann et al.
    2022, section 3.2)

    c is the training FLOPs of a token: exact, as the matrix products run, or a paper's approximation. Cells outside
    `tokens_per_parameter` (with N without embeddings) are left out, because no parabola fits there.
    """

    def __init__(
        self,
        *,
        flops: list[PositiveFloat],
        axes: dict[str, Any],
        definition: Definition = "exact",
        tokens_per_parameter: list[NonNegativeFloat] | None = None,
    ):
        self.flops, self.product, self.definition = flops, Product(axes=axes), definition
        self.most = len(flops) * self.product.most
        bounds = tokens_per_parameter or [0.0, math.inf]
        if len(bounds) != 2 or bounds[0] >= bounds[1]:
            raise ScalingError("expected [least, most]", key="tokens_per_parameter", value=bounds, fix="as in [1, 300]")
        self.low, self.high = bounds

    def cells(self, price: Price) -> Iterator[Cell]:
        for budget, cell in itertools.product(self.flops, self.product.cells(price)):
            cost = price(cell)
            tokens = budget / {"exact": cost.flops_train_per_token, **cost.approximations}[self.definition]
            if self.low <= tokens / cost.parameters_non_embedding <= self.high:
                yield {**cell, "train.tokens": _whole("flops", budget, tokens)}


class TokensPerParameter:
    """D = k N for each k of `multiples`: 20 is compute-optimal, and far more over-trains a model. (Hoffmann et al.
    2022; Gadre et al. 2024)

    N counts all parameters, as in both papers, or those without embeddings.
    """

    def __init__(
        self,
        *,
        multiples: list[PositiveFloat],
        axes: dict[str, Any],
        parameters: Literal["all", "non_embedding"] = "all",
    ):
        self.multiples, self.product, self.parameters = multiples, Product(axes=axes), parameters
        self.most = len(multiples) * self.product.most

    def cells(self, price: Price) -> Iterator[Cell]:
        for cell, multiple in itertools.product(self.product.cells(price), self.multiples):
            cost = price(cell)
            size = cost.parameters if self.parameters == "all" else cost.parameters_non_embedding
            yield {**cell, "train.tokens": _whole("multiples", multiple, multiple * size)}


class Simplex:
    """`runs` mixtures of the domains of `data.shares`, spread evenly over all mixtures, each with every combination of
    the axes: a swarm of small runs, for a law of the loss in the proportions. (Liu et al. 2024, arXiv 2407.01492)

    The shares are the spacings of sorted points of a Sobol sequence, so that they have the uniform distribution of the
    simplex; none is below `least`.
    """

    def __init__(
        self,
        *,
        domains: list[str],
        runs: Annotated[int, Range(least=2, most=100_000)],
        axes: dict[str, Any] | None = None,
        least: Annotated[float, Range(least=0, most=0.5)] = 0.01,
        seed: NonNegativeInt = 0,
    ):
        if len(set(domains)) != len(domains) or len(domains) < 2:
            raise ScalingError("expected two domains or more", key="domains", value=domains, fix="[web, code]")
        if least * len(domains) >= 1:
            raise ScalingError(f"leaves no room for {len(domains)} domains", key="least", value=least)
        self.domains, self.runs, self.product = domains, runs, Product(axes=axes or {})
        self.least, self.seed, self.most = least, seed, runs * self.product.most

    def cells(self, price: Price) -> Iterator[Cell]:
        import numpy as np
        from scipy.stats.qmc import Sobol

        count = len(self.domains)
        points = Sobol(count - 1, rng=self.seed).random_base2(math.ceil(math.log2(self.runs)))[: self.runs]
        points.sort(axis=1)
        spacings = np.diff(points, axis=1, prepend=0.0, append=1.0)
        for row, cell in itertools.product(self.least + (1 - count * self.least) * spacings, self.product.cells(price)):
            yield {**{f"data.shares.{name}": round(float(share), 4) for name, share in zip(self.domains, row)}, **cell}


def _whole(key: str, value: float, tokens: float) -> int:
    """The tokens that a run of the grid sees."""
    what, fix = f"a run would see {tokens:.4g} tokens", f"expected 1 to {MOST_TOKENS:g}"
    refuse(not 0.5 < tokens <= MOST_TOKENS, what, fix, key=key, value=value)
    return round(tokens)
