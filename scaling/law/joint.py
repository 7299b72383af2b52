"""Fits across architectures: which constants do they share, and what is a variant worth in compute?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from scaling.errors import ScalingError, nearest
from scaling.law.autodiff import Dual, exp, log
from scaling.law.compare import Comparison, compare
from scaling.law.forms import Columns, Form, Parameter, named
from scaling.law.forms.form import Seeds
from scaling.law.points import Points
from scaling.laws.fit import Fit, fit, intervals
from scaling.laws.intervals import Interval, Method
from scaling.laws.optimum import Budget, best_loss
from scaling.laws.problem import Quantity

VARIANT = "variant_code"
NOTHING = Dual(np.zeros(1), {})
Difference = Literal["nothing", "compute", "coefficients", "exponents", "everything"]
DIFFERENCES: tuple[Difference, ...] = ("nothing", "compute", "coefficients", "exponents", "everything")
"""How variants differ: by a factor of compute; by coefficients; by these and exponents, the floor shared; by all."""

SHARE_OF_COMPUTE = {"C": 1.0, "N": 0.5, "D": 0.5}
"""A variant worth k times the compute sees each column this power of k larger."""


@dataclass(frozen=True)
class Joint(Form):
    """One law for several variants: parameters named in `own` are each variant's own, written `alpha[GLU]`.

    With `factors`, each variant named there acts like the first with `k[variant]` times the compute, spent evenly on
    N and D.
    """

    law: Form
    variants: tuple[str, ...]
    own: tuple[str, ...] = ()
    factors: tuple[str, ...] = ()
    citation = "the law's own"

    @property
    def formula(self) -> str:  # type: ignore[override]
        parts = [f"own {', '.join(self.own)}"] if self.own else []
        parts += [f"compute of {', '.join(self.factors)} × k"] if self.factors else []
        return f"{self.law.formula}; {len(self.variants)} variants, {' and '.join(parts) or 'nothing'} apart"

    @property
    def name(self) -> str:
        return f"joint_{self.law.name}"

    @property
    def target(self) -> str:  # type: ignore[override]
        return self.law.target

    @property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*self.law.inputs, VARIANT)

    @property
    def axes(self) -> tuple[str, ...]:
        return self.law.axes

    @property
    def parameters(self) -> tuple[Parameter, ...]:  # type: ignore[override]
        shared = [
            replace(parameter, name=name) for parameter in self.law.parameters for name in self._names(parameter.name)
        ]
        return (*shared, *(Parameter(f"k[{v}]", "1", "log", 1e-6, 1e6, (0.3, 3.0)) for v in self.factors))

    def _names(self, parameter: str) -> list[str]:
        return [f"{parameter}[{variant}]" for variant in self.variants] if parameter in self.own else [parameter]

    def curve(self, p: Any, x: Any) -> Dual:
        columns = SimpleNamespace(**{name: getattr(x, name) for name in self.law.inputs})
        if self.factors:
            k = exp(sum((log(getattr(p, f"k[{v}]")) * self._is(x, v) for v in self.factors), start=NOTHING))
            for name in self.law.inputs:
                setattr(columns, name, k ** SHARE_OF_COMPUTE[name] * getattr(x, name))
        theirs = SimpleNamespace()
        for name in self.law.parameter_names:
            if name in self.own:
                parts = (getattr(p, f"{name}[{v}]") * self._is(x, v) for v in self.variants)
                setattr(theirs, name, sum(parts, start=NOTHING))
            else:
                setattr(theirs, name, getattr(p, name))
        return self.law.curve(theirs, columns)

    def _is(self, x: Any, variant: str) -> np.ndarray:
        return (getattr(x, VARIANT) == self.variants.index(variant)).astype(float)

    def reference(self, inputs: Columns, parameter: Parameter) -> dict[str, float]:
        """The middle of the points, for the variant whose parameter it is."""
        variant = next((v for v in self.variants if parameter.name.endswith(f"[{v}]")), self.variants[0])
        return super().reference(inputs, parameter) | {VARIANT: float(self.variants.index(variant))}


def joint(law: Form | str, variants: Sequence[str], differ: Difference) -> Joint:
    """The joint law of `variants` that differ in the way named."""
    law = named(law) if isinstance(law, str) else law
    variants = tuple(variants)
    floors = {p.name for p in law.parameters if p.linear and p.scale == "linear"}
    coefficients = tuple(p.name for p in law.parameters if p.linear and p.scale == "log")
    slopes = tuple(p.name for p in law.parameters if p.name not in floors and p.name not in coefficients)
    if differ == "compute":
        if set(law.inputs) - set(SHARE_OF_COMPUTE):
            raise ScalingError(f"compute does not set every column of {law.name}", fix="use a law in C, or in N and D")
        return Joint(law, variants, factors=variants[1:])
    own = {
        "nothing": (),
        "coefficients": coefficients,
        "exponents": coefficients + slopes,
        "everything": law.parameter_names,
    }
    if differ not in own:
        raise ScalingError(f"variants cannot differ by {differ!r}", fix=nearest(differ, DIFFERENCES))
    return Joint(law, variants, own=own[differ])


def fit_joint(
    law: Form | str, points: Points, by: str, differ: Difference, baseline: str | None = None, **choices: Any
) -> Fit:
    """Fit one law to the variants in column `by`; factors of compute are relative to `baseline` (the first by name)."""
    labels = [str(label) for label in points[by]]
    variants = sorted(set(labels))
    if len(variants) < 2:
        raise ScalingError("holds one variant, so there is nothing to share", key=by, fix="add another variant")
    if baseline is not None:
        if baseline not in variants:
            raise ScalingError(f"there is no variant {baseline!r}", key=by, fix=nearest(baseline, variants))
        variants.sort(key=lambda variant: variant != baseline)
    return fit(joint(law, variants, differ), coded(points, by, variants), **choices)


def coded(points: Points, by: str, variants: Sequence[str]) -> Points:
    """The points with the column by which a joint law of these variants knows them."""
    codes = np.array([float(variants.index(str(label))) for label in points[by]])
    return points.with_column(VARIANT, codes, f"place of {by} among {', '.join(variants)}")


@dataclass(frozen=True)
class Verdict:
    """Joint fits under each way to differ, weighed against each other."""

    fits: Mapping[str, Fit]
    comparison: Comparison

    @property
    def best(self) -> str:
        return self.comparison.best

    def __str__(self) -> str:
        weight = self.comparison.weights[self.best]
        return f"the variants differ by {self.best} (Akaike weight {weight:.2f} of {len(self.fits)} ways to differ)"


def how_variants_differ(
    law: Form | str, points: Points, by: str, baseline: str | None = None, **choices: Any
) -> Verdict:
    """Is a variant better by a factor of compute, by its coefficients, by an exponent, or not at all?"""
    fits = {differ: fit_joint(law, points, by, differ, baseline, **choices) for differ in DIFFERENCES}
    return Verdict(fits, compare(fits))


def equivalent_compute(
    joint_fit: Fit, variant: str, C: float | None = None, method: Method = "profile", level: float = 0.95
) -> Interval:
    """What `variant` is worth in compute of the baseline: 1.31 means the baseline needs 1.31 times as much.

    Under a joint fit that differs by compute this is the constant k[variant]. Under any other it depends on the budget
    C: k solves L_baseline(k C) = L_variant(C), both compute-optimal.
    """
    form = joint_fit.form
    if not isinstance(form, Joint) or variant not in form.variants[1:]:
        raise ScalingError(f"{variant!r} is not a variant of this fit other than its baseline", fix="use fit_joint")
    if form.factors:
        return intervals(joint_fit, method, level=level, quantities=[f"k[{variant}]"])[f"k[{variant}]"]
    if C is None:
        raise ScalingError("what a variant is worth depends on the budget under this fit", fix="give C")
    quantity = Quantity(f"k[{variant}](C={C:g})", _worth(variant, C), "log")
    return intervals(joint_fit, method, level=level, quantities=[quantity])[quantity.name]


def _worth(variant: str, C: float):
    """k with L_baseline(k C) = L_variant(C), and its derivative by the implicit function theorem."""

    def formula(form: Form, theta: np.ndarray, seeds: Seeds) -> Dual:
        assert isinstance(form, Joint)
        budget = np.full((len(theta), 1), C)
        code = {VARIANT: float(form.variants.index(variant))}
        theirs = best_loss(form, theta, seeds, Budget(budget, code))
        baseline = {VARIANT: 0.0}
        log_k = np.zeros((len(theta), 1))
        for _ in range(NEWTON_STEPS):
            ours = best_loss(form, theta, seeds, Budget(budget * np.exp(log_k), baseline))
            below, above = (
                best_loss(form, theta, {}, Budget(budget * np.exp(log_k + shift), baseline)).value
                for shift in (-STEP, STEP)
            )
            slope = (above - below) / (2.0 * STEP)
            step = np.clip((theirs.value - ours.value) / slope, -3.0, 3.0)
            log_k = log_k + step
            if np.max(np.abs(step)) < 1e-10:
                break
        change = (theirs - ours).gradient
        return exp(Dual(log_k, {index: part / slope for index, part in change.items()}))

    return formula


NEWTON_STEPS, STEP = 30, 1e-3  # in log k: the loss along the frontier is convex in log C, so Newton's method is safe
