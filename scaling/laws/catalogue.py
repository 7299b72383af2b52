"""The laws of the papers, by family. A law is an entry: its formula, its citation, its parameters and its code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scaling import schema
from scaling.errors import ScalingError, nearest
from scaling.laws import special_laws
from scaling.laws.dual import Dual
from scaling.laws.law import Columns, Law, Parameter, Rng, coefficient, exponent, floor, number, place

KAPLAN = "Kaplan et al. 2020, arXiv 2001.08361"
GADRE = "Gadre et al. 2024, arXiv 2403.08540"

SMALLEST = 1e-3
"""The least exponent that something is divided by."""

# One column


def _power_law(x: str) -> Law:
    return Law(
        name=f"power_law_{x.lower()}",
        formula="L(x) = A x^-α",
        citation="Hestness et al. 2017, arXiv 1712.00409",
        inputs=(x,),
        parameters=(coefficient("A"), exponent("alpha")),
        curve=lambda p, columns: p.A * getattr(columns, x) ** -p.alpha,
    )


def _power_law_floor(x: str) -> Law:
    return Law(
        name=f"power_law_floor_{x.lower()}",
        formula="L(x) = E + A x^-α",
        citation="Henighan et al. 2020, arXiv 2010.14701",
        inputs=(x,),
        parameters=(floor(), coefficient("A"), exponent("alpha")),
        curve=lambda p, columns: p.E + p.A * getattr(columns, x) ** -p.alpha,
    )


def _kaplan(x: str) -> Law:
    """L(x) = (x_c / x)^α. As x_c lies far outside the points, it starts where the law passes through their middle."""

    def adjust(theta: np.ndarray, rng: Rng, inputs: Columns, target: np.ndarray) -> None:
        theta[:, 0] = np.median(inputs[x]) * np.median(target) ** (1.0 / theta[:, 1])

    return Law(
        name=f"kaplan_{x.lower()}",
        formula="L(x) = (x_c / x)^α",
        citation=KAPLAN,
        inputs=(x,),
        parameters=(place("x_c", x, "unit of the column"), exponent("alpha", SMALLEST)),
        curve=lambda p, columns: (p.x_c / getattr(columns, x)) ** p.alpha,
        adjust=adjust,
    )


def _broken(x: str, breaks: int) -> Law:
    """Broken neural scaling laws, eq. 1. At the i-th break dᵢ the slope changes by cᵢ; fᵢ is how gradual it is."""
    bends = (
        (
            number(f"c_{i}", -10.0, 10.0, (-1.0, 1.0)),
            place(f"d_{i}", x, "unit of the column"),
            Parameter(f"f_{i}", "1", "log", 1e-3, 1e2, (0.1, 1.5)),
        )
        for i in range(1, breaks + 1)
    )

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

    return Law(
        name=f"broken_{x.lower()}_{breaks}",
        formula="L(x) = a + b x^-c₀ Πᵢ (1 + (x/dᵢ)^(1/fᵢ))^(-cᵢ fᵢ)",
        citation="Caballero et al. 2022, arXiv 2210.14891",
        inputs=(x,),
        parameters=(
            *(floor("a"), coefficient("b"), number("c_0", -10.0, 10.0, (-0.2, 1.0))),
            *(parameter for bend in bends for parameter in bend),
        ),
        curve=curve,
        adjust=adjust,
        canonical=canonical,
    )


CRITICAL_BATCH = Law(  # of measured critical batches; eq. 1.4
    name="critical_batch",
    formula="B_crit(L) = B_* L^(-1/α_B)",
    citation=KAPLAN,
    target="B_crit",
    inputs=("loss",),
    parameters=(coefficient("B_star", "tokens"), exponent("alpha_B", SMALLEST, start=(0.05, 1.0))),
    curve=lambda p, x: p.B_star * x.loss ** (-1.0 / p.alpha_B),
)


def critical_batch(loss: ArrayLike, B_star: float, alpha_B: float) -> np.ndarray:
    """B_crit(L) = B_* L^(-1/α_B), in tokens."""
    return B_star * np.asarray(loss, float) ** (-1.0 / alpha_B)


def minimum_steps(steps: ArrayLike, batch: ArrayLike, critical: ArrayLike) -> np.ndarray:
    """S_min = S / (1 + B_crit/B), the steps that a batch far above the critical one would take (Kaplan, eq. 5.4)."""
    return np.asarray(steps, float) / (1.0 + np.asarray(critical) / np.asarray(batch))


def minimum_compute(compute: ArrayLike, batch: ArrayLike, critical: ArrayLike) -> np.ndarray:
    """C_min = C / (1 + B/B_crit), the compute that a batch far below the critical one would take (Kaplan, eq. 5.5)."""
    return np.asarray(compute, float) / (1.0 + np.asarray(batch) / np.asarray(critical))


# Size and data

CHINCHILLA = Law(  # approach 3; eq. 2
    name="chinchilla",
    formula="L(N, D) = E + A N^-α + B D^-β",
    citation="Hoffmann et al. 2022, arXiv 2203.15556",
    derived={
        "a": lambda p: p.beta / (p.alpha + p.beta),  # N_opt ∝ C^a
        "b": lambda p: p.alpha / (p.alpha + p.beta),  # D_opt ∝ C^b
    },
    inputs=("N", "D"),
    parameters=(floor(), coefficient("A"), coefficient("B"), exponent("alpha"), exponent("beta")),
    curve=lambda p, x: p.E + p.A * x.N**-p.alpha + p.B * x.D**-p.beta,
)


def _adjust_kaplan_n_d(theta: np.ndarray, rng: Rng, inputs: Columns, target: np.ndarray) -> None:
    """The two terms share L^(1/α_D) at the middle of the points."""
    alpha_n, alpha_d = theta[:, 2], theta[:, 3]
    share = rng.uniform(0.02, 0.98, len(theta))
    inner = np.median(target) ** (1.0 / alpha_d)
    theta[:, 0] = np.median(inputs["N"]) * (share * inner) ** (alpha_d / alpha_n)
    theta[:, 1] = np.median(inputs["D"]) * (1.0 - share) * inner


KAPLAN_N_D = Law(  # eq. 1.5
    name="kaplan_n_d",
    formula="L(N, D) = [(N_c/N)^(α_N/α_D) + D_c/D]^α_D",
    citation=KAPLAN,
    inputs=("N", "D"),
    parameters=(
        *(place("N_c", "N", "parameters"), place("D_c", "D", "tokens")),
        *(exponent("alpha_N", SMALLEST), exponent("alpha_D", SMALLEST)),
    ),
    curve=lambda p, x: ((p.N_c / x.N) ** (p.alpha_N / p.alpha_D) + p.D_c / x.D) ** p.alpha_D,
    adjust=_adjust_kaplan_n_d,
)


def _adjust_kaplan_n_s(theta: np.ndarray, rng: Rng, inputs: Columns, target: np.ndarray) -> None:
    """The two terms share the loss at the middle of the points."""
    share = rng.uniform(0.02, 0.98, len(theta))
    loss = np.median(target)
    theta[:, 0] = np.median(inputs["N"]) * (share * loss) ** (1.0 / theta[:, 2])
    theta[:, 1] = np.median(inputs["S_min"]) * ((1.0 - share) * loss) ** (1.0 / theta[:, 3])


# S_min is the number of steps at a batch far above the critical one; `minimum_steps` turns steps at batch B into it.
KAPLAN_N_S = Law(  # eq. 1.6
    name="kaplan_n_s",
    formula="L(N, S_min) = (N_c/N)^α_N + (S_c/S_min)^α_S",
    citation=KAPLAN,
    inputs=("N", "S_min"),
    parameters=(
        *(place("N_c", "N", "parameters"), place("S_c", "S_min", "steps")),
        *(exponent("alpha_N", SMALLEST), exponent("alpha_S", SMALLEST)),
    ),
    curve=lambda p, x: (p.N_c / x.N) ** p.alpha_N + (p.S_c / x.S_min) ** p.alpha_S,
    adjust=_adjust_kaplan_n_s,
)


def _farseer(p: Any, x: Any) -> Dual:
    """E(N) + B(N) (D/D₀)^-β(N), each of E, B and β of the form X₀ exp(s_X q_X) with q_γ = ((N/N₀)^γ - 1)/γ.

    With N₀ = 10⁹ and D₀ = 2·10¹⁰ these are the functions of the paper, exp(e(N)) + exp(b(N)) D^-exp(a(N)) with e, b and
    a linear in N^γ; γ → 0 is a power of N, and no parameter is the value of a term many decades away.
    """
    size, data = np.log(x.N / 1e9), np.log(x.D / 2e10)
    E, B, beta = (
        getattr(p, f"{letter}_0")
        * np.exp(
            getattr(p, f"s_{letter}")
            * (np.exp(getattr(p, f"gamma_{letter}") * size) - 1.0)
            / getattr(p, f"gamma_{letter}")
        )
        for letter in ("E", "B", "beta")
    )
    return E + B * np.exp(-(beta * data))


def _adjust_farseer(theta: np.ndarray, rng: Rng, inputs: Columns, target: np.ndarray) -> None:
    """The first two terms share the loss at the middle of the points."""
    share = rng.uniform(0.1, 0.9, len(theta)) * abs(float(np.median(target)))
    theta[:, 0], theta[:, 3] = share, abs(float(np.median(target))) - share


FARSEER = Law(
    name="farseer",
    formula="L(N, D) = E(N) + B(N) (D/D₀)^-β(N), log E, log B and log β linear in N^γ",
    citation="Li et al. 2025, arXiv 2506.10972",
    inputs=("N", "D"),
    parameters=tuple(
        parameter
        for letter, unit, start in (
            ("E", "nats per token", (0.05, 3.0)),
            ("B", "nats per token", (0.05, 3.0)),
            ("beta", "1", (0.05, 1.0)),
        )
        for parameter in (
            Parameter(f"{letter}_0", unit, "log", 1e-12, 1e12, start),
            number(f"s_{letter}", -5.0, 5.0, (-0.5, 0.5)),
            number(f"gamma_{letter}", -1.0, 1.0, (-0.3, 0.3)),
        )
    ),
    curve=_farseer,
    adjust=_adjust_farseer,
)


def _data_constrained(p: Any, x: Any) -> Dual:
    """E + A N'^-α + B D'^-β with D' = U_D + U_D R_D* (1 - exp(-R_D/R_D*)), eq. 4 to 6.

    U_D = min(U, D) are unique tokens and R_D = D/U_D - 1 repetitions; N' likewise, with U_N = min(N, the N that is
    compute-optimal for U_D) and R_N = N/U_N - 1.
    """

    def worth(unique: Any, repetitions: Any, decay: Dual) -> Dual:
        """What `repetitions` of `unique` are worth in fresh ones: U + U R* (1 - exp(-R/R*))."""
        return unique * (1.0 - decay * np.expm1(-repetitions / decay))

    unique = np.minimum(x.D, x.U)
    # The N for which D tokens are compute-optimal: G (G D)^(β/α), G = (αA/βB)^(1/(α+β)).
    log_g = np.log(p.alpha * p.A / (p.beta * p.B)) / (p.alpha + p.beta)
    optimum = np.minimum(np.exp(log_g + (p.beta / p.alpha) * (log_g + np.log(unique))), x.N)
    size = worth(optimum, x.N / optimum - 1.0, p.R_N)
    data = worth(unique, x.D / unique - 1.0, p.R_D)
    return p.E + p.A * size**-p.alpha + p.B * data**-p.beta


def _adjust_data_constrained(theta: np.ndarray, rng: Rng, inputs: Columns, target: np.ndarray) -> None:
    """The first five as if nothing were repeated."""
    theta[:, :5] = CHINCHILLA.start(rng, len(theta), inputs, target)


DATA_CONSTRAINED = Law(
    name="data_constrained",
    formula="L(N, D, U) = E + A N'^-α + B D'^-β, x' = U_x + U_x R_x* (1 - exp(-R_x/R_x*))",
    citation="Muennighoff et al. 2023, arXiv 2305.16264",
    inputs=("N", "D", "U"),
    parameters=(
        floor(),
        # Not linear: A and B also decide which N is optimal for U.
        Parameter("A", "nats per token × parameters^α", "log", 1e-100, 1e100, (1.0, 1e10)),
        Parameter("B", "nats per token × tokens^β", "log", 1e-100, 1e100, (1.0, 1e10)),
        *(exponent("alpha", SMALLEST), exponent("beta", SMALLEST)),
        *(Parameter(name, "repetitions", "log", 1e-3, 1e5, (1.0, 100.0)) for name in ("R_D", "R_N")),
    ),
    curve=_data_constrained,
    adjust=_adjust_data_constrained,
)

OVER_TRAINING = Law(  # eq. 4
    name="over_training",
    formula="L(C, M) = E + (a M^η + b M^-η) C^-η",
    citation=GADRE,
    inputs=("C", "M"),
    parameters=(floor(), coefficient("a"), coefficient("b"), exponent("eta")),
    curve=lambda p, x: p.E + p.a * (x.C / x.M) ** -p.eta + p.b * (x.C * x.M) ** -p.eta,
)

# Departs from the paper, whose law adds a term in N: with N ≈ 12 l w² it is nearly a mixture of the other two.
SHAPE = Law(
    name="shape",
    formula="L(w, l, D) = E + A w^-α + B l^-β + G D^-γ",
    citation="McLeish et al. 2025, arXiv 2502.06857",
    inputs=("width", "depth", "D"),
    parameters=(
        *(floor(), coefficient("A"), coefficient("B"), coefficient("G")),
        *(exponent("alpha", start=(0.1, 2.0)), exponent("beta", start=(0.1, 2.0)), exponent("gamma")),
    ),
    curve=lambda p, x: p.E + p.A * x.width**-p.alpha + p.B * x.depth**-p.beta + p.G * x.D**-p.gamma,
)

VOCABULARY_SIZE = 16384.0
"""The vocabulary at which the data's coefficient is stated."""

