"""Runs left out and predicted from the others, the choice of a law, and what a fit prints of both."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import scaling
from scaling.base.errors import ScalingError
from scaling.cli import main
from scaling.laws import Points, fit
from scaling.laws.held_out import back_test, candidates, choose, cost_of
from scaling.laws.report import Report, estimates
from tests.laws.studies import FARSEER, grid, study

NUMBER = r"-?[\d.]+(?:e[+-]?\d+)?"
KEPT = sorted((Path(__file__).parents[2] / "docs" / "results").glob("*/fit.json"))
WIDE = np.geomspace(1e8, 6e9, 8), np.geomspace(1e9, 5e11, 8)


def table(count=40, noise=0.003, seed=0):
    columns = study(count, noise, seed)
    return pandas.DataFrame({"run": [f"r{seed}-{place}" for place in range(count)], **columns})


def test_the_back_test_leaves_out_the_largest_by_each_axis():
    points = Points(grid(*WIDE, 2e-3))
    law = fit("chinchilla", points, objective="log_squared", starts=64)
    tests = back_test(law, 0.9)
    assert {test["axis"] for test in tests} == {"N", "D", "C"}
    assert {test["runs"] for test in tests if test["axis"] == "N"} == {16, 32}  # whole levels
    assert all(test["level"] == 0.9 and test["decades_outside"] > 0 for test in tests)
    C = 6 * points["N"] * points["D"]
    assert all((test["from"] * (1 - 1e-9) <= C).sum() == test["runs"] for test in tests if test["axis"] == "C")
    assert np.mean([test["covered"] for test in tests]) >= 0.85
    assert back_test(law.without(np.arange(64) % 5 > 0, 64)) == []


def test_the_law_that_made_the_runs_is_chosen_and_extrapolates():
    points = Points(grid(*WIDE, 1e-3, **FARSEER))
    choice = choose(points, powers=(0.0,))
    assert choice.trials[0].form.name == "farseer"
    assert {trial.form.name for trial in choice.trials} == {"farseer", "chinchilla", "kaplan_n_d"}
    assert choice.trials[0].score == min(trial.score for trial in choice.trials) >= 1
    far = {"N": np.array([2e10]), "D": np.array([2e12])}
    true = FARSEER["form"].predict(FARSEER["theta"], far)
    assert choice.fit(points).predict(**far) == pytest.approx(true, rel=0.02)


def test_candidates_have_the_columns_of_the_table():
    repeated = Points({**study(64), "U": np.geomspace(1e8, 1e9, 64)})
    mixture = {"p_1": np.linspace(0.1, 0.9, 9), "p_2": np.linspace(0.9, 0.1, 9), "loss": np.linspace(2, 3, 9)}
    for points, name in ((repeated, "data_constrained"), (Points(mixture), "mixture_exponential_2")):
        assert [form.name for form in candidates(points)] == [name]
    with pytest.raises(ScalingError, match="no law has its columns in the table"):
        candidates(Points({"a": np.arange(3.0), "loss": np.arange(1.0, 4.0)}))
    N, D = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    assert cost_of(Points({"N": N, "D": D})).tolist() == [3.0, 8.0]


def test_the_back_test_of_a_chosen_law_chooses_without_the_runs_it_leaves_out():
    """The runs of the largest loss bend the curve: the law that they choose is not the law that predicts them."""
    loss = np.linspace(2.0, 4.0, 30)
    bits = 0.3 + 0.2 * loss + 1e-3 * np.random.default_rng(1).standard_normal(30)
    bits += np.where(loss > 3.6, 0.8 * (loss - 3.6) ** 2, 0.0)
    chosen = scaling.fit({"loss": loss, "bits_per_byte": bits}, law="auto", hold_out="largest", intervals="none")
    assert chosen.document["law"] == "task_power"
    assert [test["law"] for test in chosen.document["back_test"]] == ["task_linear", "task_linear"]
    assert "Laws compared." in chosen.format("markdown")
    assert "loss ≥ " in str(chosen)


def printed(text: str) -> list[tuple[float, ...]]:
    """Loss, low and high end of each held-out run's interval of a new run, as a reader of the text sees them."""
    line = rf"r1-\d+\W.*?({NUMBER})\W+{NUMBER}\W+{NUMBER} to {NUMBER}\W+({NUMBER}) to ({NUMBER})\W+(?:yes|no)"
    return [tuple(map(float, found)) for found in re.findall(line, text)]


