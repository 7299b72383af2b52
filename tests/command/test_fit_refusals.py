"""What `scaling fit` refuses: one line, code 2, at once."""

import numpy as np
import pytest

from scaling.cli import main
from tests.command.fit_tables import MAP, columns, fitted, loss, refusal, write


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
        ([path["good"]], "there are no columns 'N' (parameters), 'D' (training tokens)"),
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

    from scaling.api.fit_options import USED_BY
    from scaling.command import fit

    parser = argparse.ArgumentParser()
    fit.add_arguments(parser)
    options = {action.dest for action in parser._actions} - {"help"}
    of_every_kind = {"points", "law", "map", "where", "define", "pool", "best_by", "figures", "json", "format"}
    of_curves = set(fit.OF_CURVES) - of_every_kind - set(USED_BY)
    assert options - {"curves", *of_curves} == of_every_kind | set(USED_BY)


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


def test_a_table_of_whole_curves_is_refused_before_it_takes_minutes(tmp_path, capsys):
    from scaling.law.validate import MOST_POINTS

    steps = np.arange(1, MOST_POINTS + 2)
    path = write(tmp_path / "curves.csv", {"N": 1e6 + steps, "loss": 2 + 1 / steps})
    assert f"{MOST_POINTS + 1:,} rows are more than" in refusal(capsys, path, "--law", "power_law_n")


def test_an_asymmetric_objective_has_no_profile(capsys, table):
    line = refusal(capsys, table, *MAP, "--over", "3")
    assert "intervals='profile': bounds errors that cost alike on both sides; add --intervals none" in line
    assert "over=-1" in refusal(capsys, table, *MAP, "--over", "-1", "--intervals", "none")


def test_auto_takes_no_parameters_of_a_law(capsys, table):
    for option, value in (("fix", "E=1"), ("bounds", "alpha=0:1"), ("weight", "N")):
        assert f"{option}=" in refusal(capsys, table, *MAP, "--law", "auto", f"--{option}", value)
