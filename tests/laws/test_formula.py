"""Numbers, formulas, conditions, and laws that a person writes: what they mean, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.base.errors import ScalingError
from scaling.laws import fit, intervals, named
from scaling.laws.formula import DEEPEST, condition, evaluate, names, numeric, parse, parse_number
from scaling.laws.law import Law, constrained
from scaling.laws.points import load_points
from scaling.laws.written import Written, constrained_law, law_of, read_law

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
    "sigmoid(0) + tanh(0)": 0.5,
}


@pytest.mark.parametrize("text", MEANINGS)
def test_a_formula_means_what_it_says(text):
    assert float(evaluate(parse(text), VALUES)) == pytest.approx(MEANINGS[text], rel=1e-12)


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
    "N # D": "is no formula",
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
    "corpus!='c4=<pile>'": [True, True, True],
    "val-loss<2.5": [False, True, True],
    "`val-loss`<2.5": [False, True, True],
    "log(N)>16": [False, True, True],
    "N*D=1.000000000001e14": [True, False, False],
}


@pytest.mark.parametrize("text", CONDITIONS)
def test_conditions_choose_rows(text):
    assert condition(text, "where").mask(COLUMNS, "where").tolist() == CONDITIONS[text]


NO_CONDITIONS = {
    **dict.fromkeys(("N", ">3"), "is no condition"),
    "1e6<N<1e8": "two comparisons",
    "corpus>c4": "a column of words",
    "M>3": "there is no column 'M'",
    "N>many": "'many' is no bound",
    "N>3 +": "breaks off",
}


@pytest.mark.parametrize("text", NO_CONDITIONS)
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(ScalingError, match=NO_CONDITIONS[text]) as caught:
        condition(text, "where").mask(COLUMNS, "where")
    assert caught.value.fix


NUMBERS = {
    **dict(zip(("10M", "2.01M", "7b", "300 k", "2T", "1,000", "1_000"), (1e7, 2.01e6, 7e9, 3e5, 2e12, 1e3, 1e3))),
    **dict(zip(("1,234,567.5", "1 000 000", "1e9", " -3.5 ", 10**400), (1234567.5, 1e6, 1e9, -3.5, np.inf))),
    **dict.fromkeys(("", "many", "1.000,5", "1,5", "0,123", "12,34,567", "M", "1e9x", "r10M", True, None)),
}


@pytest.mark.parametrize("text", NUMBERS, ids=lambda text: str(text)[:12])
def test_numbers_as_people_write_them(text):
    assert parse_number(text) == NUMBERS[text]


def test_a_column_of_words_that_are_numbers():
    read = numeric("N", np.array(["1,000", "", "10M"], object)).tolist()
    assert read == pytest.approx([1000, np.nan, 1e7], nan_ok=True)
    with pytest.raises(ScalingError, match=r"N='1.000,5': is not a number, in row 1; write a decimal point"):
        numeric("N", np.array(["1.000,5", "1"], object))


# Laws written as formulas: the roles of their parameters, the optimum of a built-in law, ties and bounds.

RNG = np.random.default_rng(5)
N, D = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e6, 1e9, 6), np.geomspace(1e8, 1e11, 6)))
NOISE = 1 + 0.002 * RNG.standard_normal(36)
LOSS = (1.7 + 400 * N**-0.34 + 900 * D**-0.3) * NOISE
TABLE = {"N": N, "D": D, "loss": LOSS}
POINTS = load_points(TABLE)
CHINCHILLA = "E + A*N^-alpha + B*D^-beta"


def law(text, points=POINTS, /, **limits):
    return constrained_law(Written(text), points, limits=limits)[0]


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("L(N, D) = E + A/N^alpha + B/D^beta", "chinchilla"),
        ("((N_c/N)^(alpha_N/alpha_D) + D_c/D)^alpha_D", "kaplan_n_d"),
        ("E + (a*M^eta + b*M^-eta)*C^-eta", "over_training"),
    ],
)
def test_a_law_of_the_papers_written_as_a_formula_has_its_optimum(text, other):
    points = load_points(TABLE, rename={"C": "6ND", "M": "D/N"})
    written, built_in = fit(law(text, points), points), fit(other, points)
    assert written.objective == pytest.approx(built_in.objective, rel=1e-8)


def test_formulas_recover_what_made_the_points():
    rows = np.geomspace(1e6, 1e10, 25)
    noise = 1 + 0.001 * np.random.default_rng(2).standard_normal(25)
    shifted = load_points({"N": rows, "loss": (1 + 300 * (rows + 3e7) ** -0.3) * noise})
    estimates = fit(law("E + A*(N + N0)^-a", shifted), shifted).estimates
    assert estimates["N0"] == pytest.approx(3e7, rel=0.1)
    falling = load_points({"N": rows, "loss": (6 - 0.18 * np.log(rows)) * noise})
    assert fit(law("p - q*log(N)", falling), falling).estimates["q"] == pytest.approx(0.18, rel=0.02)
    decaying = load_points({"N": rows, "loss": 2 + 1.5 * np.exp(-rows / 3e8)})
    assert fit(law("E + A*exp(-k*N)", decaying), decaying).estimates["k"] == pytest.approx(1 / 3e8, rel=1e-3)
    repeated = load_points(
        {**TABLE, "U": np.minimum(D, 1e10), "loss": 1.7 + 900 * np.minimum(D, 1e10) ** -0.3 + 400 * N**-0.34}
    )
    estimates = fit(law("E + A*N^-a + B*min(D, U)^-b", repeated), repeated).estimates
    assert estimates["b"] == pytest.approx(0.3, rel=1e-6)
    loss = np.linspace(2, 4, 30)
    task = load_points({"loss": loss, "error": 0.9 - 2 * np.exp(-0.8 * loss)})
    estimates = fit(law("error = eps - k*exp(-g*loss)", task), task, objective="squared").estimates
    assert [estimates[name] for name in ("eps", "k", "g")] == pytest.approx([0.9, 2, 0.8], rel=1e-5)


def test_what_a_name_is_follows_from_where_it_stands():
    points = load_points({**TABLE, "B": np.full(36, 512.0), "alpha": np.full(36, 1.0), "width": D / 7})
    assert law("E + A*N^-a + B*D^-b", points).inputs == ("N", "D")
    assert law("E + A*width^-a", points).inputs == ("width",)
    assert law("E + A*B^-a", points).inputs == ("B",)
    assert law("E + A*B^-a + N^-c", points, B=(1, 10)).inputs == ("N",)
    with pytest.raises(ScalingError, match=r"alpha is a column of the table and may be a parameter.*loss\(N, D\)"):
        law("E + A*N^-alpha", points)
    assert "alpha" in law("loss(N) = E + A*N^-alpha", points).parameter_names
    lowest = {each.name: each.lower for each in law("E + A*N^-a + B*D^b").parameters}
    assert lowest["a"] == 0, "the loss falls as N^-a"
    assert lowest["b"] < 0, "the loss may fall or rise as D^b"
    with pytest.raises(ScalingError, match="there is no column 'U'"):
        law("E + A*U^-a")


NO_LAWS = {
    "3*N": "has no parameter",
    "E + A": "has no column",
    "E*loss + A": "predicts loss from itself",
    "loss(N, D) = E + A*N^-a": "lists the column 'D' and does not use it",
    "E + A*N^": "breaks off",
    "E + A*sin(N)": "has no function 'sin'",
}


@pytest.mark.parametrize("text", NO_LAWS)
def test_what_is_no_law_is_refused(text):
    with pytest.raises(ScalingError, match=NO_LAWS[text]) as caught:
        law(text)
    assert caught.value.fix


def test_bounds_hold_for_coefficients_floors_and_exponents():
    bounded = fit(law("E + A*N^-a + B*D^-b", a=(0.1, 0.3), A=(1.0, 200.0)), POINTS)
    assert 0.1 <= bounded.estimates["a"] <= 0.3
    assert bounded.estimates["A"] == pytest.approx(200.0)
    free = fit("chinchilla", POINTS).objective
    loose = fit(constrained(named("chinchilla"), {}, {"A": (1.0, 1e6), "alpha": (0.0, 2.0)}), POINTS)
    assert loose.objective == pytest.approx(free, rel=1e-9)
    rising = load_points({**TABLE, "loss": (1.7 + 400 * N**-0.34 - 300 * D**-0.3) * NOISE})
    negative = fit(law("E + A*N^-a + B*D^-b", rising, B=(-1e4, 1e4)), rising)
    assert negative.estimates["B"] == pytest.approx(-300, rel=0.3)
    for limits in ({"a": (2, 1)}, {"c": (0, 1)}):
        with pytest.raises(ScalingError, match=r"are no bounds|is not a parameter of the law"):
            law("E + A*N^-a", **limits)


def test_tied_exponents_are_one_number_with_one_interval():
    tied = fit(constrained(named("chinchilla"), {"alpha": "beta"}, {}), POINTS)
    assert tied.estimates["alpha"] == tied.estimates["beta"]
    written = fit(law("E + A*N^-b + B*D^-b"), POINTS)
    assert tied.objective == pytest.approx(written.objective, rel=1e-10)
    assert tied.degrees_of_freedom == 36 - 4
    assert "a" not in intervals(tied), "N_opt grows as C^1/2 whatever the points are"
    with pytest.raises(ScalingError, match="alpha: is tied to beta"):
        fit(tied.form, POINTS, fixed={"alpha": 0.3})
    for ties, what in (
        ({"alpha": "A"}, "different kinds"),
        ({"alpha": "gamma"}, "is not a parameter"),
        ({"alpha": "beta", "beta": "alpha"}, "in a circle"),
        ({"alpha": "alpha"}, "in a circle"),
    ):
        with pytest.raises(ScalingError, match=what):
            constrained(named("chinchilla"), ties, {})


def test_a_yaml_file_holds_a_law_with_its_citation(tmp_path):
    path = tmp_path / "law.yaml"
    path.write_text("formula: E + A*N^-a + B*D^-b\ncitation: Doe 2026\nbounds: {a: [0, 2]}\ntie: {a: b}\n")
    assert read_law(path) == Written("E + A*N^-a + B*D^-b", "law", "Doe 2026", {"a": (0.0, 2.0)}, {"a": "b"})
    for text, what in (
        ("fomula: E*N", "law.yaml:1: fomula='E*N': a law has no such key; did you mean 'formula'?"),
        ("name: x", "has no formula"),
        ("formula: E*N\nbounds: {a: 2}", "law.yaml:2: bounds"),
        ("formula: 3", "law.yaml:1: formula=3: expected text"),
        ("formula: E*N\ntie: [a]", "law.yaml:2: tie"),
    ):
        path.write_text(text + "\n")
        with pytest.raises(ScalingError) as caught:
            read_law(path)
        assert what in str(caught.value)


def test_a_text_names_a_law_or_writes_one():
    assert law_of("chinchilla") is named("chinchilla")
    assert [law_of(text) for text in ("E+A", "L = E")] == [Written("E+A"), Written("L = E")]
    with pytest.raises(ScalingError, match="there is no law 'chinchila'; did you mean 'chinchilla'"):
        law_of("chinchila")


def test_both_steps_of_a_law_are_tied_and_bounded_under_their_own_names():
    two_steps = law_of("two_step")
    assert isinstance(two_steps, Law)
    assert [step.name for step in two_steps.steps] == ["chinchilla", "task_sigmoid"]
    form = constrained(two_steps, {"alpha": "beta"}, {"task_k": (1.0, 5.0)})
    assert form.tied == {"alpha": "beta"}
    assert next(each for each in form.parameters if each.name == "task_k").upper == 5.0
    columns = {"N": np.array([1e8, 1e9]), "D": np.array([1e9, 1e10])}
    theta = np.array([1.7, 400.0, 900.0, 0.3, 0.25, 0.7, 3.0, 2.8])
    loss = named("chinchilla").predict(np.array([1.7, 400.0, 900.0, 0.3, 0.3]), columns)
    score = named("task_sigmoid").predict(theta[4:], {"loss": loss})
    np.testing.assert_allclose(form.predict(theta, columns), score)
