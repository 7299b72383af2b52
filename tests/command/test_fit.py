"""`scaling fit` from outside: what it prints and what its JSON holds."""

import numpy as np
import pytest

from tests.command.fit_tables import MAP, TRUTH, columns, fitted, loss, printed, refusal, write

FORMULA = "E + A*N^-alpha + B*D^-beta"


def test_the_truth_is_inside_the_intervals_and_targets_are_predicted_with_how_far_they_lie(table, capsys):
    targets = [(7e9, 1.4e11), (1e9, 1e11), (1e12, 1e14)]
    words = [word for N, D in targets for word in ("--target", f"N={N:g}", f"D={D:g}")]
    document = fitted(capsys, table, *MAP, "--hold-out", "N>=9e8", *words, "--target", "C=1e22")
    assert document["law"] == "chinchilla"
    assert document["objective"] > 0
    assert 0 < document["starts_agreeing"] <= 1
    for name, value in TRUTH.items():
        interval = document["intervals"][name]
        assert interval["low"] <= value <= interval["high"]
        assert interval["low"] < document["estimates"][name] < interval["high"]
    assert document["points"]["count"] == "30 points, 6 held out"
    assert document["held_out"]["n"] == 6
    assert document["held_out"]["largest_relative_error"] < 0.02
    for prediction, (N, D) in zip(document["predictions"], targets, strict=True):
        assert prediction["loss"] == pytest.approx(loss(N, D), rel=0.02)
        assert prediction["interval_mean"]["low"] <= loss(N, D) <= prediction["interval_mean"]["high"]
    assert [row["tested"] for row in document["predictions"]] == [False, True, False]
    (best,) = document["optima"]
    assert best["N"]["estimate"] * best["D"]["estimate"] == pytest.approx(1e22 / 6, rel=1e-6)
    assert best["interval_mean"]["estimate"] == pytest.approx(best["loss"]["estimate"])
    out = printed(capsys, table, *MAP, "--hold-out", "N", *words, "--intervals", "t", "--objective", "log_squared")
    assert "N=7B D=140B: 1.4 decades above the largest N" in out
    assert "No 95% is claimed" in out


def test_parameters_are_held_and_tied_figures_are_drawn_and_repeated_options_add_up(table, tmp_path, capsys):
    names = ["--map", "N=params", "--map", "D=tokens", "loss=final", "--intervals", "t"]
    words = ["--map", "C=6*N*D", "--law", "power_law_floor_c", "--fix", "E=1.7"]
    document = fitted(capsys, table, *names, *words, "--fix", "alpha=0.2", "--figures", str(tmp_path / "figures"))
    assert document["fixed"] == {"E": 1.7, "alpha": 0.2}
    assert document["estimates"]["E"] == 1.7
    assert document["points"]["definitions"]["C"] == "6*N*D"
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {f"{name}.{kind}" for name in ("loss_against_C", "residuals") for kind in ("pdf", "svg", "png")} <= drawn
    assert len(document["figures"]) == len(drawn)
    where = ["--where", "N>=2e6", "--where", "D<=5e10", "N<9e8", "--define", "N=total", "--define", "D=unique"]
    document = fitted(capsys, table, *names, "--tie", "alpha=beta", *where)
    assert document["tied"] == {"alpha": "beta"}
    assert document["intervals"]["alpha"] == document["intervals"]["beta"]
    assert document["points"]["used"] == 4 * 5
    assert document["points"]["definitions"] | {"N": "total", "D": "unique"} == document["points"]["definitions"]


def test_a_law_as_a_formula_is_fitted_and_tested_like_any(table, tmp_path, capsys):
    words = [
        table,
        *MAP,
        "--hold-out",
        "N>=9e8",
        "--target",
        "C=1e22",
        "--intervals",
        "t",
        "--objective",
        "log_squared",
    ]
    (tmp_path / "mine.yaml").write_text(f"formula: {FORMULA}\ncitation: Doe 2026\nbounds: {{alpha: [0, 2]}}\n")
    built_in, *written = (
        fitted(capsys, *words, *law)
        for law in ([], ["--law", FORMULA, "--bounds", "alpha=0:2"], ["--law", str(tmp_path / "mine.yaml")])
    )
    assert [(each["law"], each["citation"]) for each in written] == [
        ("formula", "no citation given"),
        ("mine", "Doe 2026"),
    ]
    assert written[0]["formula"] == f"loss(N, D) = {FORMULA}"
    for each in written:
        assert {each[key] == built_in[key] for key in ("estimates", "objective", "starts_agreeing")} == {True}
        assert each["held_out"]["points"] == built_in["held_out"]["points"]
        assert {each["optima"][0][key] == built_in["optima"][0][key] for key in ("N", "D", "interval_run")} == {True}