# L_u is the loss less that of the tokens' frequencies alone, so that vocabularies can be compared; it and E are
# negative. N counts the parameters but for those of the vocabulary, H the characters of training. Departs from the
# paper (eq. 5), whose κ is 0: a larger vocabulary needs more text before its rows are learned (κ > 0), so that for each
# budget there is a best one. Exponents from 0.01 on: a term that hardly falls is not separated from E.
VOCABULARY = Law(
    name="vocabulary",
    formula="L_u(N, V, H) = E + A N^-α + G V^-γ + B H^-β (V/16384)^κ",
    citation="Tao et al. 2024, arXiv 2407.13623",
    target="loss_u",
    objective="squared",
    inputs=("N", "V", "H"),
    parameters=(
        Parameter("E", "nats per token", "linear", -1e6, 1e6, (-10.0, 1.0), linear=True),
        *(coefficient(name) for name in ("A", "G", "B")),
        *(exponent(name, 0.01, 2.0, (0.05, 1.0)) for name in ("alpha", "gamma", "beta")),
        number("kappa", -2.0, 2.0, (-0.5, 0.5)),
    ),
    curve=lambda p, x: (
        p.E
        + p.A * x.N**-p.alpha
        + p.G * x.V**-p.gamma
        + p.B * x.H**-p.beta * np.exp(p.kappa * np.log(x.V / VOCABULARY_SIZE))
    ),
)


