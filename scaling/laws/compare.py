"""Compare laws of the same points, variants of a model under one law, and two sets of runs.

Laws are weighed by AICc. A joint law of several variants shows whether a variant's lead grows or shrinks with scale:
all variants share the floor E, because they read the same data; each has its own coefficients and exponents. Set B is
k times as efficient as set A at a budget C if L_A(k C) = L_B(C), both at their best split of the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import product
from operator import add
from types import SimpleNamespace
from typing import Any

import numpy as np

from scaling.base.errors import nearest, refuse
from scaling.laws.catalogue import named
from scaling.laws.fit import FittedLaw, bounds_of, fit, intervals, is_on_a_line, problem_of
from scaling.laws.intervals import Interval, measure, student
from scaling.laws.law import FLOPS, VARIANT, Dual, Law, Seeds, with_compute
from scaling.laws.optimum import Budget, best_loss
from scaling.laws.points import IDENTITIES, Points, group_of
from scaling.laws.problem import Quantity, derived, named_objective

# γ = αβ/(α + β): along the compute-optimal frontier L - E ∝ C^-γ. (Hoffmann et al. 2022, from their eq. 4)
COMPUTE = "compute"
SET = "compared"  # the column that names the set of a run
FARTHER = (1.0, 10.0, 100.0)  # times the budget at which the order of two sets is judged
NEWTON_STEPS, STEP = 30, 1e-3  # in log k: the loss along the best split is convex in log C, so Newton is safe


def aicc(fit: FittedLaw) -> float:
    """n log s² + 2k + 2k(k+1)/(n-k-1) with k = p + 1 for the noise. Hurvich and Tsai 1989, Biometrika 76(2).

    s is the noise that explains the objective without correction for p: the root mean square residual under squared
    errors, in proportion to the mean absolute one under absolute errors.
    """
    n, k = len(fit.problem.observed), len(fit.problem.free) + 1
    if n <= k + 1:
        return float("inf")
    scale = measure(fit.problem.objective, fit.objective, n, 0).scale
    determinant = 0.0 if fit.problem.shared is None else fit.problem.shared.log_determinant
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
    posed = {(fit.problem.objective, np.sort(fit.problem.observed).tobytes()) for fit in fits.values()}
    what = "only fits of the same points under the same objective can be compared"
    refuse(len(posed) > 1, what, "fit them again")
    weighed = zip(fits, map(aicc, fits.values()), akaike_weights([*fits.values()]).tolist(), strict=True)
    return {name: (criterion, weight) for name, criterion, weight in sorted(weighed, key=lambda each: each[1])}


def mean_interval(fits: Sequence[FittedLaw], quantity: Callable[[Law], Quantity], level: float = 0.95) -> Interval:
    """The interval of a quantity by one law, or of its mean over several laws, which includes their disagreement.

    An end is Σ w √(reach² + t² (q - mean)²) from the mean, `reach` being t standard errors of that law: Buckland,
    Burnham and Augustin 1997, Biometrics 53(2), eq. 9, times Student's t. The weights w are Akaike's.
    """
    bounds = [bound for fit in fits for bound in bounds_of(fit, [quantity(fit.form)], level=level)]
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
    """The joint law of `variants`, which share the floor. A parameter of one variant is written `alpha[GLU]`."""
    law, variants = named(law) if isinstance(law, str) else law, tuple(variants)
    separate = [p.name for p in law.parameters if not (p.linear and p.scale == "linear")]
    parameters = [
        # A parameter's term is measured at the points of its variant.
        replace(p, name=f"{p.name}[{variant}]" if p.name in separate else p.name, at={**p.at, VARIANT: float(code)})
        for p in law.parameters
        for code, variant in enumerate(variants if p.name in separate else variants[:1])
    ]

    def curve(p: Any, x: Any) -> Dual:
        is_of = {v: (getattr(x, VARIANT) == code).astype(float) for code, v in enumerate(variants)}

        def value(name: str) -> Dual:
            if name not in separate:
                return getattr(p, name)
            return reduce(add, (getattr(p, f"{name}[{variant}]") * is_of[variant] for variant in variants))

        values = SimpleNamespace(**{name: value(name) for name in law.parameter_names})
        return law.curve(values, SimpleNamespace(**{name: getattr(x, name) for name in law.inputs}))

    return Law(
        name=f"joint_{law.name}",
        formula=f"{law.formula}; {len(variants)} variants, own {', '.join(separate)} apart",
        citation="the law's own",
        target=law.target,
        inputs=(*law.inputs, VARIANT),
        parameters=tuple(parameters),
        curve=curve,
        variants=variants,
    )


def fit_joint(law: Law | str, points: Points, by: str, baseline: str | None = None, **choices: Any) -> FittedLaw:
    """Fit one law to the variants in column `by`; the first variant is `baseline`, or else the first by name."""
    variants = sorted({str(label) for label in points[by]})
    what = "holds one variant, so there is nothing to share"
    refuse(len(variants) < 2, what, "add another variant", key=by)
    is_known, fix = baseline is None or baseline in variants, nearest(str(baseline), variants)
    refuse(not is_known, f"there is no variant {baseline!r}", fix, key=by)
    variants.sort(key=lambda variant: baseline is not None and variant != baseline)
    return fit(joint(law, variants), coded(points, by, variants), **choices)


def coded(points: Points, by: str, variants: Sequence[str]) -> Points:
    """The points with the column by which a joint law of these variants knows them."""
    codes = np.array([float(variants.index(str(label))) for label in points[by]])
    return points.with_column(VARIANT, codes, f"place of {by} among {', '.join(variants)}")


@dataclass(frozen=True)
class Exponent:
    """One exponent of one variant, and its difference from the baseline's (none for the baseline)."""

    variant: str
    name: str
    own: Interval
    difference: Interval | None


