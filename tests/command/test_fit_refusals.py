"""What `scaling fit` refuses: one line, code 2, at once."""

import inspect
import time

import numpy as np
import pytest

import scaling
from scaling.laws.fit import MOST_POINTS
from tests.command.fit_tables import MAP, columns, loss, printed, refusal, write

OPTIONS = {
    "--map N=param": "did you mean 'params'?",
    "--map N": "is not NAME=VALUE",
    "--law data_constrained": "there is no column 'U' (unique training tokens)",
    "--law isoflop": "did you mean 'isoflop_akima'?",
    "--law E+A*N^": "breaks off",
    "--fix E=nan": "fix E=nan: expected a number, and a finite one",
    "--fix A=-1": "is outside its bounds",
    "--fix E=10": "is a floor of the loss, and the lowest loss is",
    "--fix E=1 A=1 B=1 alpha=.3 beta=.3": "none is left to fit",
    "--fix E=1 --fix E=2": "fix E: is given twice",
    "--bounds alpha=1": "is not LOW:HIGH",
    "--where N>1e99": "no row has N>1e99",
    "--define foo=bar": "is no column and no part of the setup",
    "--group runs": "did you mean 'run'?",
    "--hold-out N>1e99": "holds out no run",
    "--hold-out N>0": "holds out every run",
    "--target N=1e9": "chinchilla needs N, D; add D=…",
    "--target N=0 D=1e9": "target N=0.0: must be positive",
    "--objective squared --delta 0.1": "the objective squared has none",
    "--intervals none --level 0.9": "no intervals are asked for",
    "--level 95": "level=95.0: expected a number above 0 and below 1",
    "--map C=6*N*D --law isoflop_akima --seed 1": "without --noise",
    "--law auto --fix E=1": "auto cannot use it",
}
USED_BY_LAWS = ["hold-out N>=1e9", "target N=1e9 D=1e10", "fix E=1", "tie alpha=beta", "bounds alpha=0:1", "starts 100"]
USED_BY_LAWS += ["objective squared", "delta 1e-2", "intervals t", "level 0.9", "group run", "weight N"]


def test_the_value_of_an_option_is_checked_and_one_that_an_approach_cannot_use_is_refused(table, capsys):
    for words, what in OPTIONS.items():
        names = [] if words.startswith("--map N") else MAP
        assert what in refusal(capsys, table, *names, *words.split())
    for words in USED_BY_LAWS:
        option, *values = words.split()
        line = refusal(capsys, table, *MAP, "C=6*N*D", "--law", "envelope", f"--{option}", *values)
        assert line.startswith(f"scaling: {option}=")
        assert "envelope cannot use it; leave it out" in line
    options = {name.replace("_", "-") for name in inspect.signature(scaling.fit).parameters} - {"targets"} | {"target"}
    of_all_kinds = {"points", "law", "rename", "where", "define", "figures", "seed"}
    assert options == of_all_kinds | {words.split()[0] for words in USED_BY_LAWS} | {"noise"}


def tables():
    """Tables that determine no law, by what the line says."""
    runs = columns()
    N, L, line = runs["params"], runs["final"], np.geomspace(1e7, 1e10, 20)
    noise = 1 + 0.002 * np.random.default_rng(4).standard_normal(20)
    on_a_line = {"params": line, "tokens": 20 * line, "final": loss(line, 20 * line) * noise}
    on_a_curve = {"params": line, "tokens": 1e5 * line**0.7, "final": loss(line, 1e5 * line**0.7) * noise}
    sizes, steps = np.array([10, 20, 50, 100, 300, 1000]), np.arange(1, MOST_POINTS + 2)
    toy = {"params": sizes, "tokens": 9 * sizes * [1, 1.5, 0.9, 2, 1, 1], "final": 1.7 * sizes**0.06}
    return {
        "4 distinct scales (N, D) cannot determine 5 parameters; add 1 scale or more": {
            name: values[:22:7] for name, values in runs.items()
        },
        "D=1000000000.0: has one value": {**runs, "tokens": [1e9] * 36},
        "mixes 'a' and 'b'": {**runs, "N_definition": ["a"] * 18 + ["b"] * 18},
        "there is no finished run to fit: 0 points, 36 excluded": {**runs, "status": ["diverged"] * 36},
        "the loss rises with N and D, where chinchilla can only fall": toy,
        "correct 1 of 36 rows": {**runs, "final": [-1, *L[1:]]},
        "loss: 1 of 36 values are missing or not finite": {**runs, "final": ["nan", *L[1:]]},
        "N: 1 of 36 values are missing or not finite": {**runs, "params": [10**400, *N[1:]]},
        "loss=3.0: has one value": {**runs, "final": [3.0] * 36},
        "all 20 points lie on D = 20 N: chinchilla is not identified": on_a_line,
        "lie on D ∝ N^0.7": on_a_curve,
        "write --define loss=perplexity to convert it": {**runs, "final": np.exp(2 * L)},
        f"{MOST_POINTS + 1:,} rows are more than": {"params": steps, "tokens": steps, "final": 2 + 1 / steps},
    }


@pytest.mark.filterwarnings("error")
def test_a_table_that_determines_no_law_is_refused_at_once(tmp_path, capsys):
    for what, table in tables().items():
        path = write(tmp_path / "points.csv", table)
        begun = time.process_time()
        assert what in refusal(capsys, path, *MAP)
        assert time.process_time() - begun < 2


NAMES = {
    "n,d,Loss": "add --map N=n D=d loss=Loss",
    "config.N,D,summary/loss": "add --map N=config.N loss=summary/loss",
    "n,N_,final loss": "name yours by --map N=n D=COLUMN loss=COLUMN (of n, N_, final loss)",
}


def test_the_option_that_names_columns_is_proposed_whole(tmp_path, capsys):
    for header, proposed in NAMES.items():
        (tmp_path / "points.csv").write_text(f"{header}\n1e6,1e8,3\n1e7,1e9,2\n")
        assert proposed in refusal(capsys, tmp_path / "points.csv")
    assert "there is no such file" in refusal(capsys, tmp_path / "nothing.csv")
    assert "expected ENTITY/PROJECT" in refusal(capsys, "wandb:me/project/sweep/run")


ODD = {
    "one outlier": lambda runs: {**runs, "final": [100 * runs["final"][0], *runs["final"][1:]]},
    "huge ranges": lambda runs: {**runs, "params": runs["params"] * 1e150, "tokens": runs["tokens"] * 1e-120},
    "other units": lambda runs: {**runs, "params": runs["params"] / 1e6, "tokens": runs["tokens"] / 1e9},
    "few points": lambda runs: {name: column[:36:5] for name, column in runs.items()},
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ODD)
def test_odd_points_are_fitted_without_a_warning(tmp_path, capsys, kind):
    out = printed(capsys, write(tmp_path / "points.csv", ODD[kind](columns())), *MAP)
    assert ("none is identified" in out) == (kind == "few points")
    assert ("no count of parameters" in out) == (kind == "other units")
