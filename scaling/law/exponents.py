"""Exponents of variants compared: does a variant's lead grow or shrink with scale?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scaling.errors import ScalingError
from scaling.law.autodiff import Dual
from scaling.law.fit import Fit
from scaling.law.interval import Interval, Method, intervals
from scaling.law.joint import Joint
from scaling.law.quantity import derived

COMPUTE = "compute"
"""γ = αβ/(α + β): along the compute-optimal frontier L - E ∝ C^-γ. (Hoffmann et al. 2022, from their eq. 4)"""


@dataclass(frozen=True)
class Exponent:
    """One exponent of one variant, and how far it lies from the baseline's; the baseline itself has no difference."""

    variant: str
    name: str
    own: Interval
    difference: Interval | None


def exponents(fit: Fit, method: Method = "profile", level: float = 0.95) -> list[Exponent]:
    """Every exponent of every variant of a joint fit, that of compute first where the law has one."""
    form = fit.form
    if not isinstance(form, Joint):
        raise ScalingError("a fit of one law has no variants", fix="use fit_joint")
    names = [parameter.name for parameter in form.law.parameters if parameter.unit == "1"]
    if not set(names) & set(form.own):
        raise ScalingError("the variants share their exponents", fix="fit_joint(…, differ='exponents')")
    formulas: dict[str, Callable[[Any, str], Dual]] = {name: _parameter(name) for name in names}
    if set(form.law.inputs) == {"N", "D"} and {"alpha", "beta"} <= set(names):
        formulas = {COMPUTE: _of_compute, **formulas}
    base = form.variants[0]
    quantities = [
        derived(f"{name}[{variant}]{against}", _quantity(formula, variant, base if against else None))
        for name, formula in formulas.items()
        for variant in form.variants
        for against in ("", f" - {name}[{base}]")
        if variant != base or not against
    ]
    bounds = intervals(fit, method, level=level, quantities=quantities)
    return [
        Exponent(variant, name, bounds[f"{name}[{variant}]"], bounds.get(f"{name}[{variant}] - {name}[{base}]"))
        for name in formulas
        for variant in form.variants
    ]


def _parameter(name: str) -> Callable[[Any, str], Dual]:
    return lambda p, variant: getattr(p, f"{name}[{variant}]")


def _of_compute(p: Any, variant: str) -> Dual:
    alpha, beta = getattr(p, f"alpha[{variant}]"), getattr(p, f"beta[{variant}]")
    return alpha * beta / (alpha + beta)


def _quantity(formula: Callable[[Any, str], Dual], variant: str, base: str | None) -> Callable[[Any], Dual]:
    if base is None:
        return lambda p: formula(p, variant)
    return lambda p: formula(p, variant) - formula(p, base)