def best_vocabulary(theta: np.ndarray, H: float) -> float:
    """The V of the lowest loss after H characters: (γ G V₀^κ / (κ B))^(1/(γ+κ)) H^(β/(γ+κ))."""
    p = dict(zip(VOCABULARY.parameter_names, theta, strict=True))
    if p["kappa"] <= 0:
        return float("inf")
    ratio = p["gamma"] * p["G"] * VOCABULARY_SIZE ** p["kappa"] / (p["kappa"] * p["B"] * H ** -p["beta"])
    return float(ratio ** (1.0 / (p["gamma"] + p["kappa"])))


# Learning rate, batch and schedule


def _optimum_law(name: str, target: str, unit: str, symbol: str, axes: tuple[str, ...]) -> Law:
    """The optimal batch (in tokens) or learning rate as a product of powers of the columns; eq. 1."""

    def curve(p: Any, x: Any) -> Dual:
        product = p.A
        for axis in axes:
            product = product * getattr(x, axis) ** getattr(p, f"b_{axis}")
        return product

    return Law(
        name="_".join((name, *(axis.lower() for axis in axes))),
        formula=f"{symbol} = A Π x^b_x",
        citation="Bi et al. 2024, arXiv 2401.02954; Li et al. 2025, arXiv 2503.04715, for N and D",
        target=target,
        inputs=axes,
        parameters=(
            Parameter("A", unit, "log", 1e-200, 1e200, (1e-3, 1e3), linear=True),
            *(number(f"b_{x}", -5.0, 5.0, (-1.0, 1.0)) for x in axes),
        ),
        curve=curve,
    )


