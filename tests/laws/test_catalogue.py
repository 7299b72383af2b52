"""Every law, built in or written as a formula: derivatives, recovery, special cases; formulas, conditions, numbers."""

import contextlib
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.base.errors import ScalingError
from scaling.laws import LAWS, fit, intervals, named
from scaling.laws.curves import areas
from scaling.laws.formula import DEEPEST, FUNCTIONS, evaluate, matching, names, parse, parse_number
from scaling.laws.law import Dual, constrained
from scaling.laws.points import load_points
from scaling.laws.written import law_of
from tests.command_line import refuses
from tests.laws.conftest import grid

# A truth for each law, by the longest matching beginning of its name; broken laws make their own.
TRUTHS = """
    power_law 300 0.15, power_law_floor 1.7 3000 0.2, kaplan_n 8.8e13 0.076, kaplan_d 5.4e13 0.095,
    kaplan_c 1.3824e27 0.057, kaplan_c_min 2.6784e28 0.05, kaplan_n_d 6.4e13 1.8e13 0.076 0.103,
    kaplan_n_s 6.5e13 2100 0.077 0.76, critical_batch 200000000 0.21, chinchilla 1.8172 482 2085 0.3478 0.3658,
    data_constrained 1.87 521 1488 0.353 0.36 15.4 5.3, over_training 1.84 200 250 0.136,
    shape 1.5 20 3 2085 0.7 0.9 0.36, annealing 2 0.6 0.3 0.4, batch_size 0.29 0.33,
    batch_size_d_width 0.58 0.571 -0.1, batch_size_n_d 0.58 0.05 0.571, learning_rate 0.31 -0.125,
    learning_rate_n_d 1.79 -0.713 0.307, learning_rate_d_width 1.79 -0.1 -0.713,
    learning_rate_d_width_b 1.79 -0.1 -0.713 0.3, task_sigmoid 0.25 0.7 3 2.8, task_exponential 0.85 2 0.7,
    task_linear -0.4 0.5, task_power 0.3 0.12 1.7, direct_sigmoid 0.25 0.7 800 3000 0.3 0.33 2,
    direct_bits 0.4 300 900 0.3 0.33, farseer 1.5 -0.2 -0.1 0.8 -0.1 0.1 0.35 0.1 0.15,
    learning_rate_batch 1.7 482 2085 0.35 0.37 0.002 -0.4 0.2 200 -0.05 0.4 0.02 0.03 -0.4 0.1 -0.1 0.1 -0.05,
    vocabulary -6 300 2 800 0.3 0.15 0.3 0.2, routed_experts 2.7 0.08 0.06 0.01,
    routed_experts_floor 1.2 1.4 0.15 0.1 0.01 5, granularity 1.7 300 200 900 0.6 0.3 0.33,
    active_experts 1.7 0.5 0.6 0.3 0.33 0.1 0.05 0.02 -0.02, sparse_experts 1.7 300 0.3 0.25 -0.05 0.03 900 0.33,
    sparse_weights 1.7 300 200 900 0.7 0.3 0.33, parallel_streams 1.3 100 0.25 0.35, precision 1.7 300 900 0.3 0.33 3,
    bi_mix 1.5 40 0.12 0.25, mixture_exponential 1.8 1.4 -1.5 0.6, mixture_joint 1.6 0.4 0.9 0.3 0.15 0.5 0.3 -0.1,
    loss_to_loss 1.2 0.9 1.3 1.6
"""

RANGES = """
    N 1e7 1e10, D 1e9 1e12, C 1e17 1e22, C_min 1e17 1e22, S_min 1e3 1e6, M 5 640, U 5e8 5e10, width 128 4096,
    depth 2 64, S1 1 300, S2 1e-3 0.5, lr 1e-4 1e-2, B 16 2048, V 4096 65536, H 1e9 1e12, experts 1 512,
    granularity 1 32, K 1 4, P 1.5 13, density 0.1 1, streams 1 8, bits 2 16, p 0.02 1
"""


