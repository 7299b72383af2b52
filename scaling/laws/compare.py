"""Compare laws of the same points, and variants of a model under one law.

Laws are weighed by AICc, predictions averaged over them. A joint law of several variants shows which constants they
share, whether a variant's lead grows or shrinks with scale, and what a variant is worth in compute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from scaling.errors import ScalingError, nearest
from scaling.laws.catalogue import named
from scaling.laws.dual import Dual
from scaling.laws.fit import FittedLaw, fit, intervals
from scaling.laws.intervals import Interval, Method, measure, student
from scaling.laws.law import VARIANT, Law, Parameter, Seeds
from scaling.laws.optimum import FLOPS, Budget, best_loss
from scaling.laws.points import Points
from scaling.laws.problem import Quantity, derived, prediction

NOTHING = Dual(np.zeros(1), {})
Difference = Literal["nothing", "compute", "coefficients", "exponents", "everything"]
DIFFERENCES: tuple[Difference, ...] = ("nothing", "compute", "coefficients", "exponents", "everything")
"""How variants differ: by a factor of compute; by coefficients; by these and exponents, the floor shared; by all."""
SHARE_OF_COMPUTE = {"C": 1.0, "N": 0.5, "D": 0.5}
"""A variant worth k times the compute sees each column this power of k larger."""
COMPUTE = "compute"
"""γ = αβ/(α + β): along the compute-optimal frontier L - E ∝ C^-γ. (Hoffmann et al. 2022, from their eq. 4)"""
NEWTON_STEPS, STEP = 30, 1e-3  # in log k: the loss along the frontier is convex in log C, so Newton's method is safe


def aicc(fit: FittedLaw) -> float:
    """n log s² + 2k + 2k(k+1)/(n-k-1) with k = p + 1 for the noise. Hurvich and Tsai 1989, Biometrika 76(2).

    s is the noise that explains the objective without correction for p: the root mean square residual under squared
    errors, in proportion to the mean absolute one under absolute errors.
    """
    n, k = len(fit.problem.observed), len(fit.problem.free) + 1
    if n <= k + 1:
        return float("inf")
    scale = float(measure(fit.problem.objective, np.array([fit.objective]), n, 0).scale[0])
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


@dataclass(frozen=True)
class Comparison:
    """Laws fitted to the same points, the best first."""

    fits: Mapping[str, FittedLaw]
    aicc: dict[str, float]
    weights: dict[str, float]
    """Akaike weights: they sum to one."""

    @property
    def best(self) -> str:
        return next(iter(self.aicc))


def compare(fits: Mapping[Any, FittedLaw]) -> Comparison:
    """Weigh fits of the same points under the same objective by AICc."""
    problems = [fit.problem for fit in fits.values()]
    for problem in problems:
        same = problem.objective == problems[0].objective
        if not same or not np.array_equal(np.sort(problem.observed), np.sort(problems[0].observed)):
            raise ScalingError("only fits of the same points under the same objective compare", fix="fit them again")
    weights = dict(zip(fits, map(float, akaike_weights([*fits.values()]))))
    criterion = dict(sorted(((name, aicc(fit)) for name, fit in fits.items()), key=lambda item: item[1]))
    return Comparison(fits, criterion, {name: weights[name] for name in criterion})


def average(fits: Mapping[str, FittedLaw], inputs: Mapping[str, float], level: float = 0.95) -> Interval:
    """The prediction averaged over laws by Akaike weight; its error holds the disagreement between them."""
    weights = compare(fits).weights
    return mean_interval(
        [*fits.values()], lambda form: prediction(form, inputs), [weights[name] for name in fits], level, "t"
    )


def mean_interval(
    fits: Sequence[FittedLaw],
    quantity: Callable[[Law], Quantity],
    weights: Sequence[float],
    level: float = 0.95,
    method: Method = "profile",
) -> Interval:
    """The interval of a quantity by one law, or of its mean over several, which holds their disagreement.

    An end is Σ w √(reach² + t² (q - mean)²) from the mean, `reach` being t standard errors of that law: Buckland,
    Burnham and Augustin 1997, Biometrics 53(2), eq. 9, times Student's t.
    """
    bounds = [
        bound for fit in fits for bound in intervals(fit, method, level=level, quantities=[quantity(fit.form)]).values()
    ]
    if len(bounds) == 1:
        return bounds[0]
    estimates = np.array([bound.estimate for bound in bounds])
    centre = float(np.dot(weights, estimates))
    disagreement = [student(level, fit.degrees_of_freedom) for fit in fits] * (estimates - centre)
    below, above = (
        float(np.dot(weights, np.hypot(reach, disagreement))) if np.isfinite(reach).all() else np.inf
        for reach in (estimates - [bound.low for bound in bounds], [bound.high for bound in bounds] - estimates)
    )
    return Interval(bounds[0].name, centre, centre - below, centre + above, level, "average")


def joint(law: Law | str, variants: Sequence[str], differ: Difference) -> Law:
    """The joint law of `variants` that differ in the way named.

    A parameter that is each variant's own is written `alpha[GLU]`. Where variants differ by compute, each acts like the
    first with `k[variant]` times the compute, spent evenly on N and D.
    """
    law = named(law) if isinstance(law, str) else law
    variants = tuple(variants)
    floors = {p.name for p in law.parameters if p.linear and p.scale == "linear"}
    own_names: dict[str, set[str]] = {
        "nothing": set(),
        "compute": set(),
        "coefficients": {p.name for p in law.parameters if p.linear and p.scale == "log"},
        "exponents": set(law.parameter_names) - floors,
        "everything": set(law.parameter_names),
    }
    if differ not in own_names:
        raise ScalingError(f"variants cannot differ by {differ!r}", fix=nearest(differ, DIFFERENCES))
    if differ == "compute" and set(law.inputs) - set(SHARE_OF_COMPUTE):
        raise ScalingError(f"compute does not set every column of {law.name}", fix="use a law in C, or in N and D")
    own, factors = own_names[differ], variants[1:] if differ == "compute" else ()
    parameters = []
    for parameter in law.parameters:
        # A parameter's term is measured at the points of its variant.
        for code, variant in enumerate(variants if parameter.name in own else variants[:1]):
            name = f"{parameter.name}[{variant}]" if parameter.name in own else parameter.name
            parameters.append(replace(parameter, name=name, at={**parameter.at, VARIANT: float(code)}))
    parameters += [Parameter(f"k[{variant}]", "1", "log", 1e-6, 1e6, (0.3, 3.0)) for variant in factors]

    def curve(p: Any, x: Any) -> Dual:
        is_of = {v: (getattr(x, VARIANT) == code).astype(float) for code, v in enumerate(variants)}

        def own_value(name: str) -> Dual:
            return sum((getattr(p, f"{name}[{v}]") * is_of[v] for v in variants), start=NOTHING)

        columns = {name: getattr(x, name) for name in law.inputs}
        if factors:
            k = np.exp(sum((np.log(getattr(p, f"k[{v}]")) * is_of[v] for v in factors), start=NOTHING))
            columns = {name: k ** SHARE_OF_COMPUTE[name] * column for name, column in columns.items()}
        values = {name: own_value(name) if name in own else getattr(p, name) for name in law.parameter_names}
        return law.curve(SimpleNamespace(**values), SimpleNamespace(**columns))

    differences = [f"own {', '.join(name for name in law.parameter_names if name in own)}"] if own else []
    differences += [f"compute of {', '.join(factors)} × k"] if factors else []
    return Law(
        name=f"joint_{law.name}",
        formula=f"{law.formula}; {len(variants)} variants, {' and '.join(differences) or 'nothing'} apart",
        citation="the law's own",
        target=law.target,
        inputs=(*law.inputs, VARIANT),
        parameters=tuple(parameters),
        curve=curve,
        variants=variants,
    )


def fit_joint(
    law: Law | str, points: Points, by: str, differ: Difference, baseline: str | None = None, **choices: Any
) -> FittedLaw:
    """Fit one law to the variants in column `by`; factors of compute are relative to `baseline` (the first by name)."""
    variants = sorted({str(label) for label in points[by]})
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


def how_variants_differ(
    law: Law | str, points: Points, by: str, baseline: str | None = None, **choices: Any
) -> Comparison:
    """Is a variant better by a factor of compute, by its coefficients, by an exponent, or not at all?"""
    return compare({differ: fit_joint(law, points, by, differ, baseline, **choices) for differ in DIFFERENCES})


@dataclass(frozen=True)
class Exponent:
    """One exponent of one variant, and how far it lies from the baseline's; the baseline itself has no difference."""

    variant: str
    name: str
    own: Interval
    difference: Interval | None


