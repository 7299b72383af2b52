"""What a fit prints: the counted intervals in every format, letters and digits, and what speaks against the law."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas
import pytest

import scaling
from scaling.cli import main
from scaling.laws.report import Report, estimates

NUMBER = r"-?[\d.]+(?:e[+-]?\d+)?"
KEPT = sorted((Path(__file__).parents[2] / "docs" / "results").glob("*/fit.json"))


def runs(count: int = 40, noise: float = 0.003, seed: int = 0) -> pandas.DataFrame:
    rng = np.random.default_rng(seed)
    N, D = np.exp(rng.uniform(np.log([[1e7], [1e9]]), np.log([[1e10], [1e12]]), (2, count)))
    loss = (1.7 + 400 * N**-0.34 + 900 * D**-0.3) * np.exp(noise * rng.standard_normal(count))
    return pandas.DataFrame(
        {"run": [f"r{seed}-{place}" for place in range(count)], "N": N, "D": D, "C": 6 * N * D, "loss": loss}
    )


def held_out_runs() -> pandas.DataFrame:
    """Runs with a test that scatters more than the others, so that some of it lies outside."""
    return pandas.concat([runs().assign(held_out=0), runs(12, 0.006, 1).assign(held_out=1)])


def printed(text: str) -> list[tuple[float, ...]]:
    """Loss, low and high end of each held-out run's interval of a new run, as a reader of the text sees them."""
    line = rf"r1-\d+\W.*?({NUMBER})\W+{NUMBER}\W+{NUMBER} to {NUMBER}\W+({NUMBER}) to ({NUMBER})\W+(?:yes|no)"
    return [tuple(map(float, found)) for found in re.findall(line, text)]


@pytest.mark.parametrize(
    ("law", "objective", "intervals", "level"),
    [("chinchilla", "log_huber", "profile", 0.5), ("power_law_floor_c", "log_squared", "bootstrap", 0.8)],
)
def test_the_printed_intervals_are_the_counted_ones(law, objective, intervals, level):
    fit = scaling.fit(held_out_runs(), law=law, objective=objective, intervals=intervals, level=level, starts=64)
    test = fit.document["held_out"]
    inside = sum(point["covered"] for point in test["points"])
    assert inside == round(12 * test["covered"])
    percent = f"{100 * level:g}%"
    for name in fit.formats:
        text = fit.format(name).replace("\\", "")
        assert sum(low <= loss <= high for loss, low, high in printed(text)) == inside
        assert len(printed(text)) == 12
        assert f"{inside} of 12 runs inside their {percent} interval of a new run" in text
        assert set(re.findall(r"([\d.]+%) interval", text)) == {percent}
    for point in test["points"]:
        run, mean = point["interval_run"], point["interval_mean"]
        assert point["covered"] == (run["low"] <= point["loss"] <= run["high"])
        assert run["low"] <= mean["low"] <= mean["high"] <= run["high"]
        assert run["level"] == mean["level"] == test["level"] == level


def test_without_intervals_nothing_is_counted():
    fit = scaling.fit(held_out_runs(), intervals="none", starts=24)
    assert fit.document["held_out"]["covered"] is fit.document["held_out"]["level"] is None
    assert not any(word in fit.format(name) for name in fit.formats for word in ("interval", "inside"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.parent.name)
def test_a_kept_fit_is_shown_with_its_numbers(path):
    document = json.loads(path.read_text(encoding="utf-8"))
    shown = "\n".join(table.text() for table in Report(document).tables())
    for interval in document["intervals"].values():
        assert f"{interval['estimate']:.5g}" in shown
    assert document["law"] in next(Report(document).heading())
    assert all("not_identified" not in line for line in Report(document).remarks())


def test_the_head_states_the_points_and_how_close_the_law_comes(tmp_path, capsys):
    table = runs()
    table.loc[7, "loss"] = 9.0
    table.to_csv(tmp_path / "points.csv", index=False)
    assert main(["fit", str(tmp_path / "points.csv"), "--intervals", "t", "--starts", "128"]) == 0
    out = capsys.readouterr().out
    assert "points.csv: 40 points, 5 parameters" in out
    for name in ("N", "D", "C", "loss"):
        assert re.search(rf"^  {name}: \S+ to \S+", out, re.MULTILINE)
    assert re.search(
        r"R² -?[\d.]+, mean error [\d.]+%, largest residual at N=\S+ D=\S+ \(r0-7\): loss 9.0000, fitted", out
    )
    assert re.search(r"^α +0\.\d+", out, re.MULTILINE)
    assert "alpha" not in out
    assert "N_opt ∝ C^a" in out
    assert "95% interval (Student's t)" in out
    assert out.count("nats per token ×") == 1


def test_a_law_that_predicts_the_held_out_runs_better_is_named(capsys, tmp_path):
    table = runs(60)
    table["loss"] = 1.7 + 400 * table["N"] ** -0.34 + 900 * table["D"] ** -0.3
    table.to_csv(tmp_path / "points.csv", index=False)
    words = ["fit", str(tmp_path / "points.csv"), "--hold-out", "C>1e21", "--intervals", "t", "--starts", "128"]
    assert main([*words, "--law", "kaplan_n_d"]) == 0
    assert re.search(
        r"chinchilla predicts the held-out runs better \(mean error \S+% against \S+%\)", capsys.readouterr().out
    )
    assert main(words) == 0
    assert "better" not in capsys.readouterr().out


def test_an_interval_of_points_that_are_too_few_is_not_shown(tmp_path, capsys):
    table = runs(7, 0)
    table.to_csv(tmp_path / "points.csv", index=False)
    assert main(["fit", str(tmp_path / "points.csv")]) == 0
    out = capsys.readouterr().out
    assert "none is identified" in out
    lines = [line for line in out.splitlines() if line.endswith("not identified") and line[0] in "EABαβ"]
    assert len(lines) == 5
    assert not any(" to " in line for line in lines)


def test_ends_of_an_interval_differ_as_they_are_printed():
    table = estimates(
        {
            "estimates": {"E": 1.8211},
            "intervals": {"E": {"estimate": 1.8211, "low": 1.82105, "high": 1.82115, "level": 0.95, "method": "t"}},
        }
    )
    low, high = map(float, table.rows[0][2].split(" to "))
    assert low < float(table.rows[0][1]) < high
