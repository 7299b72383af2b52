"""Rates: the peak learning rate of each run, where it is not one for all. Maximal update needs none of these."""

from __future__ import annotations

import math
import statistics
from functools import cache
from typing import Annotated, Any, Protocol

from scaling.base.errors import ScalingError
from scaling.config.schema import PositiveFloat, Range
from scaling.ledger import Ledger
from scaling.model.cost import Cost


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
    from scaling.studies.plan import entered
    from scaling.studies.points import MISSING, rows

    place: dict[str, Any] = {"key": "rate.study", "value": study}
    try:
        ledger = Ledger.open(runs)
    except ScalingError as error:
        raise error.at(**place) from None
    losses: dict[int, dict[float, list[float]]] = {}
    for row in rows(ledger, entered(ledger, study)):
        if row["status"] != MISSING:
            # A rate at which a run diverges is as bad as can be.
            loss = math.inf if row["status"] == "diverged" else row["loss"]
            losses.setdefault(row["N"], {}).setdefault(row["lr"], []).append(loss)
    if not losses:
        raise ScalingError("it has no finished run", fix=f"run it first: scaling study {study}", **place)
    best = {}
    for size, by_rate in losses.items():
        tried = sorted(by_rate)
        best[size] = min(tried, key=lambda rate: statistics.fmean(by_rate[rate]))
        if best[size] in (tried[0], tried[-1]):
            what = f"the best rate of {size:,} parameters is at the edge of those tried, {best[size]:g}"
            raise ScalingError(what, fix="widen the sweep", **place)
    sizes, rates = [math.log(size) for size in best], [math.log(rate) for rate in best.values()]
    if len(best) == 1:
        return 0.0, rates[0]
    line = statistics.linear_regression(sizes, rates)
    return line.slope, line.intercept