def exponents(fit: FittedLaw, method: Method = "profile", level: float = 0.95) -> list[Exponent]:
    """Every exponent of every variant of a joint fit, that of compute first where the law has one."""
    form = fit.form
    if not form.variants:
        raise ScalingError("a fit of one law has no variants", fix="use fit_joint")
    base = form.variants[0]
    # Each variant has exponents of its own: those of the baseline name them all.
    own = [p.name for p in form.parameters if p.unit == "1" and p.name.endswith(f"[{base}]")]
    names = [name.removesuffix(f"[{base}]") for name in own]
    if not names:
        raise ScalingError("the variants share their exponents", fix="fit_joint(…, differ='exponents')")
    if set(form.axes) == {"N", "D"} and {"alpha", "beta"} <= set(names):
        names = [COMPUTE, *names]
    quantities = [
        derived(f"{name}[{variant}]{against}", partial(_exponent, name, variant, base if against else None))
        for name in names
        for variant in form.variants
        for against in ("", f" - {name}[{base}]")
        if variant != base or not against
    ]
    bounds = intervals(fit, method, level=level, quantities=quantities)
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


def equivalent_compute(
    joint_fit: FittedLaw,
    variant: str,
    C: float | None = None,
    method: Method = "profile",
    level: float = 0.95,
    flops: tuple[float, float] = (FLOPS, FLOPS),
) -> Interval:
    """What `variant` is worth in compute of the baseline: 1.31 means the baseline needs 1.31 times as much.

    Under a joint fit that differs by compute this is the constant k[variant]. Under any other it depends on the budget
    C: k solves L_baseline(k C) = L_variant(C), both compute-optimal. `flops` are those of a parameter and token, of the
    baseline and of the variant, under a law in N and D.
    """
    form = joint_fit.form
    if variant not in form.variants[1:]:
        raise ScalingError(f"{variant!r} is not a variant of this fit other than its baseline", fix="use fit_joint")
    quantity: str | Quantity = f"k[{variant}]"
    if quantity not in form.parameter_names:
        if C is None:
            raise ScalingError("what a variant is worth depends on the budget under this fit", fix="give C")
        quantity = _worth(form.variants.index(variant), variant, C, flops)
    return next(iter(intervals(joint_fit, method, level=level, quantities=[quantity]).values()))


def _worth(code: int, variant: str, C: float, flops: tuple[float, float]) -> Quantity:
    """k with L_baseline(k C) = L_variant(C), and its derivative by the implicit function theorem."""

    def formula(form: Law, theta: np.ndarray, seeds: Seeds) -> Dual:
        def loss(code: int, log_k: np.ndarray | float = 0.0, seeds: Seeds = seeds) -> Dual:
            budget = np.full((len(theta), 1), C) * np.exp(log_k)
            return best_loss(form, theta, seeds, Budget(budget, {VARIANT: float(code)}, flops[code > 0]))

        target, log_k = loss(code), np.zeros((len(theta), 1))
        for _ in range(NEWTON_STEPS):
            baseline = loss(0, log_k)
            below, above = (loss(0, log_k + shift, {}).value for shift in (-STEP, STEP))
            slope = (above - below) / (2.0 * STEP)
            step = np.clip((target.value - baseline.value) / slope, -3.0, 3.0)
            log_k = log_k + step
            if np.max(np.abs(step)) < 1e-10:
                break
        change = (target - baseline).gradient
        return np.exp(Dual(log_k, {index: part / slope for index, part in change.items()}))

    return Quantity(f"k[{variant}](C={C:g})", formula, "log")
