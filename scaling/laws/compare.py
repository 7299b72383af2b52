"""Compare laws of the same points, and variants of a model under one law.

Laws are weighed by AICc. A joint law of several variants shows whether a variant's lead grows or shrinks with scale:
the floor is shared, coefficients and exponents are each variant's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from scaling.errors import ScalingError, nearest
from scaling.laws.catalogue import named
from scaling.laws.dual import Dual
from scaling.laws.fit import FittedLaw, fit, intervals
from scaling.laws.intervals import Interval, measure, student
from scaling.laws.law import VARIANT, Law
from scaling.laws.points import Points
from scaling.laws.problem import Quantity, derived

COMPUTE = "compute"
"""γ = αβ/(α + β): along the compute-optimal frontier L - E ∝ C^-γ. (Hoffmann et al. 2022, from their eq. 4)"""


def aicc(fit: FittedLaw) -> float:
    """n log s² + 2k + 2k(k+1)/(n-k-1) with k = p + 1 for the noise. Hurvich and Tsai 1989, Biometrika 76(2).

    s is the noise that explains the objective without correction for p: the root mean square residual under squared
    errors, in proportion to the mean absolute one under absolute errors.
    """
    n, k = len(fit.problem.observed), len(fit.problem.free) + 1
    if n <= k + 1:
        return float("inf")
    scale = measure(fit.problem.objective, fit.objective, n, 0).scale
    shared = fit.problem.shared
    determinant = 0.0 if shared is None else shared.log_determinant
    return n * 2.0 * float(np.log(max(scale, 1e-150))) + determinant + 2.0 * k + 2.0 * k * (k + 1) / (n - k - 1)


def akaike_weights(fits: Sequence[FittedLaw]) -> np.ndarray:
    """The weights of fits of the same points, which sum to one; equal where there are too few points for AICc."""
    criterion = np.array([aicc(each) for each in fits])
    if not np.isfinite(criterion).all():
        return np.full(len(fits), 1.0 / len(fits))
    likelihood = np.exp(-0.5 * (criterion - criterion.min()))
    return likelihood / likelihood.sum()


def compare(fits: Mapping[str, FittedLaw]) -> dict[str, tuple[float, float]]:
    """AICc and Akaike weight of fits of the same points under the same objective, the best first."""
    problems = [fit.problem for fit in fits.values()]
    for problem in problems:
        same = problem.objective == problems[0].objective
        if not same or not np.array_equal(np.sort(problem.observed), np.sort(problems[0].observed)):
            raise ScalingError("only fits of the same points under the same objective compare", fix="fit them again")
    weighed = zip(fits, map(aicc, fits.values()), akaike_weights([*fits.values()]).tolist(), strict=True)
    return {name: (criterion, weight) for name, criterion, weight in sorted(weighed, key=lambda each: each[1])}


def mean_interval(fits: Sequence[FittedLaw], quantity: Callable[[Law], Quantity], level: float = 0.95) -> Interval:
    """The interval of a quantity by one law, or of its mean over several, which holds their disagreement.

    An end is Σ w √(reach² + t² (q - mean)²) from the mean, `reach` being t standard errors of that law: Buckland,
    Burnham and Augustin 1997, Biometrics 53(2), eq. 9, times Student's t. The weights w are Akaike's.
    """
    bounds = [bound for fit in fits for bound in intervals(fit, level=level, quantities=[quantity(fit.form)]).values()]
    if len(bounds) == 1:
        return bounds[0]
    weights, estimates = akaike_weights(fits), np.array([bound.estimate for bound in bounds])
    centre = float(np.dot(weights, estimates))
    disagreement = [student(level, fit.degrees_of_freedom) for fit in fits] * (estimates - centre)
    below, above = (
        float(np.dot(weights, np.hypot(reach, disagreement))) if np.isfinite(reach).all() else np.inf
        for reach in (estimates - [bound.low for bound in bounds], [bound.high for bound in bounds] - estimates)
    )
    return Interval(bounds[0].name, centre, centre - below, centre + above, level, "average")


def joint(law: Law | str, variants: Sequence[str]) -> Law:
    """The joint law of `variants`, which share the floor. A variant's own parameter is written `alpha[GLU]`."""
    law, variants = named(law) if isinstance(law, str) else law, tuple(variants)
    own = [p.name for p in law.parameters if not (p.linear and p.scale == "linear")]
    parameters = []
    for parameter in law.parameters:
        # A parameter's term is measured at the points of its variant.
        for code, variant in enumerate(variants if parameter.name in own else variants[:1]):
            name = f"{parameter.name}[{variant}]" if parameter.name in own else parameter.name
            parameters.append(replace(parameter, name=name, at={**parameter.at, VARIANT: float(code)}))

    def curve(p: Any, x: Any) -> Dual:
        is_of = {v: (getattr(x, VARIANT) == code).astype(float) for code, v in enumerate(variants)}

        def own_value(name: str) -> Dual:
            return sum((getattr(p, f"{name}[{v}]") * is_of[v] for v in variants), start=Dual(np.zeros(1), {}))

        values = {name: own_value(name) if name in own else getattr(p, name) for name in law.parameter_names}
        return law.curve(SimpleNamespace(**values), SimpleNamespace(**{name: getattr(x, name) for name in law.inputs}))

    return Law(
        name=f"joint_{law.name}",
        formula=f"{law.formula}; {len(variants)} variants, own {', '.join(own)} apart",
        citation="the law's own",
        target=law.target,
        inputs=(*law.inputs, VARIANT),
        parameters=tuple(parameters),
        curve=curve,
        variants=variants,
    )