def columns(n=60):
    rng = np.random.default_rng(1)
    ranges = (line.split() for line in RANGES.split(","))
    table = {name: np.exp(rng.uniform(np.log(float(low)), np.log(float(high)), n)) for name, low, high in ranges}
    table["U"] = np.minimum(table["D"], table["U"])
    table |= {f"p_{i}": part for i, part in enumerate(rng.dirichlet(np.ones(3), n).T, 1)}
    return table | dict.fromkeys(("loss", "loss_a"), np.linspace(2, 4, n))


def truth(form):
    if form.name.startswith("broken"):
        breaks = int(form.name[-1])
        column = columns()[form.inputs[0]]
        places = np.exp(np.quantile(np.log(column), np.linspace(0, 1, breaks + 2)[1:-1]))
        bends = [value for i, place in enumerate(places) for value in (0.12 * (-1) ** i, place, 0.3)]
        return np.array([1.5, 30.0, 0.08, *bends])
    truths = (line.split() for line in TRUTHS.split(","))
    return np.array(max((len(name), *map(float, values)) for name, *values in truths if form.name.startswith(name))[1:])


# Broken laws in N and D differ from those in C by the name of the column alone.
ONCE_A_CLASS = [
    pytest.param(form, marks=pytest.mark.slow if form.name in ("broken_c_2", "broken_c_3") else ())
    for form in LAWS
    if not form.name.startswith("broken") or form.inputs == ("C",)
]


@pytest.mark.parametrize("form", ONCE_A_CLASS, ids=lambda form: form.name)
def test_the_best_of_100_random_starts_recovers_a_law_without_noise(form):
    points = {name: columns()[name] for name in form.inputs} | {form.target: form.predict(truth(form), columns())}
    np.testing.assert_allclose(fit(form, points, starts=100).theta, truth(form), rtol=1e-6)


@pytest.mark.parametrize("form", LAWS, ids=lambda form: form.name)
def test_a_law_has_the_derivative_of_its_prediction_and_predicts_in_batches(form):
    theta, table, step = truth(form), columns(), 1e-6
    exact = form.jacobian(theta, table)
    for index, value in enumerate(theta):
        beside = np.repeat(theta[None], 2, axis=0)
        beside[:, index] += np.array([-step, step]) * abs(value)
        below, above = form.predict(beside, table)
        numeric = (above - below) / (2 * step * abs(value))
        # A difference is right to about 10⁻¹⁰ of the prediction over the step.
        np.testing.assert_allclose(exact[:, index], numeric, rtol=1e-5, atol=1e-9 * above.max() / abs(value))
    batch = theta * np.linspace(0.9, 1.1, 6).reshape(2, 3, 1)
    np.testing.assert_array_equal(form.predict(batch, table)[1, 2], form.predict(batch[1, 2], table))


def test_special_cases():
    table = columns()
    E, A, B, alpha, _ = truth(named("chinchilla"))
    balanced = table | {"C": 6 * table["N"] * table["D"], "M": table["D"] / table["N"]}
    small = table | {"U": table["D"], "N": table["N"] * 1e-9}
    a, b = A * 6 ** (alpha / 2), B * 6 ** (alpha / 2)
    for name, theta, other, same, at in (
        ("over_training", [E, a, b, alpha / 2], "chinchilla", [E, A, B, alpha, alpha], balanced),
        ("data_constrained", [E, A, B, alpha, 0.36, 15.0, 5.0], "chinchilla", [E, A, B, alpha, 0.36], small),
        ("broken_c_1", [1.7, 3000.0, 0.2, 0.0, 1e19, 0.5], "power_law_floor_c", [1.7, 3000.0, 0.2], table),
        ("kaplan_n_d", [6.4e13, 1e-100, 0.076, 0.103], "kaplan_n", [6.4e13, 0.076], table),
    ):
        expected = named(other).predict(np.array(same), at)
        np.testing.assert_allclose(named(name).predict(np.array(theta), at), expected)


