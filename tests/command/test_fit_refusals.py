"""What `scaling fit` refuses: one line, code 2, at once."""

import inspect
import time

import numpy as np
import pytest

import scaling
from scaling.cli import main
from tests.command.fit_tables import MAP, columns, fitted, loss, refusal, write

ISOFLOP = ["C=6*N*D", "--law", "isoflop_akima"]
OPTIONS = [
    (["--map", "N=param"], "did you mean 'params'?"),
    (["--map", "N"], "is not NAME=VALUE"),
    (["--map", "C=6*tokens*Q"], "there is no column"),
    (["--law", "data_constrained"], "there is no column 'U' (unique training tokens)"),
    (["--law", "chinchila"], "did you mean 'chinchilla'?"),
    (["--law", "isoflop"], "did you mean 'isoflop_akima'?"),
    (["--law", "isoflop_akima"], "there is no column 'C'"),
    (["--law", ""], "there is no law ''"),
    (["--law", "E + A*N^"], "breaks off"),
    (["--law", "nothing.yaml"], "No such file"),
    (["--fix", "E=low"], "fix E='low': expected a number"),
    (["--fix", "E=nan"], "fix E=nan: expected a number, and a finite one"),
    (["--fix", "gamma=1"], "is not a parameter of the law"),
    (["--fix", "A=-1"], "is outside its bounds"),
    (["--fix", "E=10"], "is a floor of the loss, and the lowest loss is"),
    (["--fix", "E=1", "A=1", "B=1", "alpha=.3", "beta=.3"], "none is left to fit"),
    (["--fix", "E=1", "--fix", "E=2"], "fix E: is given twice"),
    (["--tie", "alpha=gamma"], "is not a parameter of the law"),
    (["--bounds", "alpha=1"], "is not LOW:HIGH"),
    (["--bounds", "gamma=0:1"], "is not a parameter of the law"),
    (["--where", "N>1e99"], "no row has N>1e99"),
    (["--define", "foo=bar"], "is no column and no part of the setup"),
    (["--weight", "foo"], "there is no column 'foo'"),
    (["--group", "runs"], "did you mean 'run'?"),
    (["--hold-out", "N>1e99"], "holds out no run"),
    (["--hold-out", "N>0"], "holds out every run"),
    (["--hold-out", "N>big"], "is no bound"),
    (["--hold-out", "foo"], "there is no column 'foo'"),
    (["--hold-out", "N", "--hold-out", "D"], "hold-out: is given twice"),
    (["--target", "N=1e9"], "chinchilla needs N, D; add D=…"),
    (["--target", "N=1e9", "DD=1"], "chinchilla has no column 'DD'"),
    (["--target", "N=0", "D=1e9"], "target N=0.0: must be positive"),
    (["--target", "N=inf", "D=1e9"], "target N=inf: expected a number, and a finite one"),
    (["--objective", "hubr"], "objective='hubr': expected one of"),
    (["--objective", "squared", "--delta", "0.1"], "the objective squared has none"),
    (["--delta", "0"], "delta=0.0: expected a number above 0"),
    (["--intervals", "none", "--level", "0.9"], "no intervals are asked for"),
    (["--level", "95"], "level=95.0: expected a number above 0 and below 1"),
    (["--starts", "0"], "starts=0: expected a positive whole number up to 100,000"),
    (["--starts", "1e9"], "starts=1000000000: expected a positive whole number up to 100,000"),
    (["--seed", "-1"], "seed=-1"),
    (["--noise", "0.01"], "chinchilla cannot use it"),
    ([*ISOFLOP, "--seed", "1"], "without --noise"),
    (["C=6*N*D", "--law", "envelope", "--seed", "1"], "envelope cannot use it"),
    *(
        (["--law", "auto", f"--{name}", value], "auto cannot use it")
        for name, value in (("fix", "E=1"), ("weight", "N"))
    ),
]


@pytest.mark.parametrize(("words", "what"), OPTIONS)
def test_an_option_s_value_is_checked(table, capsys, words, what):
    assert what in refusal(capsys, table, *([] if words[0] == "--map" else MAP), *words)