def exponents(fit: FittedLaw) -> list[Exponent]:
    """Every exponent of every variant of a joint fit; the exponent of compute is first, if the law has one."""
    form = fit.form
    refuse(not form.variants, "a fit of one law has no variants", "use fit_joint")
    base = form.variants[0]
    # Each variant has exponents of its own: those of the baseline name them all.
    names_of_exponents = [p.name for p in form.parameters if p.unit == "1" and p.name.endswith(f"[{base}]")]
    names = [name.removesuffix(f"[{base}]") for name in names_of_exponents]
    if set(form.axes) == {"N", "D"} and {"alpha", "beta"} <= set(names):
        names = [COMPUTE, *names]

    def value(p: Any, name: str, variant: str) -> Dual:
        if name != COMPUTE:
            return getattr(p, f"{name}[{variant}]")
        alpha, beta = value(p, "alpha", variant), value(p, "beta", variant)
        return alpha * beta / (alpha + beta)

    def difference(p: Any, name: str, variant: str) -> Dual:
        return value(p, name, variant) - value(p, name, base)

    own = {(n, v): derived(f"{n}[{v}]", partial(value, name=n, variant=v)) for n, v in product(names, form.variants)}
    apart = {
        (n, v): derived(f"{n}[{v}] - {n}[{base}]", partial(difference, name=n, variant=v)) for n, v in own if v != base
    }
    bounds = intervals(fit, quantities=[*own.values(), *apart.values()])
    differences = {pair: bounds[quantity.name] for pair, quantity in apart.items()}
    return [Exponent(v, n, bounds[quantity.name], differences.get((n, v))) for (n, v), quantity in own.items()]


