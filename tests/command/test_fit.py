"""`scaling fit` from outside: what it prints, what its JSON holds, and what it refuses: one line, code 2, at once."""

import inspect
import time

import numpy as np
import pytest

import scaling
from scaling.laws.fit import MOST_POINTS
from tests.command_line import printed, refused
from tests.laws.conftest import LAW, THETA, grid, write

pytestmark = pytest.mark.filterwarnings("error")  # none of a library leaks
MAP = ["--map", "N=params", "D=tokens", "loss=final"]


def loss(N, D):
    return LAW.predict(THETA, {"N": N, "D": D})


def columns():
    names = {"N": "params", "D": "tokens", "loss": "final"}
    made = grid(np.geomspace(1e6, 1e9, 6), np.geomspace(1e8, 1e11, 6), 0.002, seed=1)
    return {"run": [f"r{i}" for i in range(36)], **{names[key]: values for key, values in made.items()}}


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "points.csv", columns())


def fitted(capsys, *words):
    return printed(capsys, "fit", *words, "--starts", 128, "--json")


def test_the_truth_is_inside_the_intervals_and_targets_are_predicted_with_how_far_they_lie(table, capsys):
    targets = [(7e9, 1.4e11), (1e9, 1e11), (1e12, 1e14)]
    words = [word for N, D in targets for word in ("--target", f"N={N:g}", f"D={D:g}")]
    document = fitted(capsys, table, *MAP, "--hold-out", "N>=9e8", *words, "--target", "C=1e22")
    assert document["law"] == "chinchilla"
    for name, value in zip(LAW.parameter_names, THETA):
        interval = document["intervals"][name]
        assert interval["low"] <= value <= interval["high"]
        assert interval["low"] < document["estimates"][name] < interval["high"]
    assert document["points"]["count"] == "30 points, 6 held out"
    assert document["held_out"]["largest_relative_error"] < 0.02
    for prediction, true in zip(document["predictions"], loss(*np.array(targets).T), strict=True):
        assert prediction["loss"] == pytest.approx(true, rel=0.02)
        assert prediction["interval_mean"]["low"] <= true <= prediction["interval_mean"]["high"]
    assert [row["tested"] for row in document["predictions"]] == [False, True, False]
    (best,) = document["optima"]
    assert best["N"]["estimate"] * best["D"]["estimate"] == pytest.approx(1e22 / 6, rel=1e-6)
    assert best["interval_mean"]["estimate"] == pytest.approx(best["loss"]["estimate"])
    out = printed(capsys, "fit", table, *MAP, "--hold-out", "N", *words, "--intervals", "t")
    assert "N=7B D=140B: 1.4 decades above the largest N" in out
    assert "No 95% is claimed" in out


def test_parameters_are_held_and_tied_figures_are_drawn_and_repeated_options_add_up(table, tmp_path, capsys):
    names = ["--map", "N=params", "--map", "D=tokens", "loss=final", "--intervals", "t"]
    words = ["--map", "C=6*N*D", "--law", "power_law_floor_c", "--fix", "E=1.7"]
    document = fitted(capsys, table, *names, *words, "--fix", "alpha=0.2", "--figures", str(tmp_path / "figures"))
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


def test_weights_count(tmp_path, capsys):
    path = write(tmp_path / "points.csv", {**columns(), "trust": [1e-12, *[1] * 35]})
    words = [path, *MAP, "--intervals", "none", "--objective", "log_squared"]
    every, weighted, others = (
        fitted(capsys, *words, *more)["estimates"] for more in ([], ["--weight", "trust"], ["--where", "run!=r0"])
    )
    assert weighted == pytest.approx(others, rel=1e-4)
    assert weighted != pytest.approx(every, rel=1e-4)


def test_points_of_one_run_share_an_error_unasked_and_it_is_stated(tmp_path, capsys):
    rng = np.random.default_rng(3)
    N, D = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e6, 1e9, 24), np.geomspace(1e8, 1e11, 6), indexing="ij"))
    shared = np.repeat(rng.standard_normal(24), 6) + 0.3 * rng.standard_normal(len(N))
    runs = {"run_name": [f"m{i // 6}" for i in range(144)], "N": N, "D": D, "loss": loss(N, D) * np.exp(0.01 * shared)}
    words = [write(tmp_path / "curves.csv", runs), "--intervals", "t"]
    together, apart = (fitted(capsys, *words, *more) for more in ((), ("--group", "none")))
    assert (together["clusters"]["column"], together["clusters"]["count"]) == ("run_name", 24)
    assert together["clusters"]["correlation"]["low"] > 0.5
    wide, narrow = (document["intervals"]["alpha"] for document in (together, apart))
    assert wide["high"] - wide["low"] > 1.2 * (narrow["high"] - narrow["low"])


OPTIONS = {
    "--map N=param": "did you mean 'params'?",
    "--map N": "is not NAME=VALUE",
    "--bounds alpha=1": "is not LOW:HIGH",
    "--law data_constrained": "there is no column 'U' (unique training tokens)",
    "--law isoflop": "did you mean 'isoflop_akima'?",
    "--fix A=-1": "is outside its bounds",
    "--fix E=10": "is a floor of the loss, and the lowest loss is",
    "--where N>1e99": "no row has N>1e99",
    "--hold-out N>0": "holds out every run",
    "--map held_out=N/N": "hold-out='held_out': holds out every run",
    "--target N=1e9": "chinchilla needs N, D; add D=…",
    "--law auto --target lr=1": "has no column 'lr'",
    "--delta 1e300": "expected a number above 0 and up to 1e100",
    "--law two_step --delta 0.1": "the objective squared has none",
    "--intervals none --level 0.9": "no intervals are asked for",
    "--map C=6*N*D --law isoflop_akima --seed 1": "without --noise",
}
USED_BY_LAWS = ["hold-out N>=1e9", "target N=1e9 D=1e10", "fix E=1", "tie alpha=beta", "bounds alpha=0:1", "starts 100"]
USED_BY_LAWS += ["objective squared", "delta 1e-2", "intervals t", "level 0.9", "group run", "weight N"]