USED_BY_LAWS = {
    "hold-out": ["N>=1e9"],
    "target": ["N=1e9", "D=1e10"],
    "fix": ["E=1"],
    "tie": ["alpha=beta"],
    "bounds": ["alpha=0:1"],
    "objective": ["squared"],
    "delta": ["1e-2"],
    "intervals": ["t"],
    "level": ["0.9"],
    "group": ["run"],
    "weight": ["N"],
    "starts": ["100"],
}


def test_an_option_that_an_approach_cannot_use_is_refused(table, capsys):
    for option, words in USED_BY_LAWS.items():
        line = refusal(capsys, table, *MAP, "C=6*N*D", "--law", "envelope", f"--{option}", *words)
        assert line.startswith(f"scaling: {option}=")
        assert "envelope cannot use it; leave it out" in line
    options = {name.replace("_", "-") for name in inspect.signature(scaling.fit).parameters} - {"targets"} | {"target"}
    of_all_kinds = {"points", "law", "rename", "where", "define", "figures", "seed"}
    assert options == of_all_kinds | set(USED_BY_LAWS) | {"noise"}


def tables():
    """Tables that determine no law, each with its law, the columns that make it so, and what the line says."""
    runs = columns()
    N, D, L = (np.array(runs[name]) for name in ("params", "tokens", "final"))
    line = np.geomspace(1e7, 1e10, 20)
    noise = 1 + 0.002 * np.random.default_rng(4).standard_normal(20)
    few = {name: values[:22:7] for name, values in runs.items()}
    halves = ["a"] * 18 + ["b"] * 18
    on_a_line = {"params": line, "tokens": 20 * line, "final": loss(line, 20 * line) * noise, "run": range(20)}
    on_a_curve = {"params": line, "tokens": 1e5 * line**0.7, "final": loss(line, 1e5 * line**0.7) * noise}
    sizes = np.array([10, 20, 50, 100, 300, 1000])
    toy = {"params": sizes, "tokens": 9 * sizes * [1, 1.5, 0.9, 2, 1, 1], "final": 1.7 * sizes**0.06, "run": range(6)}
    return {
        "few": ("chinchilla", few, "4 distinct scales (N, D) cannot determine 5 parameters; add 1 scale or more"),
        "constant": ("chinchilla", {**runs, "tokens": [1e9] * 36}, "D=1000000000.0: has one value"),
        "definitions": ("chinchilla", {**runs, "N_definition": halves}, "mixes 'a' and 'b'"),
        "twice": (
            "chinchilla",
            {**runs, "run": ["same"] * 36, "tokens": [1e9] * 36},
            "1 run is in the table more than once",
        ),
        "excluded": (
            "chinchilla",
            {**runs, "status": ["diverged"] * 36},
            "there is no finished run to fit: 0 points, 36 excluded",
        ),
        "six losses that rise": ("chinchilla", toy, "the loss rises with N and D, where chinchilla can only fall"),
        "a rising power law": ("power_law_n", {**runs, "final": N**0.1}, "the loss rises with N"),
        "a loss of zero": ("chinchilla", {**runs, "final": [0, *L[1:]]}, "loss=0.0: must be positive"),
        "a negative loss": ("chinchilla", {**runs, "final": [-1, *L[1:]]}, "correct 1 of 36 rows"),
        "no loss": ("chinchilla", {**runs, "final": ["", *L[1:]]}, "1 of 36 values are missing"),
        "a loss of nan": ("chinchilla", {**runs, "final": ["nan", *L[1:]]}, "1 of 36 values are missing or not finite"),
        "compute of zero": ("power_law_c", {**runs, "C": [0, *(6 * N * D)[1:]]}, "C=0.0: must be positive"),
        "beyond floats": ("chinchilla", {**runs, "params": [10**400, *N[1:]]}, "not finite"),
        "constant losses": ("chinchilla", {**runs, "final": [3.0] * 36}, "loss=3.0: has one value"),
        "one ratio": ("chinchilla", on_a_line, "all 20 points lie on D = 20 N: chinchilla is not identified"),
        "one curve": ("kaplan_n_d", on_a_curve, "lie on D ∝ N^0.7"),
        "perplexity": ("chinchilla", {**runs, "final": np.exp(2 * L)}, "write --define loss=perplexity to convert it"),
        "a decimal comma": ("chinchilla", {**runs, "params": ['"1.000,5"'] * 36}, "write a decimal point"),
    }


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", tables())
def test_a_table_that_determines_no_law_is_refused_at_once(tmp_path, capsys, kind):
    law, table, what = tables()[kind]
    path = write(tmp_path / "points.csv", table)
    begun = time.process_time()
    assert what in refusal(capsys, path, *MAP, "--law", law)
    assert time.process_time() - begun < 2


