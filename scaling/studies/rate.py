"""Rates: rules for the peak learning rate and the batch of each run. With maximal update the width needs no rule."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np

from scaling.base import atomic
from scaling.base.errors import ScalingError, from_os, refuse
from scaling.base.numbers import PositiveFloat, Range
from scaling.ledger import Ledger
from scaling.training.point import point

if TYPE_CHECKING:
    from scaling.training.experiment import Experiment

LR, BATCH = "optimizer.lr", "train.batch"


class Rate(Protocol):
    def keys(self, experiment: Experiment) -> Mapping[str, float]:
        """The keys of a run that the rule sets, `optimizer.lr` among them."""
        ...


class Power:
    """η = lr (N / parameters)^−exponent, N without embeddings. (after Brown et al. 2020, Table 2.1)"""

    def __init__(
        self,
        *,
        lr: PositiveFloat,
        parameters: PositiveFloat,
        exponent: Annotated[float, Range(least=-4, most=4)] = 0.25,
    ):
        self.rate, self.parameters, self.exponent = lr, parameters, exponent

    def keys(self, experiment: Experiment) -> Mapping[str, float]:
        return {LR: self.rate * (experiment.cost.parameters_non_embedding / self.parameters) ** -self.exponent}


class Kaplan:
    """η = 0.003239 − 0.0001395 ln N, N without embeddings. (Kaplan et al. 2020, equation D.1)"""

    def keys(self, experiment: Experiment) -> Mapping[str, float]:
        return {LR: 0.003239 - 0.0001395 * math.log(experiment.cost.parameters_non_embedding)}


class Swept:
    """log η = a + b log N through the best rate of each size of an earlier study of rates."""

    def __init__(self, *, study: str):
        self.study = study

    def keys(self, experiment: Experiment) -> Mapping[str, float]:
        slope, height = _line(self.study, experiment.config["runs"])
        return {LR: math.exp(height + slope * math.log(experiment.cost.parameters_non_embedding))}


class Law:
    """η of a law of the best learning rate in the columns of a run (N, D, C, width, depth, B), as `scaling fit --json`
    wrote it to `file`. (Bi et al. 2024, arXiv 2401.02954; Li et al. 2025, arXiv 2503.04715)

    `batch` is the fit of a law of the best batch in tokens; it sets the batch of each run first.
    """

    def __init__(self, *, file: str, batch: str | None = None):
        self.file, self.batch = file, batch

    def keys(self, experiment: Experiment) -> Mapping[str, float]:
        columns, keys = point(experiment), {}
        if self.batch is not None:
            rows = max(1, round(_predicted(self.batch, "batch", "B", columns) / experiment.row_tokens))
            keys[BATCH] = rows
            columns["B"] = rows * experiment.row_tokens
        return {**keys, LR: _predicted(self.file, "file", "lr", columns)}


def _predicted(file: str, key: str, target: str, columns: Mapping[str, Any]) -> float:
    """The prediction of the fit in a file for a run of these columns."""
    from scaling.laws import named

    place: dict[str, Any] = {"key": f"rate.{key}", "value": file}
    fix = "write it by `scaling fit best.csv --law learning_rate_d_width_b --json`"
    try:
        document = atomic.read_json(Path(file))
        law = named(document["law"])
        theta = np.array([document["estimates"][name] for name in law.parameter_names], float)
    except OSError as error:
        raise from_os(error, "cannot read it").at(**place) from None
    except (KeyError, TypeError, ValueError, ScalingError):
        raise ScalingError("is not a fit of a named law", fix=fix, **place) from None
    refuse(law.target != target, f"is a fit of {law.target}, not of {target}", fix, **place)
    absent = [name for name in law.inputs if name not in columns]
    refuse(absent, f"the law needs {', '.join(absent)}, which no run has", fix, **place)
    return float(law.predict(theta, columns)[0])


@cache
def _line(study: str, runs: str) -> tuple[float, float]:
    """b and a; with one size all runs have the same rate."""
    import pandas

    from scaling.studies.findings import rows
    from scaling.studies.plan import entered

    place: dict[str, Any] = {"key": "rate.study", "value": study}
    try:
        ledger = Ledger.open(runs)
    except ScalingError as error:
        raise error.at(**place) from None
    ended = [row for row in rows(ledger, entered(ledger, study)) if row["status"] in ("finished", "diverged")]
    refuse(not ended, "it has no finished run", f"run it first: scaling study {study}", **place)
    # A rate at which a run diverges is as bad as can be.
    losses = [math.inf if row["status"] == "diverged" else row["loss"] for row in ended]
    means: Any = pandas.DataFrame(ended).assign(loss=losses).pivot_table("loss", "N", "lr")
    best = {}
    for size, by_rate in means.iterrows():
        tried = by_rate.dropna()
        best[size] = tried.idxmin()
        what = f"the best rate of {size:,} parameters is at the edge of those tried, {best[size]:g}"
        refuse(best[size] in (tried.index[0], tried.index[-1]), what, "widen the sweep", **place)
    sizes, rates = [math.log(size) for size in best], [math.log(rate) for rate in best.values()]
    if len(best) == 1:
        return 0.0, rates[0]
    line = statistics.linear_regression(sizes, rates)
    return line.slope, line.intercept