RATE_SIZE, RATE_TOKENS = 3e8, 1e10
"""Where the optimum of `learning_rate_batch` and its curvatures are stated."""


def _learning_rate_batch(p: Any, x: Any) -> Dual:
    """E + A N^-α + G D^-β + a bowl in u = ln(η/η_opt) and v = ln(B/B_opt), whose optimum and height drift with N and D.

    η_opt = η₀ n^η_N d^η_D, B_opt = B₀ n^B_N d^B_D, n = N/(3·10⁸), d = D/10¹⁰. Departs from the paper, which fits the
    optima of each N and D: here every run counts, with curvatures h and k, their correlation ρ, their drift c, and s,
    by which a rate that is too high costs more or less than one that is too low.
    """
    size, data = np.log(x.N / RATE_SIZE), np.log(x.D / RATE_TOKENS)
    rate = np.log(x.lr) - np.log(p.eta_0) - p.eta_N * size - p.eta_D * data
    batch = np.log(x.B) - np.log(p.B_0) - p.B_N * size - p.B_D * data
    both = 2.0 * p.rho * np.exp(0.5 * (np.log(p.h) + np.log(p.k)))
    bowl = p.h * rate * rate + both * rate * batch + p.k * batch * batch
    drift = np.exp(p.c_N * size + p.c_D * data + p.s_lr * rate + p.s_B * batch)
    return p.E + p.A * x.N**-p.alpha + p.G * x.D**-p.beta + bowl * drift