def fit_joint(law: Law | str, points: Points, by: str, baseline: str | None = None, **choices: Any) -> FittedLaw:
    """Fit one law to the variants in column `by`, of which the first is `baseline` or the first by name."""
    variants = sorted({str(label) for label in points[by]})
    if len(variants) < 2:
        raise ScalingError("holds one variant, so there is nothing to share", key=by, fix="add another variant")
    if baseline is not None:
        if baseline not in variants:
            raise ScalingError(f"there is no variant {baseline!r}", key=by, fix=nearest(baseline, variants))
        variants.sort(key=lambda variant: variant != baseline)
    return fit(joint(law, variants), coded(points, by, variants), **choices)


def coded(points: Points, by: str, variants: Sequence[str]) -> Points:
    """The points with the column by which a joint law of these variants knows them."""
    codes = np.array([float(variants.index(str(label))) for label in points[by]])
    return points.with_column(VARIANT, codes, f"place of {by} among {', '.join(variants)}")


@dataclass(frozen=True)
class Exponent:
    """One exponent of one variant, and how far it lies from the baseline's; the baseline itself has no difference."""

    variant: str
    name: str
    own: Interval
    difference: Interval | None


def exponents(fit: FittedLaw) -> list[Exponent]:
    """Every exponent of every variant of a joint fit, that of compute first where the law has one."""
    form = fit.form
    if not form.variants:
        raise ScalingError("a fit of one law has no variants", fix="use fit_joint")
    base = form.variants[0]
    # Each variant has exponents of its own: those of the baseline name them all.
    own = [p.name for p in form.parameters if p.unit == "1" and p.name.endswith(f"[{base}]")]
    names = [name.removesuffix(f"[{base}]") for name in own]
    if set(form.axes) == {"N", "D"} and {"alpha", "beta"} <= set(names):
        names = [COMPUTE, *names]
    quantities = [
        derived(f"{name}[{variant}]{against}", partial(_exponent, name, variant, base if against else None))
        for name in names
        for variant in form.variants
        for against in ("", f" - {name}[{base}]")
        if variant != base or not against
    ]
    bounds = intervals(fit, quantities=quantities)
    return [
        Exponent(variant, name, bounds[f"{name}[{variant}]"], bounds.get(f"{name}[{variant}] - {name}[{base}]"))
        for name in names
        for variant in form.variants
    ]


def _exponent(name: str, variant: str, base: str | None, p: Any) -> Dual:
    """An exponent of a variant, less that of the variant `base` where one is named."""
    if base is not None:
        return _exponent(name, variant, None, p) - _exponent(name, base, None, p)
    if name != COMPUTE:
        return getattr(p, f"{name}[{variant}]")
    alpha, beta = getattr(p, f"alpha[{variant}]"), getattr(p, f"beta[{variant}]")
    return alpha * beta / (alpha + beta)
