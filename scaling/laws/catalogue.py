"""The laws of the papers, by family: a table of names, columns, formulas, citations, parameters and curves."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, reduce
from operator import add, mul
from typing import Any

import numpy as np

from scaling.base.errors import ScalingError, nearest, refuse
from scaling.config import schema
from scaling.laws.law import (
    Columns,
    Dual,
    Law,
    Parameter,
    Rng,
    coefficient,
    exponent,
    floor,
    place,
    sigmoid,
)

KAPLAN = "Kaplan et al. 2020, arXiv 2001.08361"
GADRE = "Gadre et al. 2024, arXiv 2403.08540"
CLARK = "Clark et al. 2022, arXiv 2202.01169"
BHAGIA = "Bhagia et al. 2024, arXiv 2412.04403"
BRANDFONBRENER = "Brandfonbrener et al. 2024, arXiv 2411.12925"
TISSUE = "Tissue et al. 2024, arXiv 2408.11029"
BITS = "bits per byte"

SMALLEST = 1e-3  # The least exponent that something is divided by


def several(kind: Callable[..., Parameter], names: str, *choices: Any, **more: Any) -> tuple[Parameter, ...]:
    """Parameters of one kind: `several(exponent, "alpha beta")`."""
    return tuple(kind(name, *choices, **more) for name in names.split())


# Curves of more than one line


def _broken(x: str, breaks: int) -> Law:
    """Broken neural scaling laws, eq. 1. At the i-th break dᵢ the slope changes by cᵢ; fᵢ is how gradual it is."""

    def curve(p: Any, columns: Any) -> Dual:
        column = getattr(columns, x)
        fall = p.b * column**-p.c_0
        for i in range(1, breaks + 1):
            change, at, gradual = (getattr(p, f"{letter}_{i}") for letter in "cdf")
            past = np.logaddexp(0.0, -np.log(at / column) / gradual)
            fall = fall * np.exp(-change * gradual * past)
        return p.a + fall

    def adjust(theta: np.ndarray, rng: Rng, inputs: Columns, target: np.ndarray) -> None:
        """A random floor and random breaks; slopes by least squares of log(L - a) on the broken line they make."""
        axis = np.log(inputs[x])
        floors = rng.uniform(0.0, 0.98, len(theta)) * np.min(target)
        places = np.sort(rng.uniform(axis.min(), axis.max(), (len(theta), breaks)), axis=1)
        hinges = np.maximum(axis[None, None, :] - places[:, :, None], 0.0)
        lines = np.broadcast_to(np.stack([np.ones_like(axis), axis]), (len(theta), 2, len(axis)))
        basis = np.concatenate([lines, hinges], axis=1)
        square = basis @ basis.swapaxes(1, 2)
        square += 1e-9 * np.trace(square, axis1=1, axis2=2)[:, None, None] * np.eye(2 + breaks)
        height = np.log(target - floors[:, None])
        line = np.linalg.solve(square, basis @ height[:, :, None])[:, :, 0]
        theta[:, 0], theta[:, 1], theta[:, 2] = floors, np.exp(line[:, 0]), -line[:, 1]
        theta[:, 3::3], theta[:, 4::3] = -line[:, 2:], np.exp(places)

    def canonical(theta: np.ndarray) -> np.ndarray:
        """The breaks in the order of their places."""
        bends = theta[..., 3:].reshape(*theta.shape[:-1], breaks, 3)
        order = np.argsort(bends[..., 1], axis=-1)
        bends = np.take_along_axis(bends, order[..., None], axis=-2)
        return np.concatenate([theta[..., :3], bends.reshape(*theta.shape[:-1], -1)], axis=-1)

    bends = [
        (
            exponent(f"c_{i}", -10.0, 10.0, (-1.0, 1.0)),
            place(f"d_{i}", x, "unit of the column"),
            Parameter(f"f_{i}", "1", "log", 1e-3, 1e2, (0.1, 1.5)),
        )
        for i in range(1, breaks + 1)
    ]
    return Law(
        f"broken_{x.lower()}_{breaks}",
        (x,),
        "L(x) = a + b x^-c₀ Πᵢ (1 + (x/dᵢ)^(1/fᵢ))^(-cᵢ fᵢ)",
        "Caballero et al. 2022, arXiv 2210.14891",
        (
            floor("a"),
            coefficient("b"),
            exponent("c_0", -10.0, 10.0, (-0.2, 1.0)),
            *(each for bend in bends for each in bend),
        ),
        curve,
        adjust=adjust,
        canonical=canonical,
    )


def _function_of_size(name: str, unit: str, start: tuple[float, float]) -> tuple[Parameter, ...]:
    slope, bend = exponent(f"s_{name}", -5.0, 5.0, (-0.5, 0.5)), exponent(f"gamma_{name}", -1.0, 1.0, (-0.3, 0.3))
    return Parameter(f"{name}_0", unit, "log", 1e-12, 1e12, start), slope, bend


def _farseer(p: Any, x: Any) -> Dual:
    """Each of E, B and β has the form X₀ exp(s_X q_X) with q_γ = ((N/N₀)^γ - 1)/γ.

    With N₀ = 10⁹ and D₀ = 2·10¹⁰ these are the functions of the paper, exp(e(N)) + exp(b(N)) D^-exp(a(N)) with e, b and
    a linear in N^γ; γ → 0 is a power of N, and no parameter is the value of a term many decades away.
    """
    size, data = np.log(x.N / 1e9), np.log(x.D / 2e10)
    E, B, beta = (
        X_0 * np.exp(slope * (np.exp(gamma * size) - 1.0) / gamma)
        for X_0, slope, gamma in (
            (p.E_0, p.s_E, p.gamma_E),
            (p.B_0, p.s_B, p.gamma_B),
            (p.beta_0, p.s_beta, p.gamma_beta),
        )
    )
    return E + B * np.exp(-(beta * data))


def _data_constrained(p: Any, x: Any) -> Dual:
    """Eq. 4 to 6. U_D = min(U, D) are unique tokens and R_D = D/U_D - 1 repetitions; N' likewise, with U_N = min(N, the
    N that is compute-optimal for U_D) and R_N = N/U_N - 1. R repetitions of U are worth U + U R* (1 - exp(-R/R*)).
    """
    unique = np.minimum(x.D, x.U)
    # The N for which D tokens are compute-optimal: G (G D)^(β/α), G = (αA/βB)^(1/(α+β)).
    log_g = np.log(p.alpha * p.A / (p.beta * p.B)) / (p.alpha + p.beta)
    optimum = np.minimum(np.exp(log_g + (p.beta / p.alpha) * (log_g + np.log(unique))), x.N)
    size = optimum * (1.0 - p.R_N * np.expm1(-(x.N / optimum - 1.0) / p.R_N))
    data = unique * (1.0 - p.R_D * np.expm1(-(x.D / unique - 1.0) / p.R_D))
    return p.E + p.A * size**-p.alpha + p.B * data**-p.beta


def _optimum_law(name: str, target: str, unit: str, symbol: str, axes: str) -> Law:
    """The optimal batch (in tokens) or learning rate as a product of powers of the columns; eq. 1 for C, N and D."""
    columns = tuple(axes.split())
    return Law(
        "_".join((name, *(axis.lower() for axis in columns))),
        columns,
        f"{symbol} = A Π x^b_x",
        "Bi et al. 2024, arXiv 2401.02954; Li et al. 2025, arXiv 2503.04715, for N and D",
        (
            Parameter("A", unit, "log", 1e-200, 1e200, (1e-3, 1e3), linear=True),
            *(exponent(f"b_{axis}", -5.0, 5.0, (-1.0, 1.0)) for axis in columns),
        ),
        lambda p, x: reduce(mul, (getattr(x, axis) ** getattr(p, f"b_{axis}") for axis in columns), p.A),
        target=target,
    )


def _slope(name: str, low: float = -0.3, high: float = 0.3) -> Parameter:
    return exponent(name, -3.0, 3.0, (low, high))


def _learning_rate_batch(p: Any, x: Any) -> Dual:
    """A bowl in u = ln(η/η_opt) and v = ln(B/B_opt), whose optimum and height drift with N and D: η_opt = η₀ n^η_N
    d^η_D, B_opt = B₀ n^B_N d^B_D, n = N/(3·10⁸), d = D/10¹⁰.

    Departs from the paper, which fits the optima of each N and D: here every run counts, with curvatures h and k, their
    correlation ρ, their drift c, and s, by which a rate that is too high costs more or less than one that is too low.
    """
    size, data = np.log(x.N / 3e8), np.log(x.D / 1e10)
    rate = np.log(x.lr) - np.log(p.eta_0) - p.eta_N * size - p.eta_D * data
    batch = np.log(x.B) - np.log(p.B_0) - p.B_N * size - p.B_D * data
    both = 2.0 * p.rho * np.exp(0.5 * (np.log(p.h) + np.log(p.k)))
    bowl = p.h * rate * rate + both * rate * batch + p.k * batch * batch
    drift = np.exp(p.c_N * size + p.c_D * data + p.s_lr * rate + p.s_B * batch)
    return p.E + p.A * x.N**-p.alpha + p.G * x.D**-p.beta + bowl * drift


def _routed(p: Any, x: Any, experts: Any) -> Dual:
    """exp(-a n - b x + c n x), n = ln(N/10⁸)."""
    size = np.log(x.N / 1e8)
    return np.exp(p.c * size * experts - p.a * size - p.b * experts)


def _active_experts(p: Any, x: Any) -> Dual:
    """N counts the parameters that a token uses, X the experts, which enter both terms: more experts act as a larger
    model and ask for more data. Departs from the paper (eq. 3), whose X̂ saturates: here it is X.
    """
    size, data, experts = np.log(x.N / 1e9), np.log(x.D / 2e10), np.log(x.experts)
    by_size = p.A * np.exp(p.gamma * size * experts - p.alpha * size - p.delta * experts)
    return p.E + by_size + p.B * np.exp(p.zeta * data * experts - p.beta * data + p.omega * experts)


def _sparse_experts(p: Any, x: Any) -> Dual:
    """Sparsely activated models that start from a dense one (upcycling). N is the size of the dense model, K the
    parameters that a token uses over N, P all parameters over those that it uses, D the tokens of sparse training.
    After eq. 3 and 5. Departs from the paper, which fits the data's term and the term of N_active = K N and P apart:
    here N and K have an exponent each, and P helps with ln K (ω < 0), as where several experts answer a token.
    """
    active, total = np.log(x.K), np.log(x.P)
    routed = np.exp(p.omega * active * total + p.delta * total - p.gamma * active)
    return p.E + p.A * x.N**-p.alpha * routed + p.B * x.D**-p.beta


# Mixtures of data: the loss on one domain from the proportions of all of them, which sum to one


def _proportions(domains: int) -> tuple[str, ...]:
    return tuple(f"p_{i}" for i in range(1, domains + 1))


def _weighted_sum(p: Any, letter: str, x: Any, domains: range) -> Dual:
    return reduce(add, (getattr(p, f"{letter}_{i}") * getattr(x, f"p_{i}") for i in domains))


@cache
def mixture_exponential(domains: int) -> Law:
    """Data Mixing Laws, eq. 6. Proportions sum to one: adding a constant to every t_j changes k alone, and t_1 is 0."""
    rest = range(2, domains + 1)
    return Law(
        f"mixture_exponential_{domains}",
        _proportions(domains),
        "L_i(p) = c + k exp(Σ_j t_j p_j), j ≥ 2",
        "Ye et al. 2024, arXiv 2403.16952",
        (floor("c"), coefficient("k", "nats per token"), *(exponent(f"t_{i}", -50.0, 50.0, (-3.0, 1.0)) for i in rest)),
        lambda p, x: p.c + p.k * np.exp(_weighted_sum(p, "t", x, rest)),
    )


@cache
def mixture_joint(domains: int) -> Law:
    """After eq. 4 and 5. The sum is the mixture's worth in text of domain i: each domain teaches the others.

    Departs from the paper: the powers of the proportions are 1, and the term of the mixture has its own power of N.
    """
    places = range(1, domains + 1)

    def curve(p: Any, x: Any) -> Dual:
        size = np.log(x.N / 1e8)
        worth = _weighted_sum(p, "w", x, places) ** -p.gamma * np.exp(p.kappa * size)
        return p.c + worth + p.A * np.exp(-(p.alpha * size))

    return Law(
        f"mixture_joint_{domains}",
        (*_proportions(domains), "N"),
        "L_i(p, N) = c + (Σ_j w_j p_j)^-γ n^κ + A n^-α, n = N/10⁸",
        "Shukor et al. 2025, arXiv 2507.09404",
        (
            *(floor("c"), exponent("gamma", 0.01, 3.0, (0.05, 1.0))),
            *(Parameter(f"w_{i}", "1", "log", 1e-8, 1e6, (0.01, 1.0)) for i in places),
            *(coefficient("A", "nats per token"), exponent("alpha"), exponent("kappa", -2.0, 2.0, (-0.5, 0.5))),
        ),
        curve,
    )


# Whole curves: every logged loss of runs under a schedule


def _gain(p: Any, falls: np.ndarray, rates: np.ndarray, since: np.ndarray) -> Dual:
    """Σₖ Δηₖ G(ηₖ^-γ Sₖ), its derivatives by c, γ and κ written down: three passes in place of thirty."""
    c, gamma, kappa = (part.value[..., None] for part in (p.c, p.gamma, p.kappa))
    scaled = c * rates**-gamma * since
    inner = np.log1p(scaled)
    left = falls * np.exp(-kappa * inner)
    steep = kappa * left * scaled / (1.0 + scaled)
    value = falls.sum(-1) - left.sum(-1)
    slopes = (steep.sum(-1) / p.c.value, -(steep * np.log(rates)).sum(-1), (left * inner).sum(-1))
    gradient: dict[int, np.ndarray] = {}
    for part, slope in zip((p.c, p.gamma, p.kappa), slopes, strict=True):
        for index, seed in part.gradient.items():
            gradient[index] = gradient.get(index, 0.0) + seed * slope
    return Dual(value, gradient)


def _multi_power(p: Any, x: Any) -> Dual:
    """Eq. 3 to 5, with a term in N. Δηₖ is a fall of the learning rate, ηₖ the rate after it and Sₖ the area under the
    rate since then. Falls are gathered into a few of equal height. C is what the reference rate adds to the loss until
    it has fallen to nothing, so that E is the floor that final losses have too; the paper's L₀ is E + C.
    """
    plain = p.E + p.A * x.N**-p.alpha + p.B * x.S1**-p.beta + p.C
    return plain - p.C * _gain(p, x.falls, x.rates, x.since) if np.any(x.falls) else plain


FALL = Parameter("C", "nats per token / fall of the rate", "log", 1e-12, 1e12, (1e-3, 1.0))

# The laws of whole curves by name.
CURVE_LAWS: dict[str, Law] = {
    "multi_power": Law(
        "multi_power",
        ("N", "S1", "falls", "rates", "since"),
        "L(N, s) = E + A N^-α + B S₁^-β + C (1 - Σₖ Δηₖ G(ηₖ^-γ Sₖ)), G(x) = 1 - (1 + c x)^-κ",
        "Luo et al. 2025, arXiv 2503.12811",
        (
            *(floor(), *several(coefficient, "A B", at={"falls": 0.0, "rates": 1.0, "since": 1.0}), FALL),
            Parameter("c", "1 / tokens", "log", 1e-15, 1e3, (1e-8, 1e-3)),
            *(*several(exponent, "alpha beta"), exponent("gamma", 0.0, 3.0, (0.1, 1.0))),
            exponent("kappa", 0.2, 5.0, (0.2, 1.0)),  # below 0.2 a fall is worth a logarithm, and no run shows E
        ),
        _multi_power,
    ),
    # Eq. 1 with its extension to N. S₁ is the area under the learning rate as a fraction of its reference, in tokens: D
    # at the reference. S₂, the annealing area, has no bound, so that E is the floor under a constant rate.
    "annealed_curve": Law(
        "annealed_curve",
        ("N", "S1", "S2"),
        "L(N, s) = E + A N^-α + B S₁^-β - C S₂",
        TISSUE,
        (floor(), *several(coefficient, "A B", at={"S2": 0.0}), FALL, *several(exponent, "alpha beta")),
        lambda p, x: p.E + p.A * x.N**-p.alpha + p.B * x.S1**-p.beta - p.C * x.S2,
    ),
}

# Scores of tasks: from the loss, and from size and data without a loss between
CHANCE = Parameter("b", "accuracy", "linear", -1.0, 1.0, (0.0, 0.5), linear=True)
HEIGHT = Parameter("a", "accuracy", "log", 1e-6, 1e3, (0.1, 1.0), linear=True)
OF_ACCURACY: dict[str, Any] = {"target": "accuracy", "objective": "squared", "chance": "b", "height": "a"}

CHINCHILLA = (floor(), *several(coefficient, "A B"), *several(exponent, "alpha beta"))
NEAREST = 1e-9  # Nats above E_a at which a loss below it counts, where the law would have no value

LAWS: tuple[Law, ...] = (
    *(
        Law(
            f"power_law_{x.lower()}",
            (x,),
            "L(x) = A x^-α",
            "Hestness et al. 2017, arXiv 1712.00409",
            (coefficient("A"), exponent("alpha")),
            lambda p, columns, x=x: p.A * getattr(columns, x) ** -p.alpha,
        )
        for x in ("C", "N", "D")
    ),
    *(
        Law(
            f"power_law_floor_{x.lower()}",
            (x,),
            "L(x) = E + A x^-α",
            "Henighan et al. 2020, arXiv 2010.14701",
            (floor(), coefficient("A"), exponent("alpha")),
            lambda p, columns, x=x: p.E + p.A * getattr(columns, x) ** -p.alpha,
        )
        for x in ("C", "N", "D")
    ),
    *(
        Law(
            f"kaplan_{x.lower()}",
            (x,),
            "L(x) = (x_c / x)^α",
            KAPLAN,
            (place("x_c", x, "unit of the column"), exponent("alpha", SMALLEST)),
            lambda p, columns, x=x: (p.x_c / getattr(columns, x)) ** p.alpha,
        )
        for x in ("N", "D", "C", "C_min")
    ),
    Law(  # eq. 1.5
        "kaplan_n_d",
        ("N", "D"),
        "L(N, D) = [(N_c/N)^(α_N/α_D) + D_c/D]^α_D",
        KAPLAN,
        (
            *(place("N_c", "N", "parameters"), place("D_c", "D", "tokens")),
            *several(exponent, "alpha_N alpha_D", SMALLEST),
        ),
        lambda p, x: ((p.N_c / x.N) ** (p.alpha_N / p.alpha_D) + p.D_c / x.D) ** p.alpha_D,
    ),
    Law(  # eq. 1.6; S_min as under `critical_batch`
        "kaplan_n_s",
        ("N", "S_min"),
        "L(N, S_min) = (N_c/N)^α_N + (S_c/S_min)^α_S",
        KAPLAN,
        (
            *(place("N_c", "N", "parameters"), place("S_c", "S_min", "steps")),
            *several(exponent, "alpha_N alpha_S", SMALLEST),
        ),
        lambda p, x: (p.N_c / x.N) ** p.alpha_N + (p.S_c / x.S_min) ** p.alpha_S,
    ),
    # Eq. 1.4, of measured critical batches. S_min = S / (1 + B_crit/B) are the steps at a batch far above the critical
    # one, and C_min = C / (1 + B/B_crit) is the compute at a batch far below it (eq. 5.4 and 5.5).
    Law(
        "critical_batch",
        ("loss",),
        "B_crit(L) = B_* L^(-1/α_B)",
        KAPLAN,
        (coefficient("B_star", "tokens"), exponent("alpha_B", SMALLEST, start=(0.05, 1.0))),
        lambda p, x: p.B_star * x.loss ** (-1.0 / p.alpha_B),
        target="B_crit",
    ),
    Law(  # approach 3, eq. 2; N_opt ∝ C^a and D_opt ∝ C^b
        "chinchilla",
        ("N", "D"),
        "L(N, D) = E + A N^-α + B D^-β",
        "Hoffmann et al. 2022, arXiv 2203.15556",
        CHINCHILLA,
        lambda p, x: p.E + p.A * x.N**-p.alpha + p.B * x.D**-p.beta,
        derived={"a": lambda p: p.beta / (p.alpha + p.beta), "b": lambda p: p.alpha / (p.alpha + p.beta)},
    ),
    Law(
        "farseer",
        ("N", "D"),
        "L(N, D) = E(N) + B(N) (D/D₀)^-β(N), log E, log B and log β linear in N^γ",
        "Li et al. 2025, arXiv 2506.10972",
        (
            *_function_of_size("E", "nats per token", (0.05, 3.0)),
            *_function_of_size("B", "nats per token", (0.05, 3.0)),
            *_function_of_size("beta", "1", (0.05, 1.0)),
        ),
        _farseer,
    ),
    Law(
        "data_constrained",
        ("N", "D", "U"),
        "L(N, D, U) = E + A N'^-α + B D'^-β, x' = U_x + U_x R_x* (1 - exp(-R_x/R_x*))",
        "Muennighoff et al. 2023, arXiv 2305.16264",
        (
            floor(),
            # Not linear: A and B also decide which N is optimal for U.
            Parameter("A", "nats per token × parameters^α", "log", 1e-100, 1e100, (1.0, 1e10)),
            Parameter("B", "nats per token × tokens^β", "log", 1e-100, 1e100, (1.0, 1e10)),
            *several(exponent, "alpha beta", SMALLEST),
            *several(Parameter, "R_D R_N", "repetitions", "log", 1e-3, 1e5, (1.0, 100.0)),
        ),
        _data_constrained,
    ),
    Law(  # eq. 4
        "over_training",
        ("C", "M"),
        "L(C, M) = E + (a M^η + b M^-η) C^-η",
        GADRE,
        (floor(), *several(coefficient, "a b"), exponent("eta")),
        lambda p, x: p.E + p.a * (x.C / x.M) ** -p.eta + p.b * (x.C * x.M) ** -p.eta,
    ),
    # Departs from the paper, whose law adds a term in N: with N ≈ 12 l w² it is nearly a mixture of the other two.
    Law(
        "shape",
        ("width", "depth", "D"),
        "L(w, l, D) = E + A w^-α + B l^-β + G D^-γ",
        "McLeish et al. 2025, arXiv 2502.06857",
        (
            *(floor(), *several(coefficient, "A B G")),
            *(*several(exponent, "alpha beta", start=(0.1, 2.0)), exponent("gamma")),
        ),
        lambda p, x: p.E + p.A * x.width**-p.alpha + p.B * x.depth**-p.beta + p.G * x.D**-p.gamma,
    ),
    *(_broken(x, breaks) for x in ("C", "N", "D") for breaks in (1, 2, 3)),
    # Eq. 1. S₁ is the area under the learning rate up to s and S₂ the annealing area (`scaling.laws.curves.areas`).
    Law(
        "annealing",
        ("S1", "S2"),
        "L(s) = L₀ + A S₁^-α - C S₂",
        TISSUE,
        (floor("L_0"), coefficient("A"), coefficient("C", "nats per token / unit of S₂"), exponent("alpha")),
        lambda p, x: p.L_0 + p.A * x.S1**-p.alpha - p.C * x.S2,
    ),
    *(_optimum_law("batch_size", "B", "tokens", "B_opt", axes) for axes in ("C", "D", "N D", "D width")),
    *(_optimum_law("learning_rate", "lr", "1", "η_opt", axes) for axes in ("C", "N", "N D", "D width", "D width B")),
    Law(
        "learning_rate_batch",
        ("lr", "B", "N", "D"),
        "L(η, B, N, D) = E + A N^-α + G D^-β + (h u² + 2ρ√(hk) u v + k v²) n^c_N d^c_D exp(s_η u + s_B v)",
        "Li et al. 2025, arXiv 2503.04715",
        (
            *(floor(), *several(coefficient, "A G"), *several(exponent, "alpha beta")),
            Parameter("eta_0", "1", "log", 1e-12, 1e6, "lr"),
            *(_slope("eta_N", -1.0, 0.2), _slope("eta_D", -0.2, 0.8)),
            Parameter("B_0", "unit of the column", "log", 1e-6, 1e15, "B"),
            *(_slope("B_N", -0.2, 0.2), _slope("B_D", 0.0, 0.8)),
            *several(Parameter, "h k", "nats per token", "log", 1e-9, 1e3, (1e-3, 0.1)),
            *(exponent("rho", -0.999, 0.999, (-0.7, 0.7)), *several(_slope, "c_N c_D s_lr s_B")),
        ),
        _learning_rate_batch,
    ),
    # L_u is the loss less that of the tokens' frequencies alone, so that vocabularies can be compared; it and E are
    # negative. N counts the parameters but for those of the vocabulary, H the characters of training. Departs from the
    # paper (eq. 5), whose terms are in N, in the parameters V w of the vocabulary and in tokens: here they are in N, V
    # and H. A larger vocabulary makes fewer tokens of a text (κ > 0), so that for each budget there is a best one.
    # Exponents from 0.01 on: a term that hardly falls is not separated from E.
    Law(
        "vocabulary",
        ("N", "V", "H"),
        "L_u(N, V, H) = E + A N^-α + G V^-γ + B H^-β (V/16384)^κ",
        "Tao et al. 2024, arXiv 2407.13623",
        (
            Parameter("E", "nats per token", "linear", -1e6, 1e6, (-10.0, 1.0), linear=True),
            *several(coefficient, "A G B"),
            *several(exponent, "alpha gamma beta", 0.01, 2.0, (0.05, 1.0)),
            exponent("kappa", -2.0, 2.0, (-0.5, 0.5)),
        ),
        lambda p, x: (
            p.E
            + p.A * x.N**-p.alpha
            + p.G * x.V**-p.gamma
            + p.B * x.H**-p.beta * np.exp(p.kappa * np.log(x.V / 16384.0))
        ),
        target="loss_u",
        objective="squared",
    ),
    # Eq. 2. N is the size of the dense model that routing leaves active. Where c > 0, experts help less the larger the
    # model.
    Law(
        "routed_experts",
        ("N", "experts"),
        "log L(N, X) = log L₀ - a n - b x + c n x, n = ln(N/10⁸), x = ln X",
        CLARK,
        (
            Parameter("L_0", "nats per token", "log", 1e-6, 1e6, (1.0, 10.0)),
            *several(exponent, "a b", -1.0, 2.0, (0.01, 0.5)),
            exponent("c", -1.0, 1.0, (-0.1, 0.1)),
        ),
        lambda p, x: p.L_0 * _routed(p, x, np.log(x.experts)),
    ),
    # Experts count from about X₀ on. After eq. 2 and 7, whose X̂ saturates below and above. Departs from the paper: a
    # floor E in the place of its upper saturation, with which a law without one bends alike.
    Law(
        "routed_experts_floor",
        ("N", "experts"),
        "L(N, X) = E + A exp(-a n - b x̂ + c n x̂), n = ln(N/10⁸), x̂ = ln(1 + (X - 1)/X₀)",
        CLARK,
        (
            *(floor(), coefficient("A", "nats per token"), exponent("a"), exponent("b", -1.0, 2.0, (0.01, 0.5))),
            *(exponent("c", -1.0, 1.0, (-0.1, 0.1)), Parameter("X_0", "experts", "log", 1.0, 1e3, (1.0, 10.0))),
        ),
        lambda p, x: p.E + p.A * _routed(p, x, np.log(1.0 + (x.experts - 1.0) / p.X_0)),
    ),
    # Eq. 9. G is the hidden width of a dense layer over that of one expert; N counts all parameters, at a fixed ratio
    # to those that a token uses.
    Law(
        "granularity",
        ("N", "D", "granularity"),
        "L(N, D, G) = E + (g G^-γ + a) N^-α + b D^-β",
        "Ludziejewski et al. 2024, arXiv 2402.07871",
        (
            *(floor(), *several(coefficient, "g a b")),
            *(exponent("gamma", start=(0.1, 1.5)), *several(exponent, "alpha beta")),
        ),
        lambda p, x: p.E + (p.g * x.granularity**-p.gamma + p.a) * x.N**-p.alpha + p.b * x.D**-p.beta,
    ),
    Law(
        "active_experts",
        ("N", "D", "experts"),
        "L(N, D, X) = E + A n^(γ ln X - α) X^-δ + B d^(ζ ln X - β) X^ω, n = N/10⁹, d = D/(2·10¹⁰)",
        "Ludziejewski et al. 2025, arXiv 2502.05172",
        (
            *(floor(), *several(coefficient, "A B", "nats per token"), *several(exponent, "alpha beta")),
            *several(exponent, "delta omega gamma zeta", -2.0, 2.0, (-0.2, 0.2)),
        ),
        _active_experts,
    ),
    Law(
        "sparse_experts",
        ("N", "K", "P", "D"),
        "L(N, K, P, D) = E + A N^-α K^-γ P^(δ + ω ln K) + B D^-β",
        "Liew et al. 2025, arXiv 2502.03009",
        (
            *(floor(), coefficient("A"), exponent("alpha"), exponent("gamma", -1.0, 3.0, (0.01, 0.5))),
            *(exponent("omega", -1.0, 1.0, (-0.1, 0.1)), exponent("delta", -1.0, 1.0, (-0.2, 0.2))),
            *(coefficient("B"), exponent("beta")),
        ),
        _sparse_experts,
    ),
    Law(  # eq. 1; N counts the weights that are not zero, and `density` is the fraction of them
        "sparse_weights",
        ("N", "D", "density"),
        "L(N, D, κ) = E + (a κ^b + c) N^-α + B D^-β, κ = 1 - sparsity",
        "Frantar et al. 2023, arXiv 2309.08520",
        (
            *(floor(), *several(coefficient, "a c B")),
            *(exponent("b", start=(0.1, 2.0)), *several(exponent, "alpha beta")),
        ),
        lambda p, x: p.E + (p.a * x.density**p.b + p.c) * x.N**-p.alpha + p.B * x.D**-p.beta,
    ),
    # Eq. 5. The P outputs of the same N parameters are aggregated (ParScale); k is what a stream is worth in size.
    Law(
        "parallel_streams",
        ("N", "streams"),
        "L(N, P) = E + A (N (1 + k ln P))^-α",
        "Chen et al. 2025, arXiv 2505.10475",
        (floor(), coefficient("A"), exponent("alpha"), Parameter("k", "1", "log", 1e-6, 1e4, (0.01, 10.0))),
        lambda p, x: p.E + p.A * (x.N * (1.0 + p.k * np.log(x.streams))) ** -p.alpha,
    ),
    # Eq. 3. Weights of fewer bits count as fewer weights; γ is the number of bits at which 63% of them are left.
    Law(
        "precision",
        ("N", "D", "bits"),
        "L(N, D, P) = E + A (N (1 - exp(-P/γ)))^-α + B D^-β",
        "Kumar et al. 2024, arXiv 2411.04330",
        (*CHINCHILLA, Parameter("gamma", "bits", "log", 1e-2, 1e3, (0.5, 10.0))),
        lambda p, x: p.E + p.A * (-np.expm1(-x.bits / p.gamma) * x.N) ** -p.alpha + p.B * x.D**-p.beta,
    ),
    Law(  # eq. 3; p is the proportion of the domain itself
        "bi_mix",
        ("p", "D"),
        "L_i(p, D) = p^-α (A D^-β + C)",
        "Ge et al. 2024, arXiv 2405.14908",
        (floor("C"), coefficient("A"), exponent("alpha", start=(0.01, 0.5)), exponent("beta")),
        lambda p, x: np.exp(-(p.alpha * np.log(x.p))) * (p.A * x.D**-p.beta + p.C),
    ),
    *(mixture_exponential(3), mixture_joint(3)),
    Law(  # eq. 3, with a > 0 and k > 0
        "task_sigmoid",
        ("loss",),
        "Acc(L) = b + a / (1 + exp(k (L - L₀)))",
        BHAGIA,
        (
            *(CHANCE, HEIGHT, Parameter("k", "1 / nat", "log", 1e-3, 1e3, (0.5, 20.0))),
            Parameter("L_0", "nats", "linear", -1e3, 1e3, "loss"),
        ),
        lambda p, x: p.b + p.a * sigmoid(-p.k * (x.loss - p.L_0)),
        **OF_ACCURACY,
    ),
    Law(  # eq. 5
        "task_exponential",
        ("loss",),
        "Err(L) = ε - k exp(-γ L)",
        GADRE,
        (
            Parameter("epsilon", "error", "linear", 0.0, 1e3, (0.3, 1.0), linear=True),
            Parameter("k", "error", "log", 1e-30, 1e30, (0.1, 10.0), linear=True),
            Parameter("gamma", "1 / nat", "linear", 0.0, 50.0, (0.1, 3.0)),
        ),
        lambda p, x: p.epsilon - p.k * np.exp(-p.gamma * x.loss),
        target="error",
        objective="squared",
        chance="epsilon",
    ),
    Law(  # the first order of `task_power`
        "task_linear",
        ("loss",),
        "bits(L) = m + s L",
        BRANDFONBRENER,
        (
            Parameter("m", BITS, "linear", -1e3, 1e3, (-1.0, 1.0), linear=True),
            Parameter("s", f"{BITS} / nat", "log", 1e-6, 1e6, (0.1, 1.0), linear=True),
        ),
        lambda p, x: p.m + p.s * x.loss,
        target="bits_per_byte",
    ),
    Law(  # the shifted power law between two losses with the floor of L at 0 (`loss_to_loss`)
        "task_power",
        ("loss",),
        "bits(L) = e + s L^g",
        BRANDFONBRENER,
        (floor("e", BITS), coefficient("s", f"{BITS} / nat ^ g"), exponent("g", upper=20.0, start=(0.3, 5.0))),
        lambda p, x: p.e + p.s * x.loss**p.g,
        target="bits_per_byte",
    ),
    Law(  # `task_sigmoid` of Chinchilla's law, fitted in one step
        "direct_sigmoid",
        ("N", "D"),
        "Acc(N, D) = b + a / (1 + exp(A N^-α + B D^-β - s))",
        BHAGIA,
        (
            *(
                CHANCE,
                HEIGHT,
                *several(Parameter, "A B", "unit of the column ^ exponent", "log", 1e-30, 1e30, (1.0, 1e4)),
            ),
            *(*several(exponent, "alpha beta"), exponent("s", -50.0, 50.0, (-1.0, 6.0))),
        ),
        lambda p, x: p.b + p.a * sigmoid(p.s - p.A * x.N**-p.alpha - p.B * x.D**-p.beta),
        **OF_ACCURACY,
    ),
    Law(  # eq. 1, of a task's bits per byte
        "direct_bits",
        ("N", "D"),
        "bits(N, D) = E + A N^-α + B D^-β",
        BHAGIA,
        (
            floor("E", BITS),
            *several(coefficient, "A B", f"{BITS} × unit of the column ^ exponent"),
            *several(exponent, "alpha beta"),
        ),
        lambda p, x: p.E + p.A * x.N**-p.alpha + p.B * x.D**-p.beta,
        target="bits_per_byte",
    ),
    # Eq. 6. E_a and E_b are the floors of the two losses; the paper takes them from a law of each.
    Law(
        "loss_to_loss",
        ("loss_a",),
        "L_b = E_b + K (L_a - E_a)^κ",
        BRANDFONBRENER,
        (
            *(floor("E_b"), coefficient("K", "nats per token ^ (1 - κ)"), exponent("kappa", start=(0.3, 2.0))),
            Parameter("E_a", "nats per token", "linear", 0.0, 1e6, (0.0, 1.0)),
        ),
        lambda p, x: p.E_b + p.K * np.maximum(x.loss_a - p.E_a, np.full_like(x.loss_a, NEAREST)) ** p.kappa,
        target="loss_b",
    ),
)

MIXTURES = {"mixture_exponential": mixture_exponential, "mixture_joint": mixture_joint}


def laws() -> dict[str, Law]:
    """Every law by its name: the laws of the papers, and those of `--extend`."""
    by_name = {law.name: law for law in LAWS}
    for name, law in schema.joined(schema.LAW).items():
        fix = "write `NAME = scaling.laws.Law(name=…, formula=…, citation=…, …)` (docs/laws.md)"
        refuse(not isinstance(law, Law), f"{name} is not a law", fix, key="slot", value=schema.LAW)
        is_taken = by_name.setdefault(law.name, law) is not law
        refuse(is_taken, f"there is a law {law.name} already", "give your law another name", key="slot")
    return by_name


def named(name: str, *others: str) -> Law:
    """The law of that name; an error also proposes `others`, further names that the caller accepts."""
    by_name = laws()
    if name in by_name:
        return by_name[name]
    stem, _, count = name.rpartition("_")
    if stem in MIXTURES and count.isdecimal() and 2 <= int(count) <= 100:  # `mixture_joint_5`
        return MIXTURES[stem](int(count))
    raise ScalingError(f"there is no law {name!r}", fix=nearest(name, [*by_name, *others]))