def _adjust_learning_rate_batch(theta: np.ndarray, rng: Rng, inputs: Columns, target: np.ndarray) -> None:
    """The optimum starts near the rates and batches of the tenth of runs with the lowest losses."""
    low = target <= np.quantile(target, 0.1)
    for name, column in (("eta_0", "lr"), ("B_0", "B")):
        middle = np.exp(np.mean(np.log(inputs[column][low])))
        theta[:, LEARNING_RATE_BATCH.parameter_names.index(name)] = middle * np.exp(rng.uniform(-1.0, 1.0, len(theta)))


def _slope(name: str, low: float = -0.3, high: float = 0.3) -> Parameter:
    return number(name, -3.0, 3.0, (low, high))


LEARNING_RATE_BATCH = Law(
    name="learning_rate_batch",
    formula="L(η, B, N, D) = E + A N^-α + G D^-β + (h u² + 2ρ√(hk) u v + k v²) n^c_N d^c_D exp(s_η u + s_B v)",
    citation="Li et al. 2025, arXiv 2503.04715",
    inputs=("lr", "B", "N", "D"),
    parameters=(
        *(floor(), coefficient("A"), coefficient("G"), exponent("alpha"), exponent("beta")),
        Parameter("eta_0", "1", "log", 1e-12, 1e6, "lr"),
        *(_slope("eta_N", -1.0, 0.2), _slope("eta_D", -0.2, 0.8)),
        Parameter("B_0", "unit of the column", "log", 1e-6, 1e15, "B"),
        *(_slope("B_N", -0.2, 0.2), _slope("B_D", 0.0, 0.8)),
        *(Parameter(name, "nats per token", "log", 1e-9, 1e3, (1e-3, 0.1)) for name in ("h", "k")),
        number("rho", -0.999, 0.999, (-0.7, 0.7)),
        *(_slope("c_N"), _slope("c_D"), _slope("s_lr"), _slope("s_B")),
    ),
    curve=_learning_rate_batch,
    adjust=_adjust_learning_rate_batch,
)


