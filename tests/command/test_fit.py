"""`scaling fit` from outside: what it prints, what its JSON holds, and that bad input is one line and code 2."""

import json

import numpy as np
import pytest

from scaling.cli import main

TRUTH = {"E": 1.7, "A": 400.0, "B": 900.0, "alpha": 0.34, "beta": 0.3}


def loss(N, D):
    return TRUTH["E"] + TRUTH["A"] * N ** -TRUTH["alpha"] + TRUTH["B"] * D ** -TRUTH["beta"]


def write(path, columns):
    rows = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def columns():
    N, D = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e6, 1e9, 6), np.geomspace(1e8, 1e11, 6)))
    noise = 1 + 0.002 * np.random.default_rng(1).standard_normal(36)
    return {"run": [f"r{i}" for i in range(36)], "params": N, "tokens": D, "final": loss(N, D) * noise}


MAP = ["--map", "N=params", "D=tokens", "loss=final"]


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "points.csv", columns())


def fitted(capsys, *words):
    assert main(["fit", *words, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def test_json_holds_what_others_rely_on(table, capsys):
    document = fitted(capsys, table, *MAP)
    assert document["law"] == "chinchilla"
    assert set(document["estimates"]) == set(TRUTH)
    assert document["objective"] > 0
    assert 0 < document["starts_agreeing"] <= 1
    assert document["held_out"] is None
    for name, value in TRUTH.items():
        assert document["estimates"][name] == pytest.approx(value, rel=0.3)
        interval = document["intervals"][name]
        assert interval["low"] < document["estimates"][name] < interval["high"]
        assert interval["low"] <= value <= interval["high"]
    counts = document["points"]
    assert counts["used"] + counts["excluded"] + counts["failed"] == counts["planned"] == 36


def test_the_held_out_test_and_the_predictions(table, capsys):
    words = [table, *MAP, "--hold-out", "N>=9e8", "--target", "N=7e9", "D=1.4e11", "--target", "N=1e9", "D=1e12"]
    document = fitted(capsys, *words)
    tested = document["held_out"]
    assert tested["n"] == 6
    assert tested["largest_relative_error"] < 0.02
    intervals = {"interval_mean", "interval_run", "interval", "covered", "decades_outside", "tested"}
    assert {"run", "N", "D", "loss", "predicted", "relative_error"} | intervals == set(tested["points"][0])
    assert document["points"]["count"] == "36 used (30 fitted, 6 held out) + 0 excluded + 0 failed = 36 planned"
    for prediction, (N, D) in zip(document["predictions"], ((7e9, 1.4e11), (1e9, 1e12)), strict=True):
        assert prediction["loss"] == pytest.approx(loss(N, D), rel=0.01)
        assert prediction["interval_mean"]["low"] <= loss(N, D) <= prediction["interval_mean"]["high"]
    largest = fitted(capsys, table, *MAP, "--hold-out", "N", "--intervals", "none")
    assert largest["held_out"]["n"] == 6
    assert largest["intervals"] == {}


def test_a_budget_asks_for_the_best_run(table, capsys):
    (best,) = fitted(capsys, table, *MAP, "--target", "C=1e22", "--intervals", "t")["optima"]
    a, b = TRUTH["alpha"], TRUTH["beta"]
    size = (a * TRUTH["A"] / (b * TRUTH["B"])) ** (1 / (a + b)) * (1e22 / 6) ** (b / (a + b))
    assert best["N"]["low"] <= size <= best["N"]["high"]
    assert best["N"]["estimate"] * best["D"]["estimate"] == pytest.approx(1e22 / 6, rel=1e-6)
    (plain,) = fitted(capsys, table, *MAP, "--target", "C=1e22", "--intervals", "none")["optima"]
    assert plain["N"]["estimate"] == pytest.approx(best["N"]["estimate"], rel=1e-6)


def test_the_report_prints_the_count_the_estimates_and_the_doubts(table, capsys):
    assert main(["fit", table, *MAP, "--hold-out", "N", "--target", "N=7e9", "D=1.4e11"]) == 0
    out = capsys.readouterr().out
    for text in ("36 used (30 fitted, 6 held out)", "alpha", "95% interval", "held out", "at N", "starts agree"):
        assert text in out
    assert "How is N (parameters) counted?" in out


def test_excluded_and_failed_runs_are_counted(tmp_path, capsys):
    runs = columns()
    ends = ["finished"] * 33 + ["diverged", "pruned", "failed"]
    losses = [value if end == "finished" else "" for value, end in zip(runs["final"], ends, strict=True)]
    path = write(tmp_path / "points.csv", {**runs, "final": losses, "status": ends})
    assert main(["fit", path, *MAP, "--intervals", "t"]) == 0
    assert "33 used + 2 excluded + 1 failed = 36 planned" in capsys.readouterr().out


def test_kinds_of_points_are_never_pooled_in_silence(tmp_path, capsys):
    path = write(tmp_path / "points.csv", {**columns(), "corpus": ["c4", "pile"] * 18})
    assert fitted(capsys, path, *MAP, "--intervals", "none")["points"]["pooled"] == {"corpus": 2}
    assert main(["fit", path, *MAP, "--intervals", "none"]) == 0
    assert "! 2 values of corpus are pooled as if they were one" in capsys.readouterr().out
    one = fitted(capsys, path, *MAP, "--intervals", "none", "--where", "corpus=c4")["points"]
    assert one["pooled"] == {}
    assert one["planned"] == 18


def test_a_study_folder_is_read(table, tmp_path, capsys):
    assert fitted(capsys, str(tmp_path), *MAP, "--intervals", "none")["points"]["source"] == table


def test_compute_by_formula_and_parameters_held(table, capsys):
    document = fitted(capsys, table, *MAP, "C=6ND", "--law", "power_law_floor_c", "--fix", "E=1.7", "--intervals", "t")
    assert document["fixed"] == {"E": 1.7}
    assert document["estimates"]["E"] == 1.7
    assert document["points"]["definitions"]["C"] == "6ND"


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("log_absolute", "absolute")]


@pytest.mark.parametrize("objective", ["log_squared", "squared", "huber", *SLOW])
def test_every_objective_fits(table, capsys, objective):
    document = fitted(capsys, table, *MAP, "--objective", objective, "--intervals", "none", "--starts", "200")
    assert document["estimates"]["alpha"] == pytest.approx(0.34, rel=0.3)


def test_figures_are_drawn_in_every_format(table, tmp_path, capsys):
    words = ["--map", "loss=final", "N=params", "--law", "power_law_floor_n", "--figures", str(tmp_path / "figures")]
    document = fitted(capsys, table, *words, "--intervals", "t")
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    for suffix in ("pdf", "svg", "png", "html"):
        assert {f"loss_against_N.{suffix}", f"residuals.{suffix}"} <= names
    assert len(document["figures"]) == len(names)


@pytest.mark.parametrize("law", ["isoflop_parabola", "isoflop_akima"])
def test_isoflop_minima(tmp_path, capsys, law):
    C = np.repeat(np.geomspace(1e18, 1e21, 4), 15)
    N = np.tile(np.geomspace(0.1, 10, 15), 4) * 0.1 * C**0.5
    path = write(tmp_path / "iso.csv", {"C": C, "N": N, "D": C / (6 * N), "loss": loss(N, C / (6 * N))})
    document = fitted(capsys, path, "--law", law)
    exact = TRUTH["beta"] / (TRUTH["alpha"] + TRUTH["beta"])
    assert document["estimates"]["a"] == pytest.approx(exact, abs=0.02)
    assert document["estimates"]["a"] + document["estimates"]["b"] == pytest.approx(1, abs=0.01)
    assert len(document["minima"]) == 4
    assert main(["fit", path, "--law", law]) == 0
    assert "60 used + 0 excluded + 0 failed = 60 planned" in capsys.readouterr().out


def test_the_envelope(tmp_path, capsys):
    N = np.repeat(np.geomspace(1e7, 1e10, 12), 30)
    D = N * np.tile(np.geomspace(1, 300, 30), 12)
    runs = {"run": [f"n{n:.0f}" for n in N], "N": N, "D": D, "C": 6 * N * D, "loss": loss(N, D)}
    document = fitted(capsys, write(tmp_path / "curves.csv", runs), "--law", "envelope")
    assert document["estimates"]["a"] == pytest.approx(TRUTH["beta"] / (TRUTH["alpha"] + TRUTH["beta"]), abs=0.05)


def bad(folder):
    """Words that are refused, with what the line says. Every 'bad input' of the laws has a line here."""
    runs = columns()
    few = {name: values[:22:7] for name, values in runs.items()}
    mixed = {**runs, "N_definition": ["total"] * 18 + ["non-embedding"] * 18}
    tables = {
        "few": few,
        "constant": {**runs, "tokens": [1e9] * 36},
        "negative": {**runs, "final": [-1.0, *runs["final"][1:]]},
        "missing": {**runs, "final": ["", *runs["final"][1:]]},
        "mixed": mixed,
        "tokenizers": {**runs, "tokenizer": ["a"] * 18 + ["b"] * 18},
        "twice": {**runs, "run": ["same"] * 36, "tokens": [1e9] * 36},
        "good": runs,
        "excluded": {**runs, "status": ["diverged"] * 36},
    }
    path = {name: write(folder / f"{name}.csv", table) for name, table in tables.items()}
    (folder / "unreadable.parquet").write_text("no")
    return [
        ([path["few"], *MAP], "4 distinct scales (N, D) cannot determine 5 parameters"),
        ([path["constant"], *MAP], "D=1000000000.0: has one value"),
        ([path["negative"], *MAP], "loss=-1.0: must be positive"),
        ([path["missing"], *MAP], "1 of 36 values are missing"),
        ([path["mixed"], *MAP], "mixes 'non-embedding' and 'total'"),
        ([path["tokenizers"], *MAP], "mixes 'a' and 'b'"),
        ([path["twice"], *MAP], "more than once"),
        ([path["excluded"], *MAP], "0 used + 36 excluded + 0 failed = 36 planned"),
        ([path["good"]], "there is no column 'N' (parameters)"),
        ([path["good"], "--map", "N=param"], "did you mean 'params'?"),
        ([path["good"], *MAP, "--law", "data_constrained"], "there is no column 'U' (unique training tokens)"),
        ([path["good"], *MAP, "--law", "chinchila"], "did you mean 'chinchilla'?"),
        ([path["good"], *MAP, "--law", "isoflop"], "did you mean 'isoflop_akima'?"),
        ([path["good"], *MAP, "--law", "isoflop_akima"], "there is no column 'C'"),
        ([path["good"], "--map", "N"], "is not NAME=VALUE"),
        ([path["good"], *MAP, "--fix", "E=low"], "E='low': is not a number"),
        ([path["good"], *MAP, "--fix", "gamma=1"], "is not a parameter of the law"),
        ([path["good"], *MAP, "--hold-out", "N>1e99"], "holds out no run"),
        ([path["good"], *MAP, "--hold-out", "N>0"], "holds out every run"),
        ([path["good"], *MAP, "--hold-out", "N>big"], "is no bound"),
        ([path["good"], *MAP, "--target", "N=1e9"], "chinchilla needs N, D; add D=…"),
        ([path["good"], *MAP, "--target", "N=1e9", "DD=1"], "chinchilla has no column 'DD'"),
        ([path["good"], *MAP, "--cluster", "runs"], "did you mean 'run'?"),
        ([path["good"], *MAP, "--level", "95"], "level=95.0"),
        ([path["good"], *MAP, "--delta", "0"], "delta=0.0: must be positive"),
        ([path["good"], *MAP, "--starts", "0"], "starts=0: must be positive"),
        ([path["good"], *MAP, "--objective", "hubr"], "invalid choice: 'hubr'"),
        ([str(folder / "unreadable.parquet")], "is not parquet"),
        ([str(folder / "nothing.csv")], "there is no such file"),
        ([str(folder)], "there is no such file"),
    ]


def test_bad_input_is_one_line_and_code_two(tmp_path, capsys):
    for words, said in bad(tmp_path):
        assert main(["fit", *words]) == 2, words
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("scaling: ")
        assert err.count("\n") == 1, err
        assert said in err, (said, err)


def refusal(capsys, *words):
    """The one line that a command is refused with."""
    assert main(["fit", *map(str, words)]) == 2, words
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("scaling: ")
    assert err.count("\n") == 1, err
    return err


APPROACHES = ("isoflop_parabola", "isoflop_akima", "envelope")
OF_LAWS = {
    "hold-out": ["N>=1e9"],
    "target": ["N=1e9", "D=1e10"],
    "fix": ["E=1"],
    "tie": ["alpha=beta"],
    "bounds": ["alpha=0:1"],
    "objective": ["squared"],
    "delta": ["1e-2"],
    "intervals": ["t"],
    "level": ["0.9"],
    "cluster": ["run"],
    "weight": ["N"],
    "starts": ["100"],
}


@pytest.mark.parametrize("law", APPROACHES)
@pytest.mark.parametrize("option", OF_LAWS)
def test_an_option_that_an_approach_cannot_use_is_refused(table, capsys, law, option):
    line = refusal(capsys, table, *MAP, "C=6ND", "--law", law, f"--{option}", *OF_LAWS[option])
    assert option in line
    assert f"{law} cannot use it; leave it out" in line


def test_an_option_that_a_law_cannot_use_is_refused(table, capsys):
    assert "chinchilla cannot use it" in refusal(capsys, table, *MAP, "--noise", "0.01")
    assert "the objective squared has none" in refusal(capsys, table, *MAP, "--objective", "squared", "--delta", "0.1")
    assert "no intervals are asked for" in refusal(capsys, table, *MAP, "--intervals", "none", "--level", "0.9")
    assert "--json has none" in refusal(capsys, table, *MAP, "--json", "--format", "latex")
    assert "add --cluster run" in refusal(capsys, table, *MAP, "--intervals", "bootstrap_run")
    assert "without --noise" in refusal(capsys, table, *MAP, "C=6ND", "--law", "isoflop_akima", "--seed", "1")
    assert "envelope cannot use it" in refusal(capsys, table, *MAP, "C=6ND", "--law", "envelope", "--seed", "1")


def test_every_option_is_declared_used_or_of_the_table():
    import argparse

    from scaling.api.fits import USED_BY
    from scaling.command import fit

    parser = argparse.ArgumentParser()
    fit.add_arguments(parser)
    options = {action.dest for action in parser._actions} - {"help"}
    of_every_kind = {"points", "law", "map", "where", "define", "pool", "best_by", "figures", "json", "format"}
    assert options == of_every_kind | set(USED_BY)


VALUES = [
    (["--level", "7"], "level=7.0: is not between 0 and 1"),
    (["--level", "nan"], "is not between 0 and 1"),
    (["--delta", "-1"], "delta=-1.0: must be positive"),
    (["--delta", "inf"], "must be positive"),
    (["--starts", "1e9"], "invalid int value"),
    (["--starts", "1000000000"], "starts=1000000000: is not 1 to 100,000"),
    (["--seed", "-1"], "seed=-1"),
    (["--law", ""], "is no law"),
    (["--fix", "A=-1"], "is outside its bounds"),
    (["--fix", "E=nan"], "is not a finite number"),
    (["--fix", "E=10"], "is a floor of the loss, and the lowest loss is"),
    (["--fix", "E=1", "A=1", "B=1", "alpha=.3", "beta=.3"], "none is left to fit"),
    (["--target", "N=0", "D=1e9"], "target N=0.0: must be positive"),
    (["--target", "N=inf", "D=1e9"], "is not a finite number"),
    (["--pool", "foo"], "there is no column 'foo'"),
    (["--best-by", "foo"], "there is no column 'foo'"),
    (["--weight", "foo"], "there is no column 'foo'"),
    (["--weight", "run"], "run='r0': is not a number"),
    (["--where", "foo=1"], "there is no column 'foo'"),
    (["--where", "N>1e99"], "no row has N>1e99"),
    (["--define", "foo=bar"], "is no column and no question of the checklist"),
    (["--hold-out", "foo"], "there is no column 'foo'"),
    (["--tie", "alpha=gamma"], "is not a parameter of the law"),
    (["--bounds", "alpha=1"], "is not LOW:HIGH"),
    (["--bounds", "gamma=0:1"], "is not a parameter of the law"),
    (["--map", "C=6*N*Q"], "there is no column 'Q'"),
    (["--law", "E + A*N^"], "breaks off"),
    (["--law", "nothing.yaml"], "No such file"),
    (["--fix", "E=1", "--fix", "E=2"], "fix E: is given twice: 1 and 2"),
    (["--hold-out", "N", "--hold-out", "D"], "hold-out: is given twice"),
]


@pytest.mark.parametrize(("words", "what"), VALUES)
def test_values_are_checked(table, capsys, words, what):
    extra = MAP if words[0] != "--map" else [*MAP, *words[1:]]
    assert what in refusal(capsys, table, *extra, *(words if words[0] != "--map" else []))


def test_repeated_options_add_up(table, capsys):
    words = ["--map", "N=params", "--map", "D=tokens", "--map", "loss=final", "--intervals", "none"]
    chosen = fitted(capsys, table, *words, "--where", "N>=2e6", "--where", "D<=5e10", "N<9e8")
    assert chosen["points"]["used"] == 4 * 5
    held = fitted(capsys, table, *words, "--fix", "E=1.7", "--fix", "alpha=0.34")
    assert held["fixed"] == {"E": 1.7, "alpha": 0.34}
    stated = fitted(capsys, table, *words, "--define", "N=total", "--define", "D=unique")
    assert stated["points"]["definitions"] == {"N": "total", "D": "unique"}


def test_options_of_one_kind_of_definition_add_up(tmp_path, capsys):
    halves = {"tokenizer": ["a"] * 18 + ["b"] * 18, "validation": ["x", "y"] * 18}
    path = write(tmp_path / "points.csv", {**columns(), **halves})
    words = [path, *MAP, "--intervals", "none", "--pool", "tokenizer", "--pool", "validation"]
    assert fitted(capsys, *words)["points"]["definitions"] == {"tokenizer": "a or b", "validation": "x or y"}


def doubtful(kind):
    """A table of each kind that was fitted to nonsense, with the law it is fitted by and what the line says."""
    runs = columns()
    N, D, L = (np.array(runs[name]) for name in ("params", "tokens", "final"))
    line = np.geomspace(1e7, 1e10, 20)
    noise = 1 + 0.002 * np.random.default_rng(4).standard_normal(20)
    return {
        "losses that rise": ("chinchilla", {"final": L[::-1]}, "the loss rises with N and D"),
        "a rising power law": ("power_law_n", {"final": N**0.1}, "the loss rises with N"),
        "a loss of zero": ("chinchilla", {"final": [0, *L[1:]]}, "loss=0.0: must be positive"),
        "a negative loss": ("chinchilla", {"final": [-1, *L[1:]]}, "correct 1 of 36 rows"),
        "a loss of nan": ("chinchilla", {"final": ["nan", *L[1:]]}, "1 of 36 values are missing or not finite"),
        "an infinite loss": ("chinchilla", {"final": ["inf", *L[1:]]}, "1 of 36 values are missing or not finite"),
        "compute of zero": ("power_law_c", {"C": [0, *(6 * N * D)[1:]]}, "C=0.0: must be positive"),
        "a number beyond floats": ("chinchilla", {"params": [10**400, *N[1:]]}, "not finite"),
        "constant losses": ("chinchilla", {"final": [3.0] * 36}, "loss=3.0: has one value"),
        "one ratio": (
            "chinchilla",
            {"params": line, "tokens": 20 * line, "final": loss(line, 20 * line) * noise, "run": range(20)},
            "all 20 points lie on D = 20 N: chinchilla is not identified",
        ),
        "one curve": (
            "kaplan_n_d",
            {"params": line, "tokens": 1e5 * line**0.7, "final": loss(line, 1e5 * line**0.7) * noise, "run": range(20)},
            "lie on D ∝ N^0.7",
        ),
        "perplexity": ("chinchilla", {"final": np.exp(2 * L)}, "write --define loss=perplexity to convert it"),
        "a decimal comma": ("chinchilla", {"params": ['"1.000,5"'] * 36}, "decimal comma"),
    }[kind], runs


KINDS = [
    *("losses that rise", "a rising power law", "a loss of zero", "a negative loss", "a loss of nan"),
    *("an infinite loss", "compute of zero", "a number beyond floats", "constant losses", "one ratio", "one curve"),
    *("perplexity", "a decimal comma"),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", KINDS)
def test_nonsense_is_one_line_at_once(tmp_path, capsys, kind):
    import time

    (law, changed, what), runs = doubtful(kind)
    path = write(tmp_path / "points.csv", {**({} if "run" in changed else runs), **changed})
    begun = time.process_time()
    assert what in refusal(capsys, path, *MAP, "--law", law)
    assert time.process_time() - begun < 2


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["one outlier", "huge ranges", "other units", "two columns alike", "few points"])
def test_odd_points_are_fitted_without_a_warning(tmp_path, capsys, kind):
    runs = columns()
    if kind == "one outlier":
        runs["final"] = [100 * runs["final"][0], *runs["final"][1:]]
    elif kind == "huge ranges":
        runs["params"], runs["tokens"] = runs["params"] * 1e150, runs["tokens"] * 1e-120
    elif kind == "other units":
        runs["params"], runs["tokens"] = runs["params"] / 1e6, runs["tokens"] / 1e9
    elif kind == "two columns alike":
        runs["copy"] = runs["params"]
    else:
        runs = {name: list(column)[:36:5] for name, column in runs.items()}
    path = write(tmp_path / "points.csv", runs)
    assert main(["fit", path, *MAP]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "chinchilla" in out
    assert ("none is identified" in out) == (kind == "few points")


def test_budgets_that_follow_each_other_closely_are_not_chained(tmp_path, capsys):
    C = np.repeat(1e18 * 1.049 ** np.arange(8), 9)
    N = np.tile(np.geomspace(0.1, 10, 9), 8) * 0.1 * C**0.5
    valleys = 2 + 1e3 * C**-0.15 + 0.05 * np.log(N / (0.1 * C**0.5)) ** 2
    path = write(tmp_path / "points.csv", {"C": C, "N": N, "D": C / (6 * N), "loss": valleys})
    document = fitted(capsys, path, "--law", "isoflop_parabola")
    assert [minimum["C"] for minimum in document["minima"]] == pytest.approx(np.unique(C))
    assert document["estimates"]["a"] == pytest.approx(0.5, abs=1e-6)


FORMULA = "E + A*N^-alpha + B*D^-beta"


def test_a_law_as_a_formula_is_fitted_tested_and_drawn_like_any(table, tmp_path, capsys):
    words = [table, *MAP, "--hold-out", "N>=9e8", "--target", "C=1e22"]
    built_in = fitted(capsys, *words)
    written = fitted(capsys, *words, "--law", FORMULA, "--bounds", "alpha=0:2")
    assert written["law"] == "formula"
    assert written["formula"] == f"loss(N, D) = {FORMULA}"
    for key in ("estimates", "objective", "starts_agreeing"):
        assert written[key] == built_in[key]
    for key in ("held_out", "optima"):
        assert json.dumps(written[key]) == json.dumps(built_in[key])
    (tmp_path / "mine.yaml").write_text(f"formula: {FORMULA}\ncitation: Doe 2026\nbounds: {{alpha: [0, 2]}}\n")
    cited = fitted(capsys, *words, "--law", str(tmp_path / "mine.yaml"))
    assert (cited["law"], cited["citation"]) == ("mine", "Doe 2026")
    assert cited["estimates"] == written["estimates"]
    words = ["--law", "E + A*N^-a", "--map", "loss=final", "N=params", "--intervals", "t"]
    drawn = fitted(capsys, table, *words, "--figures", str(tmp_path / "figures"))
    assert {"loss_against_N.pdf", "residuals.html"} <= {path.rsplit("/", 1)[1] for path in drawn["figures"]}


def test_tied_parameters(table, capsys):
    document = fitted(capsys, table, *MAP, "--tie", "alpha=beta")
    assert document["tied"] == {"alpha": "beta"}
    assert document["estimates"]["alpha"] == document["estimates"]["beta"]
    assert document["intervals"]["alpha"] == document["intervals"]["beta"]
    assert main(["fit", table, *MAP, "--tie", "alpha=beta"]) == 0
    assert "alpha = beta" in capsys.readouterr().out


def test_weights_count(tmp_path, capsys):
    """A run of half the weight twice is a run; one of almost none is left out."""
    runs = columns()
    wild = [100 * runs["final"][0], *runs["final"][1:]]
    path = write(tmp_path / "points.csv", {**runs, "final": wild, "trust": [1e-12, *[1] * 35]})
    words = ["--intervals", "none", "--objective", "log_squared"]
    weighted = fitted(capsys, path, *MAP, *words, "--weight", "trust")["estimates"]
    without = fitted(capsys, path, *MAP, *words, "--where", "run!=r0")["estimates"]
    assert weighted == pytest.approx(without, rel=1e-4)
    path = write(tmp_path / "points.csv", {**runs, "trust": [0, *[1] * 35]})
    assert "trust=0.0: is no weight" in refusal(capsys, path, *MAP, "--weight", "trust")


def test_the_best_of_a_sweep_by_group(tmp_path, capsys):
    runs = columns()
    N, D, L = (np.repeat(runs[name], 3) for name in ("params", "tokens", "final"))
    rate = np.tile([1e-4, 1e-3, 1e-2], 36)
    path = write(tmp_path / "sweep.csv", {"N": N, "D": D, "lr": rate, "loss": L * np.where(rate == 1e-3, 1, 1.05)})
    best = fitted(capsys, path, "--best-by", "N", "D", "--intervals", "none")
    assert best["points"]["count"] == "36 used + 72 excluded + 0 failed = 108 planned"
    assert best["estimates"]["alpha"] == pytest.approx(TRUTH["alpha"], rel=0.1)


def test_a_wandb_export_is_read_as_it_is(tmp_path, capsys):
    runs = columns()
    states = ["finished", "FINISHED", "Completed", "crashed", "killed", "running"] * 6
    done = [state.lower() in ("finished", "completed") for state in states]
    table = {
        "Name": [f"run-{i}" for i in range(36)],
        "State": states,
        "config.params": runs["params"] + 5e5,
        "config.embedding": [5e5] * 36,
        "tokens": runs["tokens"],
        "val/loss": [value if ended else "" for value, ended in zip(runs["final"], done, strict=True)],
    }
    path = write(tmp_path / "export.csv", table)
    names = ["--map", "N=config.params-config.embedding", "D=tokens", "loss=val/loss"]
    document = fitted(capsys, path, *names, "--intervals", "none")
    assert document["points"]["count"] == "18 used + 0 excluded + 18 failed = 36 planned"
    assert document["points"]["definitions"]["N"] == "config.params-config.embedding"
    assert document["points"]["pooled"] == {}
    assert document["estimates"]["alpha"] == pytest.approx(TRUTH["alpha"], rel=0.1)
    line = refusal(capsys, path, "--map", "N=config.params", "D=tokens", "loss=val/los")
    assert "did you mean 'val/loss'?" in line


def test_tables_with_tabs_records_and_people_s_numbers(tmp_path, capsys):
    runs = columns()
    N, D, L = runs["params"].round(), runs["tokens"].round(), runs["final"]
    plain = fitted(capsys, write(tmp_path / "a.csv", {"N": N, "D": D, "loss": L}), "--intervals", "none")["estimates"]
    (tmp_path / "b.tsv").write_text(
        "N\tD\tloss\n"
        + "".join(f"{int(n):,}\t{float(d / 1e6)!r}M\t{y!r}\n" for n, d, y in zip(N, D, map(float, L), strict=True))
    )
    assert fitted(capsys, str(tmp_path / "b.tsv"), "--intervals", "none")["estimates"] == pytest.approx(plain, rel=1e-9)
    records = [
        {"config": {"N": n, "D": d}, "summary": {"loss": y}, "state": "finished"}
        for n, d, y in zip(N, D, L, strict=True)
    ]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    words = ["--map", "N=config.N", "D=config.D", "loss=summary.loss", "--intervals", "none"]
    assert fitted(capsys, str(tmp_path / "c.jsonl"), *words)["estimates"] == plain


def test_perplexity_and_bits_are_converted_where_a_person_says_so(tmp_path, capsys):
    runs = columns()
    plain = fitted(capsys, write(tmp_path / "a.csv", runs), *MAP, "--intervals", "none")["estimates"]
    names = ["--map", "N=params", "D=tokens"]
    path = write(tmp_path / "b.csv", {**runs, "val_ppl": np.exp(runs["final"]), "bpt": runs["final"] / np.log(2)})
    for column, unit in (("val_ppl", "perplexity"), ("bpt", "bits_per_token")):
        words = [path, *names, f"loss={column}"]
        assert f"write --define loss={unit} to convert it" in refusal(capsys, *words)
        converted = fitted(capsys, *words, "--define", f"loss={unit}", "--intervals", "none")
        assert converted["estimates"] == pytest.approx(plain, rel=1e-6)
        assert converted["points"]["definitions"]["loss"].startswith("nats per token")
        fitted(capsys, *words, "--define", "loss=nats_per_token", "--intervals", "none")


def test_the_table_s_own_column_holds_runs_out(tmp_path, capsys):
    runs = columns()
    held = [int(size > 9e8) for size in runs["params"]]
    path = write(tmp_path / "points.csv", {**runs, "held_out": held})
    words = [path, *MAP, "--intervals", "none"]
    assert fitted(capsys, *words)["points"]["count"].startswith("36 used (30 fitted, 6 held out)")
    assert fitted(capsys, *words) | {"points": 0} == fitted(capsys, *words, "--hold-out", "N>9e8") | {"points": 0}
    assert fitted(capsys, *words, "--hold-out", "none")["points"]["held_out"] == 0
    words_of = {0: "False", 1: "True"}
    path = write(tmp_path / "points.csv", {**runs, "held_out": [words_of[value] for value in held]})
    assert fitted(capsys, path, *words[1:])["points"]["held_out"] == 6
    path = write(tmp_path / "points.csv", {**runs, "held_out": ["maybe"] * 36})
    assert "held_out='maybe': is neither 0 nor 1" in refusal(capsys, path, *words[1:])


def test_the_folder_of_a_study_a_sweep_or_a_ledger_is_read(tmp_path, capsys):
    runs = columns()
    ledger = tmp_path / "runs"
    report, sweep = ledger / "studies" / "first" / "report", ledger / "sweeps" / "lr-12ab34cd"
    for folder in (report, sweep):
        folder.mkdir(parents=True)
    write(report / "points.csv", runs)
    words = [*MAP, "--intervals", "none"]
    for folder in (ledger, report.parent, report):
        assert fitted(capsys, str(folder), *words)["points"]["source"] == str(report / "points.csv")
    write(sweep / "points.csv", runs)
    assert fitted(capsys, str(sweep), *words)["points"]["source"] == str(sweep / "points.csv")
    line = refusal(capsys, ledger, *words)
    assert "holds 2 tables; name one of them: studies/first/report/points.csv, sweeps/lr-12ab34cd/points.csv" in line


def test_a_ledger_of_runs_without_a_report_is_read_from_its_results(tmp_path, capsys):
    from scaling.ledger import Ledger

    ledger = Ledger.create(tmp_path / "runs")
    runs, entries = columns(), []
    for i in range(36):
        size, tokens = float(runs["params"][i]), float(runs["tokens"][i])
        spec = {"train": {"steps": 10 + i}, "optimizer": {"lr": 1e-3}, "seed": 0, "data": {"fingerprint": "d"}}
        run = ledger.add(spec)
        entries.append({"run": run, "name": f"run {i}", "held_out": i == 35})
        attempt = ledger.claim(run)
        assert attempt is not None
        with attempt:
            counted = {"N": {"non_embedding": size, "total": 2 * size}, "C": {"exact": 6 * size * tokens}}
            attempt.finish("finished", {"loss": float(runs["final"][i]), "tokens": tokens, **counted})
    document = fitted(capsys, str(tmp_path / "runs"), "--intervals", "none")
    assert document["points"]["count"] == "36 used + 0 excluded + 0 failed = 36 planned"
    assert document["points"]["definitions"]["N"] == "without embeddings"
    ledger.save_plan("mine", {"runs": entries})
    for folder in (tmp_path / "runs", tmp_path / "runs" / "studies" / "mine"):
        assert fitted(capsys, str(folder), "--intervals", "none")["held_out"]["n"] == 1
    Ledger.create(tmp_path / "empty")
    assert "is a ledger of no runs" in refusal(capsys, tmp_path / "empty")


def test_a_table_of_whole_curves_is_refused_before_it_takes_minutes(tmp_path, capsys):
    from scaling.law.validate import MOST_POINTS

    steps = np.arange(1, MOST_POINTS + 2)
    path = write(tmp_path / "curves.csv", {"N": 1e6 + steps, "loss": 2 + 1 / steps})
    assert f"{MOST_POINTS + 1:,} rows are more than" in refusal(capsys, path, "--law", "power_law_n")


def test_points_of_one_run_are_clustered_unasked_and_said_so(tmp_path, capsys):
    """Six points along each run share an error: intervals that take them for independent are too narrow."""
    rng = np.random.default_rng(3)
    N, D = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e6, 1e9, 24), np.geomspace(1e8, 1e11, 6), indexing="ij"))
    shared = np.repeat(rng.standard_normal(24), 6) + 0.3 * rng.standard_normal(len(N))
    table = {
        "run_name": [f"m{i // 6}" for i in range(len(N))],
        "N": N,
        "D": D,
        "loss": loss(N, D) * np.exp(0.01 * shared),
    }
    path = write(tmp_path / "curves.csv", table)
    assert main(["fit", path]) == 0
    assert "errors of the points of one run_name belong together: 24 clusters" in capsys.readouterr().out
    together, apart = fitted(capsys, path), fitted(capsys, path, "--cluster", "none")
    assert together["clusters"] == {"column": "run_name", "count": 24}
    assert apart["clusters"] is None
    wide, narrow = (document["intervals"]["alpha"] for document in (together, apart))
    assert wide["high"] - wide["low"] > 1.2 * (narrow["high"] - narrow["low"])


