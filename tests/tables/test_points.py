"""Kept points: a table's runs survive a file, and a file that is none is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaling.base.errors import ScalingError
from scaling.base.printing import csv_rows, csv_text
from scaling.tables.results import OF_ALL, OPTIONAL, TYPES, Results, read_points, record, write_points
from scaling.tables.table import read

TABLE = read("narang2021")
FULL = {
    "steps": 10**9,
    "tokens": 10**15,
    "early_at": 0.125,
    "early": 1 / 3,
    "loss": 1e-6,
    "steps_per_second": 1e6 + 1 / 7,
    "flops": 2.5e18,
    "worker_seconds": 0.1,
    "day": "2026-01-31",
    "hardware": "a, b; c",
    "versions": "numpy 2, torch 3",
}
SETTINGS = ("size={width: 8, layers: 2}", 'data="some; where"', "trainer.max_steps=8")


@pytest.mark.parametrize("score", [None, 0.1 + 0.2])
def test_results_survive_a_file(score, tmp_path):
    """A column that no run has a value of is not written."""
    runs = record("GeLU", 3, "0" * 16, "finished", score=score, **FULL), record("Rezero", 0, "1" * 16)
    for settings in ((), SETTINGS):
        results = Results(("one", "two"), settings, runs)
        write_points(results, tmp_path / "points.csv")
        assert read_points(tmp_path / "points.csv", TABLE) == results
    assert ("score" in (tmp_path / "points.csv").read_text().partition("\n")[0].split(",")) == (score is not None)


HEAD = ",".join([column for column in TYPES if column not in OPTIONAL] + list(OF_ALL))
ROW = "GeLU,a,missing,0,,,,,,,,,,,,[],[]\n"
BAD = {
    "": "these are no points of a table",
    "row,loss\nGeLU,1\n": "these are no points of a table",
    f"{HEAD}\nGeLU,a,finished,0,8,64,0.1,x,2,3,,,,,,[],[]\n": "2: early='x': not a number",
    f"{HEAD}\nGeLU,a,missing,0,,,,,,,,,,,,s,\n": "2: studies='s': not a list in JSON",
    f"{HEAD}\nMaxout,a,missing,0,,,,,,,,,,,,[],[]\n": "it has no row of narang2021",
    f"{HEAD}\n{ROW}GeLU,b,missing,1\n": "3: expected 17 cells",
    f"{HEAD}\n{ROW}{ROW}": "3: run='a': the run of GeLU, seed 0, is in line 2 too",
    f'{HEAD}\n{ROW}GeLU,b,missing,1,,,,,,,,,,,,[],"[""trainer.max_steps=8""]"\n': "3: settings=.*: is another than in",
}


@pytest.mark.parametrize("text", BAD)
def test_a_file_that_is_none_is_refused(text, tmp_path):
    path: Path = tmp_path / "points.csv"
    path.write_text(text)
    with pytest.raises(ScalingError, match=BAD[text]):
        read_points(path, TABLE)


def test_a_text_is_no_formula_of_a_spreadsheet_and_comes_back():
    rows = [{"name": "=HYPERLINK(1)", "loss": "-1.5"}, {"name": "@x", "loss": "'=1"}]
    text = csv_text(rows)
    assert "\n'=HYPERLINK(1),-1.5\n'@x," in text
    assert csv_rows(text)[0] == rows[0]