def best_rate_and_batch(theta: np.ndarray, N: float, D: float) -> tuple[float, float]:
    """η_opt and B_opt of `learning_rate_batch` at this size and these tokens."""
    p = dict(zip(LEARNING_RATE_BATCH.parameter_names, theta, strict=True))
    size, data = np.log(N / RATE_SIZE), np.log(D / RATE_TOKENS)
    rate = p["eta_0"] * np.exp(p["eta_N"] * size + p["eta_D"] * data)
    return float(rate), float(p["B_0"] * np.exp(p["B_N"] * size + p["B_D"] * data))


LAWS: tuple[Law, ...] = (
    *(_power_law(x) for x in ("C", "N", "D")),
    *(_power_law_floor(x) for x in ("C", "N", "D")),
    *(_kaplan(x) for x in ("N", "D", "C", "C_min")),
    KAPLAN_N_D,
    KAPLAN_N_S,
    CRITICAL_BATCH,
    CHINCHILLA,
    FARSEER,
    DATA_CONSTRAINED,
    OVER_TRAINING,
    SHAPE,
    *(_broken(x, breaks) for x in ("C", "N", "D") for breaks in (1, 2, 3)),
    special_laws.ANNEALING,
    *(_optimum_law("batch_size", "B", "tokens", "B_opt", axes) for axes in (("C",), ("D",), ("N", "D"))),
    *(_optimum_law("learning_rate", "lr", "1", "η_opt", axes) for axes in (("C",), ("N",), ("N", "D"))),
    LEARNING_RATE_BATCH,
    VOCABULARY,
    special_laws.ROUTED_EXPERTS,
    special_laws.ROUTED_EXPERTS_FLOOR,
    special_laws.GRANULARITY,
    special_laws.ACTIVE_EXPERTS,
    special_laws.SPARSE_EXPERTS,
    special_laws.SPARSE_WEIGHTS,
    special_laws.PARALLEL_STREAMS,
    special_laws.PRECISION,
    special_laws.BI_MIX,
    special_laws.mixture_exponential(3),
    special_laws.mixture_joint(3),
    special_laws.TASK_SIGMOID,
    special_laws.TASK_EXPONENTIAL,
    special_laws.TASK_LINEAR,
    special_laws.TASK_POWER,
    special_laws.DIRECT_SIGMOID,
    special_laws.DIRECT_BITS,
    special_laws.LOSS_TO_LOSS,
)

MIXTURES = {"mixture_exponential": special_laws.mixture_exponential, "mixture_joint": special_laws.mixture_joint}
MOST_DOMAINS = 100


def laws() -> dict[str, Law]:
    """Every law by its name: those of the papers, and those that joined by `--extend`."""
    by_name = {law.name: law for law in LAWS}
    for name, law in schema.joined(schema.LAW).items():
        if not isinstance(law, Law):
            fix = "write `NAME = scaling.laws.Law(name=…, formula=…, citation=…, …)` (docs/laws.md)"
            raise ScalingError(f"{name} is no law", key="slot", value=schema.LAW, fix=fix)
        if by_name.setdefault(law.name, law) is not law:
            raise ScalingError(f"there is a law {law.name} already", key="slot", fix="give your law another name")
    return by_name


def named(name: str, *others: str) -> Law:
    """The law of that name; an error proposes `others` too, the names that a caller takes besides."""
    by_name = laws()
    if name in by_name:
        return by_name[name]
    stem, _, count = name.rpartition("_")
    if stem in MIXTURES and count.isdecimal() and 2 <= int(count) <= MOST_DOMAINS:  # `mixture_joint_5`
        return MIXTURES[stem](int(count))
    raise ScalingError(f"there is no law {name!r}", fix=nearest(name, [*by_name, *others]))