def test_the_back_test_is_shown_for_the_largest(table, capsys):
    assert main(["fit", table, *MAP, "--hold-out", "largest"]) == 0
    out = capsys.readouterr().out
    assert "inside their 95%" in out
    assert "N ≥ " in out
    tests = fitted(capsys, table, *MAP, "--hold-out", "largest", "--level", "0.9")["back_test"]
    assert {test["axis"] for test in tests} == {"N", "D", "C"}
    assert all(test["level"] == 0.9 and 0 <= test["covered"] <= 1 for test in tests)


def test_a_target_far_outside_is_said_to_be_so_and_not_called_95(table, capsys):
    words = [table, *MAP, "--target", "N=1e9", "D=1e11", "--target", "N=3e9", "D=1e11", "--target", "N=1e12", "D=1e14"]
    assert main(["fit", *words]) == 0
    out = capsys.readouterr().out
    assert "0.48 decades above the largest N" in out
    assert "3 decades above the largest N, 3 decades above the largest D, 6 decades above the largest C" in out
    assert "No 95% is claimed" in out
    near, further, far = fitted(capsys, *words)["predictions"]
    assert near["decades_outside"] == {}
    assert [near["tested"], further["tested"], far["tested"]] == [True, True, False]
    widths = [np.log(row["interval_run"]["high"] / row["interval_run"]["low"]) for row in (near, further, far)]
    assert widths == sorted(widths)
