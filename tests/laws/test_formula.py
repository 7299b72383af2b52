"""Numbers, formulas, conditions, and laws that a person writes: what they mean, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.base.errors import ScalingError
from scaling.laws import fit, intervals, named
from scaling.laws.formula import DEEPEST, FUNCTIONS, condition, evaluate, names, parse, parse_number
from scaling.laws.law import Dual, constrained
from scaling.laws.points import load_points
from scaling.laws.written import Written, constrained_law, law_of
from tests.laws.conftest import grid

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
    "N +": "breaks off",
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
        with pytest.raises(ScalingError) as caught:
            parse(text)
        assert what in str(caught.value), text
        assert caught.value.fix
        assert "\n" not in str(caught.value)


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
    try:
        expression = parse(text)
    except ScalingError:
        return
    with np.errstate(all="ignore"):  # the numbers of a formula follow numpy, which does not raise
        evaluate(expression, dict.fromkeys(names(expression), 0.7))


COLUMNS = {
    "N": np.array([1e6, 1e7, 1e8]),
    "D": np.array([1e8, 2e8, np.nan]),
    "size": np.array(["1M", "10M", "100M"], object),
    "corpus": np.array(["c4", "c4", "pile"], object),
    "val-loss": np.array([3.0, 2.0, 1.0]),
}
CONDITIONS = {
    "N>=10M": [False, True, True],
    "N = 10_000_000": [False, True, False],
    "D/N<=100": [True, True, False],
    "size>5M": [False, True, True],
    "corpus!='c4=<pile>'": [True, True, True],
    "`val-loss`<2.5": [False, True, True],
    "N*D=1.000000000001e14": [True, False, False],
}
NUMBERS = {
    **dict(zip(("10M", "2.01M", "7b", "300 k", "2T", "1,000", "1_000"), (1e7, 2.01e6, 7e9, 3e5, 2e12, 1e3, 1e3))),
    **dict(zip(("1,234,567.5", "1 000 000", "1e9", " -3.5 ", 10**400), (1234567.5, 1e6, 1e9, -3.5, np.inf))),
    **dict.fromkeys(("", "many", "1.000,5", "1,5", "0,123", "12,34,567", "M", "1e9x", "r10M", True, None)),
}


def test_conditions_choose_rows_and_numbers_are_read_as_people_write_them():
    for text, rows in CONDITIONS.items():
        assert condition(text, "where").mask(COLUMNS, "where").tolist() == rows, text
    for text, what in (("N", "is no condition"), ("1e6<N<1e8", "two comparisons"), ("corpus>c4", "a column of words")):
        with pytest.raises(ScalingError, match=what):
            condition(text, "where").mask(COLUMNS, "where")
    assert {text: parse_number(text) for text in NUMBERS} == NUMBERS


TABLE = grid(np.geomspace(1e6, 1e9, 6), np.geomspace(1e8, 1e11, 6), 0.002)
N, D = TABLE["N"], TABLE["D"]
POINTS = load_points(TABLE)
LINE, SCORED, SEEN = np.geomspace(1e6, 1e10, 25), np.linspace(2, 4, 30), np.minimum(D, 1e10)
KAPLAN = named("kaplan_n_d").predict(np.array([6.4e13, 1.8e13, 0.076, 0.103]), TABLE)
MADE = [
    ("E + A*(N + N0)^-a", {"N": LINE, "loss": 1 + 300 * (LINE + 3e7) ** -0.3}, {"N0": 3e7, "a": 0.3}),
    ("p - q*log(N)", {"N": LINE, "loss": 6 - 0.18 * np.log(LINE)}, {"p": 6, "q": 0.18}),
    ("E + A*N^-a + B*min(D, U)^-b", TABLE | {"U": SEEN, "loss": 1.7 + 9 * SEEN**-0.3 + 4 * N**-0.34}, {"b": 0.3}),
    ("error = c - k*exp(-g*loss)", {"loss": SCORED, "error": 0.9 - 2 * np.exp(-0.8 * SCORED)}, {"c": 0.9, "g": 0.8}),
    ("((N_c/N)^(alpha_N/alpha_D) + D_c/D)^alpha_D", TABLE | {"loss": KAPLAN}, {"N_c": 6.4e13, "alpha_D": 0.103}),
]


def law(text, points=POINTS, /, **limits):
    return constrained_law(Written(text), points, limits=limits)[0]


@pytest.mark.parametrize(("text", "columns", "truth"), MADE, ids=lambda value: value if isinstance(value, str) else "")
def test_a_formula_recovers_what_made_the_points(text, columns, truth):
    points, objective = load_points(columns), "squared" if "error" in columns else "log_squared"
    estimates = fit(law(text, points), points, objective=objective, starts=256).estimates
    assert {name: estimates[name] for name in truth} == pytest.approx(truth, rel=1e-4)


def test_what_a_name_is_follows_from_where_it_stands():
    points = load_points({**TABLE, "B": np.full(36, 512.0), "alpha": np.full(36, 1.0), "width": D / 7})
    assert law("E + A*width^-a", points).inputs == ("width",)
    assert law("E + A*B^-a + N^-c", points, B=(1, 10)).inputs == ("N",)
    with pytest.raises(ScalingError, match=r"alpha is a column of the table and may be a parameter.*loss\(N, D\)"):
        law("E + A*N^-alpha", points)
    assert "alpha" in law("loss(N) = E + A*N^-alpha", points).parameter_names
    lowest = {each.name: each.lower for each in law("E + A*N^-a + B*D^b", points).parameters}
    assert lowest["a"] == 0, "the loss falls as N^-a"
    assert lowest["b"] < 0, "the loss may fall or rise as D^b"
    for text, what in {
        "E + A": "has no column",
        "loss(N, D) = E + A*N^-a": "the column 'D' and does not use it",
    }.items():
        with pytest.raises(ScalingError, match=what):
            law(text)


def test_bounds_hold_for_coefficients_and_exponents_and_tied_exponents_are_one_number():
    bounded = fit(law("E + A*N^-a + B*D^-b", a=(0.1, 0.3), A=(1.0, 200.0)), POINTS, starts=64)
    assert 0.1 <= bounded.estimates["a"] <= 0.3
    assert bounded.estimates["A"] == pytest.approx(200.0)
    rising = load_points({**TABLE, "loss": 1.7 + 400 * N**-0.34 - 300 * D**-0.3})
    negative = fit(law("E + A*N^-a + B*D^-b", rising, B=(-1e4, 1e4)), rising, objective="log_squared", starts=64)
    assert negative.estimates["B"] == pytest.approx(-300, rel=0.01)
    tied = fit(constrained(named("chinchilla"), {"alpha": "beta"}, {}), POINTS, starts=64)
    assert tied.estimates["alpha"] == tied.estimates["beta"]
    assert tied.objective == pytest.approx(fit(law("E + A*N^-b + B*D^-b"), POINTS, starts=64).objective, rel=1e-10)
    assert tied.degrees_of_freedom == 36 - 4
    assert "a" not in intervals(tied, "t"), "N_opt grows as C^1/2 whatever the points are"
    with pytest.raises(ScalingError, match="in a circle"):
        constrained(named("chinchilla"), {"alpha": "beta", "beta": "alpha"}, {})


def test_a_text_a_file_or_two_names_are_a_law(tmp_path):
    form = constrained_law(law_of("two_step"), POINTS, {}, {"alpha": "beta"}, {"task_k": (1.0, 5.0)})[0]
    assert form.tied == {"alpha": "beta"}
    assert next(each for each in form.parameters if each.name == "task_k").upper == 5.0
    theta = np.array([1.7, 400.0, 900.0, 0.3, 0.25, 0.7, 3.0, 2.8])
    loss = named("chinchilla").predict(np.array([1.7, 400.0, 900.0, 0.3, 0.3]), TABLE)
    np.testing.assert_allclose(form.predict(theta, TABLE), named("task_sigmoid").predict(theta[4:], {"loss": loss}))
    path = tmp_path / "law.yaml"
    path.write_text("formula: E + A*N^-a + B*D^-b\ncitation: Doe 2026\nbounds: {a: [0, 2]}\ntie: {a: b}\n")
    assert law_of(str(path)) == Written("E + A*N^-a + B*D^-b", "law", "Doe 2026", {"a": (0.0, 2.0)}, {"a": "b"})
    path.write_text("name: a\nfomula: E*N\n")
    with pytest.raises(ScalingError, match=r"law.yaml:2: fomula='E\*N'.*did you mean 'formula'"):
        law_of(str(path))
