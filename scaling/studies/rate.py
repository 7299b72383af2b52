"""Rates: the peak learning rate of each run, where it is not one for all. Maximal update needs none of these."""

from __future__ import annotations

import json
import math
import statistics
from functools import cache
from typing import Annotated, Protocol

from scaling.cost import Cost
from scaling.errors import ScalingError
from scaling.ledger import Ledger, listing
from scaling.schema import PositiveFloat, Range


class Rate(Protocol):
    def lr(self, cost: Cost, runs: str) -> float:
        """The peak learning rate of a model; `runs` is the folder of the ledger."""
        ...


class Power:
    """η = lr (N / parameters)^−exponent, N without embeddings. (As the rates of Brown et al. 2020, Table 2.1, fall.)"""

    def __init__(
        self,
        *,
        lr: PositiveFloat,
        parameters: PositiveFloat,
        exponent: Annotated[float, Range(least=-4, most=4)] = 0.25,
    ):
        self.rate, self.parameters, self.exponent = lr, parameters, exponent

    def lr(self, cost: Cost, runs: str) -> float:
        return self.rate * (cost.parameters_non_embedding / self.parameters) ** -self.exponent


class Kaplan:
    """η = 0.003239 − 0.0001395 ln N, N without embeddings. (Kaplan et al. 2020, equation D.1)"""

    def lr(self, cost: Cost, runs: str) -> float:
        return 0.003239 - 0.0001395 * math.log(cost.parameters_non_embedding)


class Swept:
    """log η = a + b log N through the best rate of each size of a study of rates, which has been run before."""

    def __init__(self, *, study: str):
        self.study = study

    def lr(self, cost: Cost, runs: str) -> float:
        slope, height = _line(self.study, runs)
        return math.exp(height + slope * math.log(cost.parameters_non_embedding))


@cache
def _line(study: str, runs: str) -> tuple[float, float]:
    """b and a; with one size the rate is one for all."""
    try:
        ledger = Ledger.open(runs)
    except ScalingError as error:
        raise error.at(key="rate.study", value=study) from None
    losses: dict[str, dict[float, list[float]]] = {}
    counts: dict[str, int] = {}
    for _, spec, result in listing.results(ledger, ledger.runs_of(study)):
        size = json.dumps(spec["size"], sort_keys=True)
        # A rate at which a run diverges is as bad as can be.
        loss = math.inf if result["outcome"] == "diverged" else result["loss"]
        losses.setdefault(size, {}).setdefault(spec["optimizer"]["lr"], []).append(loss)
        if "N" in result:
            counts[size] = result["N"]["non_embedding"]
    best = {counts[size]: _best(study, counts[size], losses[size]) for size in counts}
    if not best:
        raise ScalingError(
            "it has no finished run", key="rate.study", value=study, fix=f"run it first: scaling study {study}"
        )
    sizes, rates = [math.log(size) for size in best], [math.log(rate) for rate in best.values()]
    if len(best) == 1:
        return 0.0, rates[0]
    line = statistics.linear_regression(sizes, rates)
    return line.slope, line.intercept


def _best(study: str, size: int, losses: dict[float, list[float]]) -> float:
    rates = sorted(losses)
    best = min(rates, key=lambda rate: statistics.fmean(losses[rate]))
    if best in (rates[0], rates[-1]):
        raise ScalingError(
            f"the best rate of {size:,} parameters is at the edge of those tried, {best:g}",
            key="rate.study",
            value=study,
            fix="widen the sweep",
        )
    return best