def test_the_areas_under_a_schedule_and_its_falls():
    cosine = 1e-3 * (0.55 + 0.45 * np.cos(np.pi * np.arange(4000) / 4000))
    direct = sum((cosine[k - 1] - cosine[k]) * 0.99 ** (i - k) for i in range(1, 100) for k in range(1, i + 1))
    S1, S2 = areas(cosine, 0.99)
    assert (S1[-1], S2[99]) == pytest.approx((cosine.sum(), direct))


def test_proportions_that_do_not_sum_to_one_are_refused():
    table = {"p_1": np.array([0.5, 0.2, 0.4, 0.9, 0.1]), "p_2": np.array([0.5, 0.8, 0.6, 0.4, 0.9])}
    table["loss"] = np.linspace(2, 3, 5)
    refuses("p_1, p_2 of row 4 has a negative proportion or does not sum to 1", fit, "mixture_exponential_2", table)


VALUES = {"N": 3.0, "D": 5.0, "a": 0.5, "train/loss": 2.0, "config.n": 4.0, "α": 0.25}
MEANINGS = {
    "N - D - a": -2.5,
    "-N^2 + N^a^2": 3**0.25 - 9,
    "N^-α * D + 2**3": 5 * 3**-0.25 + 8,
    "N·D × 2 − 1_000": -970.0,
    "`train/loss` * config.n * (D + 1)": 48.0,
    "min(N, D, 1) + max(N, D) + pow(N, 2) + sqrt(4) + abs(-1)": 18.0,
    "log(exp(N)) + ln(1) + log10(100) + log2(8) + sigmoid(0) + tanh(0)": 8.5,
}
REFUSED = {
    **dict.fromkeys(("N + * D", "(N, D)", "max(*N, D)", "N[0]", "lambda: 3", "(N).real", "(N)(D)", "'N'", "N # D"), ""),
    "(N": "a bracket that is not closed, or not opened",
    "A N^-a": "a sign between two values",
    "__import__('os')": "has no function '__import__'",
    "log(N, D)": "2 arguments",
    "6N": "write 6*N",
    "N" + "+N" * (DEEPEST + 1): "nests deeper",
    "N" * 5000: "characters",
}


def test_a_formula_means_what_it_says_and_what_is_none_is_refused_in_one_line():
    for text, value in MEANINGS.items():
        assert float(evaluate(parse(text), VALUES)) == pytest.approx(value, rel=1e-12), text
    for text, what in REFUSED.items():
        assert refuses(re.escape(what) or None, parse, text).fix


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_its_exact_derivative(name):
    """Also of numbers on one side alone: a law multiplies, subtracts and divides its parameters and its columns."""
    text = f"(1 - {name}(x) / y) * x^y" if FUNCTIONS[name][0] == 1 else f"{name}(x, y) + {name}(2, y) - {name}(x, 3)"
    at, step = {"x": np.array([0.7, 1.3, 2.4]), "y": np.array([1.1, 1.9, 0.6])}, 1e-6
    exact = evaluate(parse(text), {key: Dual(value, {row: np.ones(3)}) for row, (key, value) in enumerate(at.items())})
    np.testing.assert_allclose(exact.value, evaluate(parse(text), at))
    for row, key in enumerate(at):
        below, above = (evaluate(parse(text), {**at, key: at[key] + shift}) for shift in (-step, step))
        np.testing.assert_allclose(exact.gradient[row], (above - below) / (2 * step), rtol=1e-6, atol=1e-8)


@given(st.text(alphabet="NDa019.+-*/^(), eE", max_size=30) | st.text(max_size=20))
def test_any_text_is_a_formula_or_refused(text):
    with contextlib.suppress(ScalingError), np.errstate(all="ignore"):  # its numbers follow numpy, which does not raise
        evaluate(expression := parse(text), dict.fromkeys(names(expression), 0.7))