NAMES = {
    "n,d,Loss": "add --map N=n D=d loss=Loss",
    "params,tokens,val_loss": "add --map N=params D=tokens loss=val_loss",
    "config.N,D,summary/loss": "add --map N=config.N loss=summary/loss",
    "n,N_,final loss": "name yours by --map N=n D=COLUMN loss=COLUMN (of n, N_, final loss)",
}


def test_the_option_that_names_columns_is_proposed_whole(tmp_path, capsys):
    for header, proposed in NAMES.items():
        (tmp_path / "points.csv").write_text(f"{header}\n1e6,1e8,3\n1e7,1e9,2\n")
        assert proposed in refusal(capsys, tmp_path / "points.csv")


def test_what_is_no_table_is_refused(tmp_path, capsys):
    (tmp_path / "unreadable.parquet").write_text("no")
    assert "is not parquet" in refusal(capsys, tmp_path / "unreadable.parquet")
    for path in (tmp_path / "nothing.csv", tmp_path):
        assert "there is no such file" in refusal(capsys, path)
    assert "expected ENTITY/PROJECT" in refusal(capsys, "wandb:me/project/sweep/run")


def test_repeated_options_add_up(table, capsys):
    words = ["--map", "N=params", "--map", "D=tokens", "--map", "loss=final", "--intervals", "none"]
    chosen = fitted(capsys, table, *words, "--where", "N>=2e6", "--where", "D<=5e10", "N<9e8")
    assert chosen["points"]["used"] == 4 * 5
    held = fitted(capsys, table, *words, "--fix", "E=1.7", "--fix", "alpha=0.34")
    assert held["fixed"] == {"E": 1.7, "alpha": 0.34}
    stated = fitted(capsys, table, *words, "--define", "N=total", "--define", "D=unique")
    assert stated["points"]["definitions"] == {"N": "total", "D": "unique"}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["one outlier", "huge ranges", "other units", "few points"])
def test_odd_points_are_fitted_without_a_warning(tmp_path, capsys, kind):
    runs = columns()
    if kind == "one outlier":
        runs["final"] = [100 * runs["final"][0], *runs["final"][1:]]
    elif kind == "huge ranges":
        runs["params"], runs["tokens"] = runs["params"] * 1e150, runs["tokens"] * 1e-120
    elif kind == "other units":
        runs["params"], runs["tokens"] = runs["params"] / 1e6, runs["tokens"] / 1e9
    else:
        runs = {name: list(column)[:36:5] for name, column in runs.items()}
    assert main(["fit", write(tmp_path / "points.csv", runs), *MAP]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert ("none is identified" in out) == (kind == "few points")
    assert ("no count of parameters" in out) == (kind == "other units")


def test_a_table_of_whole_curves_is_refused_before_it_takes_minutes(tmp_path, capsys):
    from scaling.laws.fit import MOST_POINTS

    steps = np.arange(1, MOST_POINTS + 2)
    path = write(tmp_path / "curves.csv", {"N": 1e6 + steps, "loss": 2 + 1 / steps})
    assert f"{MOST_POINTS + 1:,} rows are more than" in refusal(capsys, path, "--law", "power_law_n")
