"""Numbers, formulas and conditions: what they mean, a formula's exact derivative, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.errors import ScalingError
from scaling.laws.dual import Dual
from scaling.laws.formula import DEEPEST, FUNCTIONS, condition, evaluate, names, numeric, parse, parse_number

VALUES = {"N": 3.0, "D": 5.0, "a": 0.5, "train/loss": 2.0, "config.n": 4.0, "α": 0.25}

MEANINGS = {
    "N + D*a": 5.5,
    "N - D - a": -2.5,
    "N / D / a": 3 / 5 / 0.5,
    "-N^2": -9.0,
    "2^-N": 0.125,
    "N^a^2": 3**0.25,
    "N^-a * D": 5 / 3**0.5,
    "2**3": 8.0,
    "N*(D + 1)": 18.0,
    "N·D × 2 − 1": 29.0,
    "1e2 + 1_000 + .5": 1100.5,
    "`train/loss` * config.n": 8.0,
    "N^-α": 3**-0.25,
    "min(N, D, 1) + max(N, D)": 6.0,
    "pow(N, 2) + sqrt(4) + abs(-1)": 12.0,
    "log(exp(N)) + ln(1) + log10(100) + log2(8)": 8.0,
    "(N - D)^2": 4.0,
}


@pytest.mark.parametrize("text", MEANINGS)
def test_a_formula_means_what_it_says(text):
    assert float(evaluate(parse(text), VALUES)) == pytest.approx(MEANINGS[text], rel=1e-12)


DIFFERENTIABLE = [
    "E + A*N^-a",
    "(a*N + E)^2 / A",
    "exp(-a*N) * log(A + N)",
    "sqrt(A*N) - abs(a - 3)",
    "min(A*N, E) + max(a, 0.1*N)",
    "sigmoid(a*(N - E)) + tanh(a)",
    "A^a^E",
    "pow(A/N, a)",
    "log10(A) * log2(E) / a",
    "N^(a/E)",
]


@pytest.mark.parametrize("text", DIFFERENTIABLE)
def test_the_derivative_is_exact(text):
    expression, columns = parse(text), {"N": np.array([0.5, 2.0, 7.0])}
    at = {"E": 1.7, "A": 2.3, "a": 0.6}
    duals = {name: Dual(np.array([value]), {i: np.ones(1)}) for i, (name, value) in enumerate(at.items())}
    gradient = evaluate(expression, {**duals, **columns}).gradient
    for index, (name, value) in enumerate(at.items()):
        step = 1e-6 * value
        ends = [evaluate(expression, {**at, name: value + sign * step, **columns}) for sign in (1, -1)]
        slope = (np.asarray(ends[0]) - np.asarray(ends[1])) / (2 * step)
        expected = gradient.get(index, np.zeros(1))
        assert np.broadcast_to(slope, 3) == pytest.approx(np.broadcast_to(expected, 3), rel=1e-6, abs=1e-9)


REFUSED = {
    **dict.fromkeys(("", "N +"), "breaks off"),
    **dict.fromkeys(("N + * D", "(N, D)", "max(*N, D)", "N[0]", "lambda: 3", "N % D", "~N", "'N'"), "is no formula"),
    **dict.fromkeys(("(N", "N)"), "a bracket that is not closed, or not opened"),
    **dict.fromkeys(("N < 3", "N == 3"), "a comparison belongs to --where"),
    "A N^-a": "a sign between two values",
    "N (D + 1)": "a product is N*(…)",
    "sin(N)": "has no function 'sin'",
    "__import__('os')": "has no function '__import__'",
    "log": "without its argument",
    "log(N, D)": "2 arguments",
    "min(N)": "1 arguments",
    "6N": "write 6*N",
    "10M": "write 10*M",
    "N # D": "has '#'",
    "1e999": "no number",
    "(" * 250 + "N" + ")" * 250: "is no formula",
    "-" * 1999 + "N": "",
    "N" + "+N" * (DEEPEST + 1): "nests deeper",
    "N" * 5000: "characters",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_formula_is_refused_in_one_line_with_its_fix(text):
    with pytest.raises(ScalingError) as caught:
        parse(text)
    assert REFUSED[text] in str(caught.value)
    assert caught.value.fix
    assert "\n" not in str(caught.value)


@given(st.text(alphabet="NDa019.+-*/^(), eE", max_size=30) | st.text(max_size=20))
def test_any_text_is_a_formula_or_refused(text):
    try:
        expression = parse(text)
    except ScalingError:
        return
    with np.errstate(all="ignore"):
        try:
            evaluate(expression, dict.fromkeys(names(expression), 0.7))
        except (OverflowError, ZeroDivisionError):
            pytest.fail("numbers of a formula follow numpy, which does not raise")


def test_every_function_is_tested():
    tested = {name for text in (*MEANINGS, *DIFFERENTIABLE) for name in FUNCTIONS if f"{name}(" in text}
    assert tested == set(FUNCTIONS)


COLUMNS = {
    "N": np.array([1e6, 1e7, 1e8]),
    "D": np.array([1e8, 2e8, np.nan]),
    "size": np.array(["1M", "10M", "100M"], object),
    "corpus": np.array(["c4", "c4", "pile"], object),
    "val-loss": np.array([3.0, 2.0, 1.0]),
}

CONDITIONS = {
    "N>=10M": [False, True, True],
    "N<1e7": [True, False, False],
    "N = 10_000_000": [False, True, False],
    "N==1,000,000": [True, False, False],
    "N!=1e6": [False, True, True],
    "D>0": [True, True, False],
    "D!=1e8": [False, True, False],
    "D/N<=100": [True, True, False],
    "D>20*N": [True, False, False],
    "size>5M": [False, True, True],
    "corpus=c4": [True, True, False],
    "corpus!='c4'": [False, False, True],
    "val-loss<2.5": [False, True, True],
    "`val-loss`<2.5": [False, True, True],
    "log(N)>16": [False, True, True],
}


@pytest.mark.parametrize("text", CONDITIONS)
def test_conditions_choose_rows(text):
    assert condition(text, "where").mask(COLUMNS, "where").tolist() == CONDITIONS[text]


def test_a_condition_on_computed_compute_is_met_but_for_rounding():
    compute = {"C": 6 * np.array([1e7 / 3]) * 1e9}
    assert condition(f"C={compute['C'][0]:.12g}", "where").mask(compute, "where").all()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("N", "is no condition"),
        (">3", "is no condition"),
        ("1e6<N<1e8", "two comparisons"),
        ("corpus>c4", "a column of words"),
        ("M>3", "there is no column 'M'"),
        ("N>many", "'many' is no bound"),
        ("N>3 +", "breaks off"),
    ],
)
def test_what_is_no_condition_is_refused(text, what):
    with pytest.raises(ScalingError, match=what) as caught:
        condition(text, "where").mask(COLUMNS, "where")
    assert caught.value.fix


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10M", 1e7),
        ("1.1B", 1.1e9),
        ("7b", 7e9),
        ("300 k", 3e5),
        ("2T", 2e12),
        ("1,000", 1e3),
        ("1,234,567.5", 1234567.5),
        ("1_000", 1e3),
        ("1 000 000", 1e6),
        ("1e9", 1e9),
        (" -3.5 ", -3.5),
        (10**400, np.inf),
        *(
            (text, None)
            for text in ("", "many", "1.000,5", "1,5", "0,123", "12,34,567", "M", "1e9x", True, None, "r10M")
        ),
    ],
)
def test_numbers_as_people_write_them(text, value):
    assert parse_number(text) == value


def test_a_column_of_words_that_are_numbers():
    read = numeric("N", np.array(["1,000", "", "10M"], object)).tolist()
    assert read == pytest.approx([1000, np.nan, 1e7], nan_ok=True)
    with pytest.raises(ScalingError, match=r"N='1.000,5': is not a number, in row 1; write a decimal point"):
        numeric("N", np.array(["1.000,5", "1"], object))