def test_conditions_choose_rows_and_numbers_are_read_as_people_write_them():
    columns = {
        "N": np.array([1e6, 1e7, 1e8]),
        "D": np.array([1e8, 2e8, np.nan]),
        "size": np.array(["1M", "10M", "100M"], object),
        "corpus": np.array(["c4", "c4", "pile"], object),
        "val-loss": np.array([3.0, 2.0, 1.0]),
    }
    conditions = {
        "N>=10M": [False, True, True],
        "N = 10_000_000": [False, True, False],
        "D/N<=100": [True, True, False],
        "size>5M": [False, True, True],
        "corpus!='c4=<pile>'": [True, True, True],
        "corpus!=wow!": [True, True, True],
        "`val-loss`<2.5": [False, True, True],
        "N*D=1.000000000001e14": [True, False, False],
    }
    numbers = {
        **dict(zip(("10M", "2.01M", "7b", "300 k", "2T", "1,000", "1_000"), (1e7, 2.01e6, 7e9, 3e5, 2e12, 1e3, 1e3))),
        **dict(zip(("1,234,567.5", "1 000 000", "1e9", " -3.5 ", 10**400), (1234567.5, 1e6, 1e9, -3.5, np.inf))),
        **dict.fromkeys(("", "many", "1.000,5", "1,5", "0,123", "12,34,567", "M", "1e9x", "r10M", True, None)),
    }
    for text, rows in conditions.items():
        assert matching(text, columns, "where").tolist() == rows, text
    refuses("is not a condition", matching, "N", columns, "where")
    refuses("two comparisons", matching, "1e6<N<1e8", columns, "where")
    refuses("a column of words", matching, "corpus>c4", columns, "where")
    assert {text: parse_number(text) for text in numbers} == numbers


TABLE = grid(np.geomspace(1e6, 1e9, 6), np.geomspace(1e8, 1e11, 6), 0.002)
N, D = TABLE["N"], TABLE["D"]
POINTS = load_points(TABLE)
LINE, SCORED, SEEN = np.geomspace(1e6, 1e10, 25), np.linspace(2, 4, 30), np.minimum(D, 1e10)
MADE = [
    ("E + A*(N + N0)^-a", {"N": LINE, "loss": 1 + 300 * (LINE + 3e7) ** -0.3}, {"N0": 3e7, "a": 0.3}),
    ("p - q*log(N)", {"N": LINE, "loss": 6 - 0.18 * np.log(LINE)}, {"p": 6, "q": 0.18}),
    ("E + A*N^-a + B*min(D, U)^-b", TABLE | {"U": SEEN, "loss": 1.7 + 9 * SEEN**-0.3 + 4 * N**-0.34}, {"b": 0.3}),
    ("error = c - k*exp(-g*loss)", {"loss": SCORED, "error": 0.9 - 2 * np.exp(-0.8 * SCORED)}, {"c": 0.9, "g": 0.8}),
]


def law(text, points=POINTS, /, **limits):
    return law_of(text, points, limits=limits)[0]


@pytest.mark.parametrize(("text", "columns", "truth"), MADE, ids=lambda value: value if isinstance(value, str) else "")
def test_a_formula_recovers_what_made_the_points(text, columns, truth):
    points, objective = load_points(columns), "squared" if "error" in columns else "log_squared"
    estimates = fit(law(text, points), points, objective=objective, starts=256).estimates
    assert {name: estimates[name] for name in truth} == pytest.approx(truth, rel=1e-4)


def test_what_a_name_is_follows_from_where_it_stands():
    points = load_points({**TABLE, "B": np.full(36, 512.0), "alpha": np.full(36, 1.0), "width": D / 7})
    assert law("E + A*width^-a", points).inputs == ("width",)
    assert law("E + A*B^-a + N^-c", points, B=(1, 10)).inputs == ("N",)
    either = r"alpha is a column of the table and may be a parameter.*loss\(N, D\)"
    refuses(either, law, "E + A*N^-alpha", points)
    assert "alpha" in law("loss(N) = E + A*N^-alpha", points).parameter_names
    lowest = {each.name: each.lower for each in law("E + A*N^-a + B*D^b", points).parameters}
    assert lowest["a"] == 0, "the loss falls as N^-a"
    assert lowest["b"] < 0, "the loss may fall or rise as D^b"
    refuses("lists the column 'D' and does not use it", law, "loss(N, D) = E + A*N^-a")


