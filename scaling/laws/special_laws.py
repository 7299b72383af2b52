"""Laws of special set-ups: experts, sparse weights, precision, mixtures of data, scores of tasks, whole curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, reduce
from operator import add
from typing import Any

import numpy as np

from scaling.errors import ScalingError, nearest
from scaling.laws.dual import Dual, sigmoid
from scaling.laws.law import Columns, Law, Parameter, Rng, coefficient, exponent, floor, number
from scaling.laws.points import Points

CLARK = "Clark et al. 2022, arXiv 2202.01169"
BHAGIA = "Bhagia et al. 2024, arXiv 2412.04403"
BRANDFONBRENER = "Brandfonbrener et al. 2024, arXiv 2411.12925"
TISSUE = "Tissue et al. 2024, arXiv 2408.11029"
BITS = "bits per byte"

# Experts, sparse weights, precision


def _routed_experts(p: Any, x: Any) -> Dual:
    size, experts = np.log(x.N / 1e8), np.log(x.experts)
    return p.L_0 * np.exp(p.c * size * experts - p.a * size - p.b * experts)


# N is the size of the dense model that routing leaves active. Where c > 0, experts help less the larger the model.
ROUTED_EXPERTS = Law(  # eq. 2
    name="routed_experts",
    formula="log L(N, X) = log L₀ - a n - b x + c n x, n = ln(N/10⁸), x = ln X",
    citation=CLARK,
    inputs=("N", "experts"),
    parameters=(
        Parameter("L_0", "nats per token", "log", 1e-6, 1e6, (1.0, 10.0)),
        *(exponent("a", -1.0, 2.0, (0.01, 0.5)), exponent("b", -1.0, 2.0, (0.01, 0.5))),
        number("c", -1.0, 1.0, (-0.1, 0.1)),
    ),
    curve=_routed_experts,
)


def _routed_experts_floor(p: Any, x: Any) -> Dual:
    size, experts = np.log(x.N / 1e8), np.log(1.0 + (x.experts - 1.0) / p.X_0)
    return p.E + p.A * np.exp(p.c * size * experts - p.a * size - p.b * experts)


# Experts count from about X₀ on. After eq. 2 and 7, whose X̂ saturates below and above. Departs from the paper: a floor
# E in the place of its upper saturation, with which a law without one bends alike.
ROUTED_EXPERTS_FLOOR = Law(
    name="routed_experts_floor",
    formula="L(N, X) = E + A exp(-a n - b x̂ + c n x̂), n = ln(N/10⁸), x̂ = ln(1 + (X - 1)/X₀)",
    citation=CLARK,
    inputs=("N", "experts"),
    parameters=(
        *(floor(), coefficient("A", "nats per token")),
        *(exponent("a"), exponent("b", -1.0, 2.0, (0.01, 0.5)), number("c", -1.0, 1.0, (-0.1, 0.1))),
        Parameter("X_0", "experts", "log", 1.0, 1e3, (1.0, 10.0)),
    ),
    curve=_routed_experts_floor,
)

# G is the hidden width of a dense layer over that of one expert; N counts all parameters, at a fixed ratio to those
# that a token uses.
GRANULARITY = Law(  # eq. 9
    name="granularity",
    formula="L(N, D, G) = E + (g G^-γ + a) N^-α + b D^-β",
    citation="Ludziejewski et al. 2024, arXiv 2402.07871",
    inputs=("N", "D", "granularity"),
    parameters=(
        *(floor(), coefficient("g"), coefficient("a"), coefficient("b")),
        *(exponent("gamma", start=(0.1, 1.5)), exponent("alpha"), exponent("beta")),
    ),
    curve=lambda p, x: p.E + (p.g * x.granularity**-p.gamma + p.a) * x.N**-p.alpha + p.b * x.D**-p.beta,
)


def _active_experts(p: Any, x: Any) -> Dual:
    size, data, experts = np.log(x.N / 1e9), np.log(x.D / 2e10), np.log(x.experts)
    return (
        p.E
        + p.A * np.exp(p.gamma * size * experts - p.alpha * size - p.delta * experts)
        + p.B * np.exp(p.zeta * data * experts - p.beta * data + p.omega * experts)
    )


# N counts the parameters that a token uses, X the experts, which enter both terms: more experts act as a larger model
# and ask for more data. Departs from the paper (eq. 3), whose X̂ saturates: here it is X.
ACTIVE_EXPERTS = Law(
    name="active_experts",
    formula="L(N, D, X) = E + A n^(γ ln X - α) X^-δ + B d^(ζ ln X - β) X^ω, n = N/10⁹, d = D/(2·10¹⁰)",
    citation="Ludziejewski et al. 2025, arXiv 2502.05172",
    inputs=("N", "D", "experts"),
    parameters=(
        *(floor(), coefficient("A", "nats per token"), coefficient("B", "nats per token")),
        *(exponent("alpha"), exponent("beta")),
        *(number(name, -2.0, 2.0, (-0.2, 0.2)) for name in ("delta", "omega", "gamma", "zeta")),
    ),
    curve=_active_experts,
)


def _sparse_experts(p: Any, x: Any) -> Dual:
    active, total = np.log(x.K), np.log(x.P)
    routed = np.exp(p.omega * active * total + p.delta * total - p.gamma * active)
    return p.E + p.A * x.N**-p.alpha * routed + p.B * x.D**-p.beta


# Sparsely activated models that start from a dense one (upcycling). N is the size of the dense model, K the parameters
# that a token uses over N, P all parameters over those that it uses, D the tokens of sparse training. After eq. 3 and
# 5. Departs from the paper, which fits the data's term and the term of N_active = K N and P apart: here N and K have an
# exponent each, and P helps with ln K (ω < 0), as where several experts answer a token.
SPARSE_EXPERTS = Law(
    name="sparse_experts",
    formula="L(N, K, P, D) = E + A N^-α K^-γ P^(δ + ω ln K) + B D^-β",
    citation="Liew et al. 2025, arXiv 2502.03009",
    inputs=("N", "K", "P", "D"),
    parameters=(
        *(floor(), coefficient("A"), exponent("alpha"), exponent("gamma", -1.0, 3.0, (0.01, 0.5))),
        *(number("omega", -1.0, 1.0, (-0.1, 0.1)), number("delta", -1.0, 1.0, (-0.2, 0.2))),
        *(coefficient("B"), exponent("beta")),
    ),
    curve=_sparse_experts,
)

# N counts the weights that are not zero, and `density` is the fraction of them.
SPARSE_WEIGHTS = Law(  # eq. 1
    name="sparse_weights",
    formula="L(N, D, κ) = E + (a κ^b + c) N^-α + B D^-β, κ = 1 - sparsity",
    citation="Frantar et al. 2023, arXiv 2309.08520",
    inputs=("N", "D", "density"),
    parameters=(
        *(floor(), coefficient("a"), coefficient("c"), coefficient("B")),
        *(exponent("b", start=(0.1, 2.0)), exponent("alpha"), exponent("beta")),
    ),
    curve=lambda p, x: p.E + (p.a * x.density**p.b + p.c) * x.N**-p.alpha + p.B * x.D**-p.beta,
)

# The P outputs of the same N parameters are aggregated (ParScale); k is how much of the size a stream is worth.
PARALLEL_STREAMS = Law(  # eq. 5
    name="parallel_streams",
    formula="L(N, P) = E + A (N (1 + k ln P))^-α",
    citation="Chen et al. 2025, arXiv 2505.10475",
    inputs=("N", "streams"),
    parameters=(
        *(floor(), coefficient("A"), exponent("alpha")),
        Parameter("k", "1", "log", 1e-6, 1e4, (0.01, 10.0)),
    ),
    curve=lambda p, x: p.E + p.A * (x.N * (1.0 + p.k * np.log(x.streams))) ** -p.alpha,
)

# Weights of fewer bits count as fewer weights; γ is the number of bits at which 63% of them are left.
PRECISION = Law(  # eq. 3
    name="precision",
    formula="L(N, D, P) = E + A (N (1 - exp(-P/γ)))^-α + B D^-β",
    citation="Kumar et al. 2024, arXiv 2411.04330",
    inputs=("N", "D", "bits"),
    parameters=(
        *(floor(), coefficient("A"), coefficient("B"), exponent("alpha"), exponent("beta")),
        Parameter("gamma", "bits", "log", 1e-2, 1e3, (0.5, 10.0)),
    ),
    curve=lambda p, x: p.E + p.A * (-np.expm1(-x.bits / p.gamma) * x.N) ** -p.alpha + p.B * x.D**-p.beta,
)

# Mixtures of data: the loss on one domain from the proportions of all of them, which sum to one


def _weighted_sum(p: Any, x: Any, letter: str, first: int, domains: int) -> Dual:
    return reduce(add, (getattr(p, f"{letter}_{i}") * getattr(x, f"p_{i}") for i in range(first, domains + 1)))


@cache
def mixture_exponential(domains: int) -> Law:
    """Data Mixing Laws, eq. 6. Proportions sum to one: adding a constant to every t_j changes k alone, and t_1 is 0."""
    return Law(
        name=f"mixture_exponential_{domains}",
        formula="L_i(p) = c + k exp(Σ_j t_j p_j), j ≥ 2",
        citation="Ye et al. 2024, arXiv 2403.16952",
        inputs=tuple(f"p_{i}" for i in range(1, domains + 1)),
        parameters=(
            *(floor("c"), coefficient("k", "nats per token")),
            *(number(f"t_{i}", -50.0, 50.0, (-3.0, 1.0)) for i in range(2, domains + 1)),
        ),
        curve=lambda p, x: p.c + p.k * np.exp(_weighted_sum(p, x, "t", 2, domains)),
    )


@cache
def mixture_joint(domains: int) -> Law:
    """After eq. 4 and 5. The sum is the mixture's worth in text of domain i: each domain teaches the others.

    Departs from the paper: the powers of the proportions are 1, and the term of the mixture has its own power of N.
    """

    def curve(p: Any, x: Any) -> Dual:
        size = np.log(x.N / 1e8)
        worth = _weighted_sum(p, x, "w", 1, domains) ** -p.gamma * np.exp(p.kappa * size)
        return p.c + worth + p.A * np.exp(-(p.alpha * size))

    return Law(
        name=f"mixture_joint_{domains}",
        formula="L_i(p, N) = c + (Σ_j w_j p_j)^-γ n^κ + A n^-α, n = N/10⁸",
        citation="Shukor et al. 2025, arXiv 2507.09404",
        inputs=(*(f"p_{i}" for i in range(1, domains + 1)), "N"),
        parameters=(
            *(floor("c"), exponent("gamma", 0.01, 3.0, (0.05, 1.0))),
            *(Parameter(f"w_{i}", "1", "log", 1e-8, 1e6, (0.01, 1.0)) for i in range(1, domains + 1)),
            *(coefficient("A", "nats per token"), exponent("alpha"), number("kappa", -2.0, 2.0, (-0.5, 0.5))),
        ),
        curve=curve,
    )


BI_MIX = Law(  # eq. 3; p is the proportion of the domain itself
    name="bi_mix",
    formula="L_i(p, D) = p^-α (A D^-β + C)",
    citation="Ge et al. 2024, arXiv 2405.14908",
    inputs=("p", "D"),
    parameters=(floor("C"), coefficient("A"), exponent("alpha", start=(0.01, 0.5)), exponent("beta")),
    curve=lambda p, x: np.exp(-(p.alpha * np.log(x.p))) * (p.A * x.D**-p.beta + p.C),
)


def best_mixture(laws: Sequence[tuple[Law, np.ndarray]], weights: np.ndarray, **others: float) -> np.ndarray:
    """The proportions of the lowest Σ_i weight_i L_i, each law of a domain with its parameters; others as N.

    Found from the even mixture and from one start near each domain, by sequential quadratic programming.
    """
    from scipy.optimize import minimize  # a third of a second, of each fit of any law

    domains = sum(name.startswith("p_") for name in laws[0][0].inputs)

    def total(mixture: np.ndarray) -> float:
        row = {f"p_{i + 1}": np.array([value]) for i, value in enumerate(np.abs(mixture))}
        row |= {name: np.array([value]) for name, value in others.items()}
        return float(
            sum(weight * law.predict(theta, row)[0] for weight, (law, theta) in zip(weights, laws, strict=True))
        )

    starts = (np.full(domains, 1.0 / domains), *(0.8 * np.eye(domains) + 0.2 / domains))
    one = {"type": "eq", "fun": lambda mixture: mixture.sum() - 1.0}
    choices = {"bounds": [(0.0, 1.0)] * domains, "constraints": one, "options": {"ftol": 1e-12, "maxiter": 500}}
    ends = [minimize(total, start, method="SLSQP", **choices) for start in starts]
    best = np.maximum(min(ends, key=lambda end: end.fun).x, 0.0)
    return best / best.sum()


# Scores of tasks: from the loss, and from size and data without a loss between


def _adjust_task_sigmoid(theta: np.ndarray, rng: Rng, inputs: Columns, target: np.ndarray) -> None:
    """The steepness starts in units of the range of the losses."""
    theta[:, 2] /= max(float(np.ptp(inputs["loss"])), 1e-9)
    TASK_SIGMOID.share_target(theta, rng, inputs, target)


CHANCE = Parameter("b", "accuracy", "linear", -1.0, 1.0, (0.0, 0.5), linear=True)
HEIGHT = Parameter("a", "accuracy", "log", 1e-6, 1e3, (0.1, 1.0), linear=True)

TASK_SIGMOID = Law(  # eq. 3, with a > 0 and k > 0
    name="task_sigmoid",
    formula="Acc(L) = b + a / (1 + exp(k (L - L₀)))",
    citation=BHAGIA,
    target="accuracy",
    inputs=("loss",),
    objective="squared",
    chance="b",
    height="a",
    parameters=(
        *(CHANCE, HEIGHT),
        Parameter("k", "1 / nat", "log", 1e-3, 1e3, (0.5, 20.0)),
        Parameter("L_0", "nats", "linear", -1e3, 1e3, "loss"),
    ),
    curve=lambda p, x: p.b + p.a * sigmoid(-p.k * (x.loss - p.L_0)),
    adjust=_adjust_task_sigmoid,
)

TASK_EXPONENTIAL = Law(  # eq. 5
    name="task_exponential",
    formula="Err(L) = ε - k exp(-γ L)",
    citation="Gadre et al. 2024, arXiv 2403.08540",
    target="error",
    inputs=("loss",),
    objective="squared",
    chance="epsilon",
    parameters=(
        Parameter("epsilon", "error", "linear", 0.0, 1e3, (0.3, 1.0), linear=True),
        Parameter("k", "error", "log", 1e-30, 1e30, (0.1, 10.0), linear=True),
        Parameter("gamma", "1 / nat", "linear", 0.0, 50.0, (0.1, 3.0)),
    ),
    curve=lambda p, x: p.epsilon - p.k * np.exp(-p.gamma * x.loss),
)

TASK_LINEAR = Law(  # the first order of task_power
    name="task_linear",
    formula="bits(L) = m + s L",
    citation=BHAGIA,
    target="bits_per_byte",
    inputs=("loss",),
    parameters=(
        Parameter("m", BITS, "linear", -1e3, 1e3, (-1.0, 1.0), linear=True),
        Parameter("s", f"{BITS} / nat", "log", 1e-6, 1e6, (0.1, 1.0), linear=True),
    ),
    curve=lambda p, x: p.m + p.s * x.loss,
)

TASK_POWER = Law(  # the shifted power law between two losses with the floor of L at 0 (loss_to_loss)
    name="task_power",
    formula="bits(L) = e + s L^g",
    citation=BRANDFONBRENER,
    target="bits_per_byte",
    inputs=("loss",),
    parameters=(
        *(floor("e", BITS), coefficient("s", f"{BITS} / nat ^ g"), exponent("g", upper=20.0, start=(0.3, 5.0))),
    ),
    curve=lambda p, x: p.e + p.s * x.loss**p.g,
)


def _adjust_direct_sigmoid(theta: np.ndarray, rng: Rng, inputs: Columns, target: np.ndarray) -> None:
    """Each term starts at 0.1 to 10 in the middle of the points."""
    for place, name, power in ((2, "N", 4), (3, "D", 5)):
        middle = float(np.mean(np.log(inputs[name])))
        theta[:, place] = np.exp(rng.uniform(np.log(0.1), np.log(10.0), len(theta)) + theta[:, power] * middle)
    DIRECT_SIGMOID.share_target(theta, rng, inputs, target)


DIRECT_SIGMOID = Law(  # task_sigmoid of Chinchilla's law, fitted in one step
    name="direct_sigmoid",
    formula="Acc(N, D) = b + a / (1 + exp(A N^-α + B D^-β - s))",
    citation=BHAGIA,
    target="accuracy",
    inputs=("N", "D"),
    objective="squared",
    chance="b",
    height="a",
    parameters=(
        *(CHANCE, HEIGHT),
        *(Parameter(name, "unit of the column ^ exponent", "log", 1e-30, 1e30, (1.0, 1e4)) for name in ("A", "B")),
        *(exponent("alpha"), exponent("beta"), number("s", -50.0, 50.0, (-1.0, 6.0))),
    ),
    curve=lambda p, x: p.b + p.a * sigmoid(p.s - p.A * x.N**-p.alpha - p.B * x.D**-p.beta),
    adjust=_adjust_direct_sigmoid,
)

DIRECT_BITS = Law(  # eq. 1, of a task's bits per byte
    name="direct_bits",
    formula="bits(N, D) = E + A N^-α + B D^-β",
    citation=BHAGIA,
    target="bits_per_byte",
    inputs=("N", "D"),
    parameters=(
        floor("E", BITS),
        *(coefficient(name, f"{BITS} × unit of the column ^ exponent") for name in ("A", "B")),
        *(exponent("alpha"), exponent("beta")),
    ),
    curve=lambda p, x: p.E + p.A * x.N**-p.alpha + p.B * x.D**-p.beta,
)

NEAREST = 1e-9
"""Nats above E_a at which a loss below it counts, where the law would have no value."""


def _adjust_loss_to_loss(theta: np.ndarray, rng: Rng, inputs: Columns, target: np.ndarray) -> None:
    """The floor that is predicted from starts below the lowest loss."""
    theta[:, 3] = rng.uniform(0.0, 0.98, len(theta)) * float(np.min(inputs["loss_a"]))
    LOSS_TO_LOSS.share_target(theta, rng, inputs, target)


# E_a and E_b are the floors of the two losses; the paper takes them from a law of each.
LOSS_TO_LOSS = Law(  # eq. 6
    name="loss_to_loss",
    formula="L_b = E_b + K (L_a - E_a)^κ",
    citation=BRANDFONBRENER,
    target="loss_b",
    inputs=("loss_a",),
    parameters=(
        *(floor("E_b"), coefficient("K", "nats per token ^ (1 - κ)"), exponent("kappa", start=(0.3, 2.0))),
        Parameter("E_a", "nats per token", "linear", 0.0, 1e6, (0.0, 1.0)),
    ),
    curve=lambda p, x: p.E_b + p.K * np.maximum(x.loss_a - p.E_a, np.full_like(x.loss_a, NEAREST)) ** p.kappa,
    adjust=_adjust_loss_to_loss,
)

# Whole curves: every logged loss of runs under a schedule

DECAY = 0.999


def areas(rates: np.ndarray, decay: float = DECAY) -> tuple[np.ndarray, np.ndarray]:
    """S₁ and S₂ after each step, from the learning rate of every step.

    S₁ = Σᵢ ηᵢ, and S₂ = Σᵢ Σ_{k≤i} (η_{k-1} - η_k) λ^(i-k) with λ = `decay`: a fall of the rate helps for about
    1/(1-λ) steps.
    """
    from scipy.signal import lfilter

    rates = np.asarray(rates, float)
    falls = -np.diff(rates, prepend=rates[:1])
    return np.cumsum(rates), np.cumsum(lfilter([1.0], [1.0, -decay], falls))


def with_areas(points: Points, schedules: Mapping[str, np.ndarray], decay: float = DECAY) -> Points:
    """Whole curves with S₁ and S₂ for `annealing` at each point's `step` (the first is 1) of its `run`'s schedule.

    `schedules` holds the learning rate of every step of each run.
    """
    S1, S2 = np.empty(len(points)), np.empty(len(points))
    steps, runs = points.numbers("step").astype(int), points["run"].astype(str)
    for run in sorted(set(runs)):
        if run not in schedules:
            raise ScalingError("has no schedule", key="run", value=run, fix=nearest(run, schedules))
        rows = runs == run
        first, last, known = steps[rows].min(), steps[rows].max(), len(schedules[run])
        if first < 1 or last > known:
            what = f"its schedule has {known} steps, its curve goes from {first} to {last}"
            raise ScalingError(what, key="run", value=run, fix="give the learning rate of every step")
        forward, annealed = areas(schedules[run], decay)
        S1[rows], S2[rows] = forward[steps[rows] - 1], annealed[steps[rows] - 1]
    points = points.with_column("S1", S1, "area under the learning rate")
    return points.with_column("S2", S2, f"annealing area, λ = {decay:g}")


# S₁ is the area under the learning rate up to s and S₂ the annealing area; `with_areas` computes both.
ANNEALING = Law(  # eq. 1
    name="annealing",
    formula="L(s) = L₀ + A S₁^-α - C S₂",
    citation=TISSUE,
    inputs=("S1", "S2"),
    parameters=(floor("L_0"), coefficient("A"), coefficient("C", "nats per token / unit of S₂"), exponent("alpha")),
    curve=lambda p, x: p.L_0 + p.A * x.S1**-p.alpha - p.C * x.S2,
)

FALL = Parameter("C", "nats per token / fall of the rate", "log", 1e-12, 1e12, (1e-3, 1.0))

# S₁ is the area under the learning rate as a fraction of its reference, in tokens, so that at the reference it is D.
# S₂, the annealing area, has no bound, so that E is the floor under a constant rate, where a term is of its coefficient
# alone.
ANNEALED_CURVE = Law(  # eq. 1 with its extension to N
    name="annealed_curve",
    formula="L(N, s) = E + A N^-α + B S₁^-β - C S₂",
    citation=TISSUE,
    inputs=("N", "S1", "S2"),
    parameters=(
        *(floor(), coefficient("A", at={"S2": 0.0}), coefficient("B", at={"S2": 0.0}), FALL),
        *(exponent("alpha"), exponent("beta")),
    ),
    curve=lambda p, x: p.E + p.A * x.N**-p.alpha + p.B * x.S1**-p.beta - p.C * x.S2,
)


def _multi_power(p: Any, x: Any) -> Dual:
    plain = p.E + p.A * x.N**-p.alpha + p.B * x.S1**-p.beta + p.C
    return plain - p.C * _gain(p, x) if np.any(x.falls) else plain


def _gain(p: Any, x: Any) -> Dual:
    """Σₖ Δηₖ G(ηₖ^-γ Sₖ), its derivatives by c, γ and κ written down: three passes in place of thirty."""
    c, gamma, kappa = (part.value[..., None] for part in (p.c, p.gamma, p.kappa))
    scaled = c * x.rates**-gamma * x.since
    inner = np.log1p(scaled)
    left = x.falls * np.exp(-kappa * inner)
    steep = kappa * left * scaled / (1.0 + scaled)
    value = x.falls.sum(-1) - left.sum(-1)
    slopes = (steep.sum(-1) / p.c.value, -(steep * np.log(x.rates)).sum(-1), (left * inner).sum(-1))
    gradient: dict[int, np.ndarray] = {}
    for part, slope in zip((p.c, p.gamma, p.kappa), slopes, strict=True):
        for index, seed in part.gradient.items():
            gradient[index] = gradient.get(index, 0.0) + seed * slope
    return Dual(value, gradient)


CONSTANT_RATE = {"falls": 0.0, "rates": 1.0, "since": 1.0}

# With a term in N. Δηₖ is a fall of the learning rate, ηₖ the rate after it and Sₖ the area under the rate since then.
# Falls are gathered into a few of equal height. C is what the reference rate adds to the loss until it has fallen to
# nothing, so that E is the floor that final losses have too; the paper's L₀ is E + C.
MULTI_POWER = Law(  # eq. 3 to 5
    name="multi_power",
    formula="L(N, s) = E + A N^-α + B S₁^-β + C (1 - Σₖ Δηₖ G(ηₖ^-γ Sₖ)), G(x) = 1 - (1 + c x)^-κ",
    citation="Luo et al. 2025, arXiv 2503.12811",
    inputs=("N", "S1", "falls", "rates", "since"),
    parameters=(
        *(floor(), coefficient("A", at=CONSTANT_RATE), coefficient("B", at=CONSTANT_RATE), FALL),
        Parameter("c", "1 / tokens", "log", 1e-15, 1e3, (1e-8, 1e-3)),
        *(exponent("alpha"), exponent("beta"), number("gamma", 0.0, 3.0, (0.1, 1.0))),
        number("kappa", 0.2, 5.0, (0.2, 1.0)),  # below 0.2 a fall is worth a logarithm, and no run shows E
    ),
    curve=_multi_power,
)

CURVE_LAWS: dict[str, Law] = {"multi_power": MULTI_POWER, "annealed_curve": ANNEALED_CURVE}
"""The laws of whole curves by name."""