def test_the_value_of_an_option_is_checked_and_one_that_an_approach_cannot_use_is_refused(table, capsys):
    for words, what in OPTIONS.items():
        names = [] if words.startswith("--map N") else MAP
        assert what in refused(capsys, "fit", table, *names, *words.split())
    for words in USED_BY_LAWS:
        option, *values = words.split()
        line = refused(capsys, "fit", table, *MAP, "C=6*N*D", "--law", "envelope", f"--{option}", *values)
        assert line.startswith(f"scaling: {option}=")
        assert "envelope cannot use it; leave it out" in line
    options = {name.replace("_", "-") for name in inspect.signature(scaling.fit).parameters} - {"targets"} | {"target"}
    of_all_kinds = {"points", "law", "rename", "where", "define", "figures", "seed"}
    assert options == of_all_kinds | {words.split()[0] for words in USED_BY_LAWS} | {"noise"}


def test_a_table_that_determines_no_law_is_refused_at_once(tmp_path, capsys):
    runs = columns()
    L, line = runs["final"], np.geomspace(1e7, 1e10, 20)
    noise = 1 + 0.002 * np.random.default_rng(4).standard_normal(20)
    on_a_line = {"params": line, "tokens": 20 * line, "final": loss(line, 20 * line) * noise}
    sizes, steps = np.array([10, 20, 50, 100, 300, 1000]), np.arange(1, MOST_POINTS + 2)
    toy = {"params": sizes, "tokens": 9 * sizes * [1, 1.5, 0.9, 2, 1, 1], "final": 1.7 * sizes**0.06}
    tables = {
        "4 distinct scales (N, D) cannot determine 5 parameters; add 1": {name: runs[name][:22:7] for name in runs},
        "the loss rises with N and D, where chinchilla can only fall": toy,
        "6ND: is too large": {**runs, "params": runs["params"] * 1e150, "tokens": runs["tokens"] * 1e150},
        "correct 1 of 36 rows": {**runs, "final": [-1, *L[1:]]},
        "loss=3.0: has one value": {**runs, "final": [3.0] * 36},
        "all 20 points lie on D = 20 N: chinchilla is not identified": on_a_line,
        f"{MOST_POINTS + 1:,} rows are more than": {"params": steps, "tokens": steps, "final": 2 + 1 / steps},
    }
    for what, table in tables.items():
        path = write(tmp_path / "points.csv", table)
        begun = time.process_time()
        assert what in refused(capsys, "fit", path, *MAP)
        assert time.process_time() - begun < 2


def test_the_option_that_names_columns_is_proposed_whole(tmp_path, capsys):
    (tmp_path / "points.csv").write_text("config.N,d,summary/loss\n1e6,1e8,3\n1e7,1e9,2\n")
    assert "add --map N=config.N D=d loss=summary/loss" in refused(capsys, "fit", tmp_path / "points.csv")
    assert "there is no such file" in refused(capsys, "fit", tmp_path / "nothing.csv")
    assert "expected ENTITY/PROJECT" in refused(capsys, "fit", "wandb:me/project/sweep/run")


def test_odd_points_are_fitted_without_a_warning_of_a_library(tmp_path, capsys):
    runs = columns()
    outlier = {**runs, "final": [100 * runs["final"][0], *runs["final"][1:]]}
    huge = {**runs, "params": runs["params"] * 1e150, "tokens": runs["tokens"] * 1e-120}
    units = {**runs, "params": runs["params"] / 1e6, "tokens": runs["tokens"] / 1e9}
    few = {name: column[:36:5] for name, column in runs.items()}
    path = tmp_path / "points.csv"
    outputs = [printed(capsys, "fit", write(path, table), *MAP) for table in (outlier, huge, units, few)]
    assert ["too few parameters for a language model" in out for out in outputs] == [False, False, True, False]
    assert ["none is identified" in out for out in outputs] == [False, False, False, True]


def test_what_cannot_be_fitted_or_predicted_is_one_line(tmp_path, capsys):
    short = {"params": "N", "tokens": "D", "final": "loss"}
    rows = {short.get(name, name): values for name, values in columns().items()}
    files = {
        "failed": write(tmp_path / "failed.csv", {**rows, "status": "failed", "options": 4}),
        "whole": write(tmp_path / "whole.csv", {**rows, "U": np.where(np.arange(36) < 3, np.nan, rows["D"])}),
    }
    for words, what in (
        (["failed", "--hold-out", "N"], "there is no finished run to fit"),
        (["failed", "--law", "task_sigmoid"], "there is no finished run to fit"),
        (["failed", "--law", "E+(N_c/N)^a"], "there is no finished run to fit"),
        (["whole", "--intervals", "none", "--target", "N=1e200", "D=1e200"], "is too large"),
    ):
        assert what in refused(capsys, "fit", files[words[0]], *words[1:]), words
    # A column with gaps leaves the laws that do not read it.
    assert fitted(capsys, files["whole"], "--law", "auto", "--intervals", "none")["law"] == "chinchilla"
