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
