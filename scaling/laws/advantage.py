"""Advantage: by how much compute one set of runs is better than another, with intervals.

The two sets share the floor E of one law, as models that read the same data do, and have coefficients and exponents of
their own. B is k times as efficient at a budget C where L_A(k C) = L_B(C), both at their best split of the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import stdtr

from scaling.errors import ScalingError
from scaling.laws.compare import fit_joint
from scaling.laws.dual import Dual
from scaling.laws.fit import LINE, FittedLaw, intervals
from scaling.laws.intervals import Interval, student
from scaling.laws.law import FLOPS, VARIANT, Law, Seeds, with_compute
from scaling.laws.optimum import Budget, best_loss
from scaling.laws.points import IDENTITIES, Points, group_of
from scaling.laws.problem import Quantity

SET = "compared"
"""The column that names the set of a run."""
FARTHER = (1.0, 10.0, 100.0)
"""Times the budget at which the order of the two sets is judged."""
BISECTIONS = 100
NEWTON_STEPS, STEP = 30, 1e-3
"""In log k: the loss along the best split of a budget is convex in log C, so Newton's method is safe."""


@dataclass(frozen=True)
class Advantage:
    """What the set B is worth against the set A, at a budget of FLOPs."""

    law: FittedLaw
    names: tuple[str, str]
    flops: tuple[float, float]
    """FLOPs per parameter and token of either set, where the law is one in N and D."""
    budget: float
    level: float = 0.95

    @property
    def k(self) -> Interval:
        """A needs this many times the compute for the loss of B."""
        return self._bound(Quantity(f"k(C={self.budget:g})", self._worth, "log"))

    def difference(self, C: float) -> Interval:
        """The loss of B less that of A at equal compute; below 0, B is better."""
        quantity = Quantity(f"difference(C={C:g})", lambda *at: self._loss(1, C, *at) - self._loss(0, C, *at), "linear")
        return self._bound(quantity)

    def loss(self, code: int, C: float) -> float:
        """The loss of a set at its best split of a budget."""
        return float(self._loss(code, C, self.law.form, self.law.theta[None], {}).value[0, 0])

    @property
    def residual_noise(self) -> float:
        """The standard deviation of a loss about the law, as a fraction of it."""
        return float(np.sqrt((self.law.residuals**2).sum() / self.law.degrees_of_freedom))

    def probability(self, C: float) -> float:
        """The probability that B is better than A at a budget, if the law holds there."""
        difference = self.difference(C)
        freedom = self.law.degrees_of_freedom
        error = (difference.high - difference.low) / (2.0 * student(self.level, freedom))
        return float(stdtr(freedom, -difference.estimate / error)) if np.isfinite(error) else 0.5

    def budget_of(self, loss: float) -> float:
        """The budget at which B has a loss."""
        low, high = (np.log(self.budget * factor) for factor in (1e-12, 1e12))
        if not self.loss(1, np.exp(high)) < loss < self.loss(1, np.exp(low)):
            raise ScalingError(f"{self.names[1]} reaches it at no budget", key="loss", value=loss)
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.loss(1, np.exp(middle)) > loss else (low, middle)
        return float(np.exp(high))

    def _bound(self, quantity: Quantity) -> Interval:
        return next(iter(intervals(self.law, "t", level=self.level, quantities=[quantity]).values()))

    def _loss(self, code: int, C: Any, form: Law, theta: np.ndarray, seeds: Seeds) -> Dual:
        budget = np.broadcast_to(np.asarray(C, float) * FLOPS / self.flops[code], (len(theta), 1))
        return best_loss(form, theta, seeds, Budget(budget, others={VARIANT: float(code)}))

    def _worth(self, form: Law, theta: np.ndarray, seeds: Seeds) -> Dual:
        """k with L_A(k C) = L_B(C), and its derivative by the implicit function theorem."""
        target, log_k = self._loss(1, self.budget, form, theta, seeds), np.zeros((len(theta), 1))
        for _ in range(NEWTON_STEPS):
            baseline = self._loss(0, self.budget * np.exp(log_k), form, theta, seeds)
            below, above = (
                self._loss(0, self.budget * np.exp(log_k + shift), form, theta, {}).value for shift in (-STEP, STEP)
            )
            slope = (above - below) / (2.0 * STEP)
            step = np.clip((target.value - baseline.value) / slope, -3.0, 3.0)
            log_k = log_k + step
            if np.max(np.abs(step)) < 1e-10:
                break
        change = (target - baseline).gradient
        return np.exp(Dual(log_k, {index: part / slope for index, part in change.items()}))


def advantage(
    a: Points,
    b: Points,
    names: tuple[str, str] = ("A", "B"),
    *,
    law: str | None = None,
    C: float | None = None,
    loss: float | None = None,
    level: float = 0.95,
) -> Advantage:
    """Fit one law to two sets of runs; what B is worth is stated at the budget C, or where B has the loss.

    Without either it is stated at the largest budget that both sets have.
    """
    together = pooled((a, b), names)
    joint = fit_joint(
        law or usual_law(together), together, SET, baseline=names[0], objective="log_squared", group=group_of(together)
    )
    of_set = [together[SET] == name for name in names]
    cost = together.numbers("C")
    flops = (FLOPS, FLOPS)
    if joint.form.inputs[0] == "N":
        log_flops = np.log(cost / (together.numbers("N") * together.numbers("D")))
        flops = (float(np.exp(log_flops[of_set[0]].mean())), float(np.exp(log_flops[of_set[1]].mean())))
    found = Advantage(joint, names, flops, C or float(min(cost[mask].max() for mask in of_set)), level)
    return found if loss is None else replace(found, budget=found.budget_of(loss))


def pooled(sets: Sequence[Points], names: Sequence[str]) -> Points:
    """The runs of all sets, in the columns that all have, with the name of each run's set; losses of two kinds are
    refused.
    """
    for subject in ("loss", "N", "D", "C", *IDENTITIES):
        stated = {each.definition(subject) for each in sets if subject in each.definitions}
        if len(stated) > 1:
            what = f"the sets state two definitions: {' and '.join(sorted(stated))}"
            raise ScalingError(what, key=subject, fix="compare runs of one kind")
    common = [column for column in sets[0].columns if all(column in each for each in sets)]
    columns: dict[str, Any] = {column: np.concatenate([each[column] for each in sets]) for column in common}
    if "trunk" in columns:  # two tables may number their trunks alike
        columns["trunk"] = np.concatenate(
            [np.array([f"{name} {trunk}" for trunk in each["trunk"]], object) for name, each in zip(names, sets)]
        )
    columns[SET] = np.concatenate([np.full(len(each), name, object) for name, each in zip(names, sets)])
    return Points(with_compute(columns), {**sets[1].definitions, **sets[0].definitions})


def usual_law(points: Points) -> str:
    """Chinchilla's law where N and D vary apart from one another, else a power law in C with a floor."""
    if {"N", "D"} <= set(points.columns):
        size, data = (np.log(points.numbers(name)) for name in ("N", "D"))
        if len(set(size)) > 1 and len(set(data)) > 1:
            slope, offset = np.polyfit(size, data, 1)
            if np.std(data - slope * size - offset) > LINE:
                return "chinchilla"
    return "power_law_floor_c"