def test_the_growth_of_the_optimum_is_found_along_the_envelope(tmp_path, capsys):
    N = np.repeat(np.geomspace(1e7, 1e10, 12), 30)
    D = N * np.tile(np.geomspace(1, 300, 30), 12)
    runs = {"run": [f"n{n:.0f}" for n in N], "N": N, "D": D, "C": 6 * N * D, "loss": loss(N, D)}
    document = fitted(capsys, write(tmp_path / "curves.csv", runs), "--law", "envelope")
    growth = TRUTH["beta"] / (TRUTH["alpha"] + TRUTH["beta"])  # the exponent a of N_opt ∝ C^a
    assert document["estimates"]["a"] == pytest.approx(growth, abs=0.05)
    assert document["intervals"]["a"]["low"] < document["estimates"]["a"] < document["intervals"]["a"]["high"]


def test_weights_count(tmp_path, capsys):
    """A run of almost no weight is left out."""
    runs = columns()
    wild = [100 * runs["final"][0], *runs["final"][1:]]
    path = write(tmp_path / "points.csv", {**runs, "final": wild, "trust": [1e-12, *[1] * 35], "bad": [0, *[1] * 35]})
    words = [path, *MAP, "--intervals", "none", "--objective", "log_squared"]
    weighted = fitted(capsys, *words, "--weight", "trust")["estimates"]
    assert weighted == pytest.approx(fitted(capsys, *words, "--where", "run!=r0")["estimates"], rel=1e-4)
    assert "weight=0.0: weights are one positive number a point" in refusal(capsys, path, *MAP, "--weight", "bad")


def test_points_of_one_run_share_an_error_unasked_and_it_is_stated(tmp_path, capsys):
    """Six points along each run share an error: intervals that take them for independent are too narrow."""
    rng = np.random.default_rng(3)
    N, D = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e6, 1e9, 24), np.geomspace(1e8, 1e11, 6), indexing="ij"))
    shared = np.repeat(rng.standard_normal(24), 6) + 0.3 * rng.standard_normal(len(N))
    runs = {"run_name": [f"m{i // 6}" for i in range(144)], "N": N, "D": D, "loss": loss(N, D) * np.exp(0.01 * shared)}
    words = [write(tmp_path / "curves.csv", runs), "--intervals", "t"]
    assert "errors of the points of one run_name belong together: 24 groups, correlation" in printed(capsys, *words)
    together, apart = (fitted(capsys, *words, *more) for more in ((), ("--group", "none")))
    assert (together["clusters"]["column"], together["clusters"]["count"]) == ("run_name", 24)
    assert together["clusters"]["correlation"]["low"] > 0.5
    assert apart["clusters"] is None
    wide, narrow = (document["intervals"]["alpha"] for document in (together, apart))
    assert wide["high"] - wide["low"] > 1.2 * (narrow["high"] - narrow["low"])


def test_a_score_is_predicted_through_the_loss(tmp_path, capsys):
    table = columns()
    score = 0.25 + 0.7 / (1 + np.exp(3 * (table["final"] - 2.8)))
    path = write(tmp_path / "scores.csv", {**table, "accuracy": score.round(3), "options": [4] * 36})
    words = [path, *MAP, "--law", "two_step", "--hold-out", "N>=9e8", "--target", "N=7e9", "D=1.4e11", "examples=500"]
    document = fitted(capsys, *words, "--intervals", "t")
    assert [step["law"] for step in document["steps"]] == ["chinchilla", "task_sigmoid"]
    assert document["fixed"] == {"task_b": 0.25}
    assert document["estimates"]["task_L_0"] == pytest.approx(2.8, abs=0.05)
    assert (document["held_out"]["n"], document["held_out"]["covered"]) == (6, 1.0)
    (prediction,) = document["predictions"]
    truth = 0.25 + 0.7 / (1 + np.exp(3 * (loss(7e9, 1.4e11) - 2.8)))
    assert prediction["interval_run"]["low"] <= truth <= prediction["interval_run"]["high"]
    out = printed(capsys, *words, "--intervals", "t")
    for text in ("task_k", "held out", "accuracy: squared", "accuracy: R²", "correlation", "7B", "5 + 3 parameters"):
        assert text in out
    refusal(capsys, path, *MAP, "--law", "two_step", "--target", "C=1e22")