def test_the_printed_intervals_are_the_counted_ones():
    """The runs of the test scatter more than the others, so that some of them lie outside."""
    runs = pandas.concat([table().assign(held_out=0), table(12, 0.006, 1).assign(held_out=1)])
    fitted = scaling.fit(runs, objective="log_squared", intervals="t", level=0.5, starts=64)
    test = fitted.document["held_out"]
    inside = sum(point["covered"] for point in test["points"])
    assert 0 < inside == round(12 * test["covered"]) < 12
    for name in fitted.formats:
        text = fitted.format(name).replace("\\", "")
        assert sum(low <= loss <= high for loss, low, high in printed(text)) == inside
        assert len(printed(text)) == 12
        assert f"{inside} of 12 runs inside their 50% interval of a new run" in text
        assert set(re.findall(r"([\d.]+%) interval", text)) == {"50%"}
    for point in test["points"]:
        run, mean = point["interval_run"], point["interval_mean"]
        assert point["covered"] == (run["low"] <= point["loss"] <= run["high"])
        assert run["low"] <= mean["low"] <= mean["high"] <= run["high"]
        assert run["level"] == mean["level"] == test["level"] == 0.5
    without = scaling.fit(runs, objective="log_squared", intervals="none", starts=24)
    assert without.document["held_out"]["covered"] is without.document["held_out"]["level"] is None
    assert not any(word in without.format(name) for name in without.formats for word in ("interval", "inside"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.parent.name)
def test_a_kept_fit_is_shown_with_its_numbers(path):
    document = json.loads(path.read_text(encoding="utf-8"))
    shown = "\n".join(each.text() for each in Report(document).tables())
    assert all(f"{interval['estimate']:.5g}" in shown for interval in document["intervals"].values())
    assert document["law"] in next(Report(document).heading())
    assert all("not_identified" not in line for line in Report(document).remarks())


def test_the_head_states_the_points_and_how_close_the_law_comes(tmp_path, capsys):
    runs, path = table(), tmp_path / "points.csv"
    runs.loc[7, "loss"] = 9.0
    runs.to_csv(path, index=False)
    assert main(["fit", str(path), "--intervals", "t", "--starts", "128"]) == 0
    out = capsys.readouterr().out
    for name in ("N", "D", "C", "loss"):
        assert re.search(rf"^  {name}: \S+ to \S+", out, re.MULTILINE)
    worst = r"largest residual at N=\S+ D=\S+ \(r0-7\): loss 9.0000, fitted"
    assert re.search(rf"R² -?[\d.]+, mean error [\d.]+%, {worst}", out)
    assert re.search(r"^α +0\.\d+", out, re.MULTILINE)
    for text in ("points.csv: 40 points, 5 parameters", "N_opt ∝ C^a", "95% interval (Student's t)"):
        assert text in out
    table(7, 0.0).to_csv(path, index=False)  # an interval of points that are too few is not shown
    assert main(["fit", str(path), "--intervals", "t", "--starts", "64"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.endswith("not identified")]
    assert len([line for line in lines if line[0] in "EABαβ" and " to " not in line]) == 5


def test_a_law_that_predicts_the_held_out_runs_better_is_named():
    choices: dict[str, Any] = {"hold_out": "6*N*D>1e21", "objective": "log_squared", "intervals": "none", "starts": 64}
    wrong, right = (scaling.fit(table(60, 0.0), law=law, **choices) for law in ("kaplan_n_d", "chinchilla"))
    assert re.search(r"chinchilla predicts the held-out runs better \(mean error \S+% against \S+%\)", str(wrong))
    assert "better" not in str(right)
    interval = {"estimate": 1.8211, "low": 1.82105, "high": 1.82115, "level": 0.95, "method": "t"}
    (row,) = estimates({"estimates": {"E": 1.8211}, "intervals": {"E": interval}}).rows
    low, high = map(float, row[2].split(" to "))
    assert low < float(row[1]) < high, "ends of an interval differ as they are printed"
