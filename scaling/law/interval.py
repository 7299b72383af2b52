"""Intervals for parameters, for what is derived from them, and for predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from scaling.errors import ScalingError, nearest
from scaling.law.bootstrap import refit
from scaling.law.fit import Fit
from scaling.law.likelihood import LEVEL, bound
from scaling.law.quantity import Quantity, derived, parameter

Method = Literal["profile", "t", "bootstrap_case", "bootstrap_run", "bootstrap_residual"]
METHODS = ("profile", "t", "bootstrap_case", "bootstrap_run", "bootstrap_residual")


@dataclass(frozen=True)
class Interval:
    """Where a quantity lies. An open end is one the points do not close: the bound printed there is the search's."""

    name: str
    estimate: float
    low: float
    high: float
    level: float
    method: str
    open_below: bool = False
    open_above: bool = False

    def covers(self, value: float) -> bool:
        return (self.open_below or self.low <= value) and (self.open_above or value <= self.high)

    def to_json(self) -> dict[str, Any]:
        return {
            "estimate": self.estimate,
            "low": None if self.open_below else self.low,
            "high": None if self.open_above else self.high,
            "level": self.level,
            "method": self.method,
        }

    @classmethod
    def from_json(cls, name: str, document: Mapping[str, Any]) -> Interval:
        """The interval that `to_json` wrote; where the search for an open end stopped is no longer known."""
        low, high = document["low"], document["high"]
        return cls(
            name,
            document["estimate"],
            -math.inf if low is None else low,
            math.inf if high is None else high,
            document["level"],
            document["method"],
            low is None,
            high is None,
        )

    def __str__(self) -> str:
        low = "open" if self.open_below else f"{self.low:.4g}"
        high = "open" if self.open_above else f"{self.high:.4g}"
        return f"{self.name} {self.estimate:.5g} ({100 * self.level:g}% {low} to {high})"


def intervals(
    fit: Fit,
    method: Method = "profile",
    *,
    level: float = 0.95,
    quantities: Sequence[str | Quantity] | None = None,
    count: int = 1000,
    seed: int = 0,
) -> dict[str, Interval]:
    """An interval for each quantity: names of parameters or of the form's derived quantities, or `Quantity` objects.

    Without `quantities`, every free parameter and every derived quantity. `count` and `seed` are the
    bootstrap's. Where the fit was given clusters, "profile" and "t" widen by what the clusters' scores show and use
    one degree of freedom less than there are clusters.
    """
    if method not in METHODS:
        raise ScalingError(f"there is no interval method {method!r}", fix=nearest(method, METHODS))
    if not 0.0 < level < 1.0:
        raise ScalingError("is not between 0 and 1", key="level", value=level)
    by_key = {key: _quantity(fit, key) for key in (quantities or default_quantities(fit))}
    if method.startswith("bootstrap"):
        return _percentile(fit, method, level, list(by_key.values()), count, seed)
    return _likelihood(fit, method, level, by_key)


def default_quantities(fit: Fit) -> list[str]:
    """The free parameters, and what the form derives from its parameters."""
    return [*(fit.form.parameter_names[index] for index in fit.problem.free), *fit.form.derived]


def _quantity(fit: Fit, quantity: str | Quantity) -> Quantity:
    if isinstance(quantity, Quantity):
        return quantity
    if quantity in fit.form.derived:
        return derived(quantity, fit.form.derived[quantity])
    return parameter(fit.form, quantity)


def _likelihood(fit: Fit, method: str, level: float, by_key: Mapping[str | Quantity, Quantity]) -> dict[str, Interval]:
    """By profile or by Student's t; the intervals that decide whether a parameter is identified are reused."""
    if fit.degrees_of_freedom < 1:
        n, p = len(fit.problem.observed), len(fit.problem.free)
        raise ScalingError(f"{n} points leave no degree of freedom after {p} parameters", fix="add points")
    reused = fit.bounds if (method, level) == ("profile", LEVEL) else {}
    missing = [quantity for key, quantity in by_key.items() if key not in reused]
    computed = bound(fit.problem, fit.u, fit.objective, missing, fit.refits, fit.clusters, level=level, method=method)
    ends = dict(reused) | {quantity.name: end for quantity, end in zip(missing, computed, strict=True)}
    bounds = {}
    for name, quantity in ((quantity.name, quantity) for quantity in by_key.values()):
        estimate = float(quantity.of(fit.form, fit.theta))
        low, high = (float(quantity.unscale(np.asarray(end))) for end in (ends[name].low, ends[name].high))
        bounds[name] = Interval(name, estimate, low, high, level, method, ends[name].open_below, ends[name].open_above)
    return bounds


def _percentile(
    fit: Fit, method: str, level: float, quantities: list[Quantity], count: int, seed: int
) -> dict[str, Interval]:
    """The middle `level` of the refits."""
    refits = refit(fit, method.removeprefix("bootstrap_"), count, seed=seed)  # type: ignore[arg-type]
    if refits.failed > 0.05 * count:
        raise ScalingError(
            f"{refits.failed} of {count} bootstrap refits did not converge", fix="use the profile, or a smaller law"
        )
    tails = (0.5 - 0.5 * level, 0.5 + 0.5 * level)
    bounds = {}
    for quantity in quantities:
        low, high = np.quantile(quantity.of(fit.form, refits.theta), tails)
        estimate = float(quantity.of(fit.form, fit.theta))
        bounds[quantity.name] = Interval(quantity.name, estimate, float(low), float(high), level, method)
    return bounds