@dataclass(frozen=True)
class Advantage:
    """The advantage of the set B over the set A at a budget of FLOPs."""

    law: FittedLaw
    names: tuple[str, str]
    flops: Sequence[float]  # per parameter and token of either set, where the law is one in N and D
    budget: float
    level: float = 0.95

    @property
    def k(self) -> Interval:
        """A needs this many times the compute for the loss of B."""
        quantity = Quantity(f"k(C={self.budget:g})", self._worth, "log")
        return bounds_of(self.law, [quantity], "t", self.level)[0]

    def difference(self, C: float) -> Interval:
        """The loss of B less that of A at equal compute; below 0, B is better."""
        quantity = Quantity(f"difference(C={C:g})", lambda *at: self._loss(1, C, *at) - self._loss(0, C, *at), "linear")
        return bounds_of(self.law, [quantity], "t", self.level)[0]

    def loss(self, code: int, C: float) -> float:
        """The loss of a set at its best split of a budget."""
        return float(self._loss(code, C, self.law.form, self.law.theta[None], {}).value[0, 0])

    def probability(self, C: float) -> float:
        """The probability that B is better than A at a budget, if the law holds there."""
        from scipy.special import stdtr

        difference, freedom = self.difference(C), self.law.degrees_of_freedom
        error = (difference.high - difference.low) / (2.0 * student(self.level, freedom))
        return float(stdtr(freedom, -difference.estimate / max(error, 1e-300))) if np.isfinite(error) else 0.5

    def budget_of(self, loss: float) -> float:
        """The budget at which B has a loss."""
        from scipy.optimize import root_scalar

        low, high = (np.log(self.budget * factor) for factor in (1e-12, 1e12))
        is_reached = self.loss(1, np.exp(high)) < loss < self.loss(1, np.exp(low))
        refuse(not is_reached, f"{self.names[1]} reaches it at no budget", key="loss", value=loss)
        root = root_scalar(lambda log_budget: self.loss(1, np.exp(log_budget)) - loss, bracket=(low, high))
        return float(np.exp(root.root))

    def _loss(self, code: int, C: Any, form: Law, theta: np.ndarray, seeds: Seeds) -> Dual:
        return best_loss(form, theta, seeds, Budget(C * FLOPS / self.flops[code], others={VARIANT: float(code)}))

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
    """Fit one law to two sets of runs, and state the advantage of B at the budget C, or where B has this `loss`.

    Without either it is stated at the largest common budget.
    """
    # Chinchilla's law where N and D vary apart from one another, else a power law in C with a floor.
    in_both = all({"N", "D"} <= each.columns.keys() for each in (a, b)) and not all(
        is_on_a_line(np.log(np.column_stack([each.numbers(name) for name in ("N", "D")]))) for each in (a, b)
    )
    together, objective = pooled((a, b), names), named_objective("log_squared")
    form = named(law or ("chinchilla" if in_both else "power_law_floor_c"))
    is_of_compute = form.target == "loss" and set(form.inputs) in ({"N", "D"}, {"C"})
    what, fix = "is not a law of the loss in N and D, or in C", "take chinchilla or power_law_floor_c"
    refuse(not is_of_compute, what, fix, key="law", value=form.name)
    for each in (a, b):  # what one set does not determine, the other does not determine either
        problem_of(form, replace(each, columns=with_compute(each.columns)), objective)
    joint = fit_joint(form, together, SET, baseline=names[0], objective=objective, group=group_of(together))
    of_set = [together[SET] == name for name in names]
    cost = together.numbers("C")
    flops: Sequence[float] = (FLOPS, FLOPS)
    if joint.form.inputs[0] == "N":
        log_flops = np.log(cost / (together.numbers("N") * together.numbers("D")))
        flops = [float(np.exp(log_flops[mask].mean())) for mask in of_set]
    advantage_at = Advantage(joint, names, flops, C or float(min(cost[mask].max() for mask in of_set)), level)
    return advantage_at if loss is None else replace(advantage_at, budget=advantage_at.budget_of(loss))


def pooled(sets: Sequence[Points], names: Sequence[str]) -> Points:
    """The runs of all sets, in the columns that all have, with the name of each run's set; losses of two kinds are
    refused.
    """
    for subject in ("loss", "N", "D", "C", *IDENTITIES):
        stated = {each.definition(subject) for each in sets if subject in each.definitions}
        what = f"the sets state two definitions: {' and '.join(sorted(stated))}"
        refuse(len(stated) > 1, what, "compare runs of one kind", key=subject)
    common = [column for column in sets[0].columns if all(column in each for each in sets)]
    columns: dict[str, Any] = {column: np.concatenate([each[column] for each in sets]) for column in common}
    columns[SET] = np.concatenate([np.full(len(each), name, object) for name, each in zip(names, sets)])
    for label in {"trunk", "run", "run_name"} & columns.keys():  # two tables may number them alike
        labels = zip(columns[SET], columns[label], strict=True)
        columns[label] = np.array([f"{name} {each}" for name, each in labels], object)
    return Points(with_compute(columns), {**sets[1].definitions, **sets[0].definitions})