def test_bounds_hold_for_coefficients_and_exponents_and_tied_exponents_are_one_number():
    bounded = fit(law("E + A*N^-a + B*D^-b", a=(0.1, 0.3), A=(1.0, 200.0)), POINTS, starts=64)
    assert 0.1 <= bounded.estimates["a"] <= 0.3
    assert bounded.estimates["A"] == pytest.approx(200.0)
    above = fit(law("E + A*N^-a + B*D^-b", a=(1.0, np.inf)), POINTS, starts=64)
    assert above.estimates["a"] == pytest.approx(1.0)
    rising = load_points({**TABLE, "loss": 1.7 + 400 * N**-0.34 - 300 * D**-0.3})
    negative = fit(law("E + A*N^-a + B*D^-b", rising, B=(-1e4, 1e4)), rising, objective="log_squared", starts=64)
    assert negative.estimates["B"] == pytest.approx(-300, rel=0.01)
    tied = fit(constrained(named("chinchilla"), {"alpha": "beta"}, {}), POINTS, starts=64)
    assert tied.estimates["alpha"] == tied.estimates["beta"]
    assert tied.objective == pytest.approx(fit(law("E + A*N^-b + B*D^-b"), POINTS, starts=64).objective, rel=1e-10)
    assert tied.degrees_of_freedom == 36 - 4
    assert "a" not in intervals(tied, "t"), "N_opt grows as C^1/2 whatever the points are"
    refuses("in a circle", constrained, named("chinchilla"), {"alpha": "beta", "beta": "alpha"}, {})


def test_a_text_a_file_or_two_names_are_a_law(tmp_path):
    form = law_of("two_step", POINTS, {}, {"alpha": "beta"}, {"task_k": (1.0, 5.0)})[0]
    assert form.tied == {"alpha": "beta"}
    assert next(each for each in form.parameters if each.name == "task_k").upper == 5.0
    refuses("bounds task_z: is not a parameter of the law", law_of, "two_step", POINTS, limits={"task_z": (1.0, 5.0)})
    theta = np.array([1.7, 400.0, 900.0, 0.3, 0.25, 0.7, 3.0, 2.8])
    loss = named("chinchilla").predict(np.array([1.7, 400.0, 900.0, 0.3, 0.3]), TABLE)
    np.testing.assert_allclose(form.predict(theta, TABLE), named("task_sigmoid").predict(theta[4:], {"loss": loss}))
    path = tmp_path / "law.yaml"
    path.write_text("formula: E + A*N^-a + B*D^-b\ncitation: Doe 2026\nbounds: {b: [0, 2]}\ntie: {a: b}\n")
    form = law_of(str(path), POINTS)[0]
    assert (form.name, form.citation, form.tied) == ("law", "Doe 2026", {"a": "b"})
    assert (form.parameters[-1].name, form.parameters[-1].upper) == ("b", 2.0)
    path.write_text("formula: chinchilla\nname: narrow\nbounds: {alpha: [0, 1]}\n")
    form = law_of(str(path), POINTS)[0]
    assert (form.name, form.parameters[3].upper, form.citation) == ("narrow", 1.0, named("chinchilla").citation)
    path.write_text("formula: two_step\n")
    assert law_of(str(path), POINTS)[0].parameter_names[-1] == "task_L_0"
    path.write_text("formula: auto\n")
    refuses("no law 'auto'; choose from", law_of, str(path), POINTS, {}, {}, {}, "auto")
    path.write_text("name: a\nfomula: E*N\n")
    refuses(r"law.yaml:2: fomula='E\*N'.*did you mean 'formula'", law_of, str(path), POINTS)
