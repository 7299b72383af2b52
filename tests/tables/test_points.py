"""Kept points: a table's runs survive a file, and a file that is none is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.errors import ScalingError
from scaling.printing import csv_rows, csv_text
from scaling.tables.results import OF_ALL, OPTIONAL, TYPES, Results, read_points, record, write_points
from scaling.tables.table import read

TABLE = read("narang2021")
NUMBERS = st.floats(1e-6, 1e6)
FINISHED = st.builds(
    record,
    row=st.sampled_from([row.name for row in TABLE.rows]),
    seed=st.integers(0, 9),
    run=st.text("0123456789abcdef", min_size=16, max_size=16),
    status=st.just("finished"),
    steps=st.integers(1, 10**9),
    tokens=st.integers(1, 10**15),
    early_at=NUMBERS,
    early=NUMBERS,
    loss=NUMBERS,
    steps_per_second=st.none() | NUMBERS,
    flops=st.none() | NUMBERS,
    worker_seconds=st.none() | NUMBERS,
    day=st.none() | st.dates().map(str),
    hardware=st.none() | st.just("a, b; c"),
    versions=st.none() | st.just("numpy 2, torch 3"),
    score=st.none() | NUMBERS,
)
MISSING = st.builds(
    record, row=st.just("Vanilla Transformer"), seed=st.integers(0, 9), run=st.just("0" * 16), status=st.just("missing")
)
SETTINGS = ("size={width: 8, layers: 2}", 'data="some; where"', "trainer.max_steps=8")


ROWS = st.lists(FINISHED | MISSING, min_size=1, max_size=5, unique_by=lambda run: (run["row"], run["seed"]))


@given(found=ROWS, settings=st.sampled_from([(), SETTINGS]))
def test_results_survive_a_file(found, settings, tmp_path_factory):
    path = tmp_path_factory.mktemp("points") / "points.csv"
    results = Results(("one", "two"), settings, tuple(found))
    write_points(results, path)
    assert read_points(path, TABLE) == results


HEAD = ",".join([column for column in TYPES if column not in OPTIONAL] + list(OF_ALL))
ROW = "GeLU,a,missing,0,,,,,,,,,,,,[],[]\n"
BAD = {
    "": "these are no points of a table",
    "row,loss\nGeLU,1\n": "these are no points of a table",
    f"{HEAD}\nGeLU,a,finished,0,8,64,0.1,x,2,3,,,,,,[],[]\n": "2: early='x': not a number",
    f"{HEAD}\nGeLU,a,missing,0,,,,,,,,,,,,s,\n": "2: studies='s': not a list in JSON",
    f"{HEAD}\nGeLU,a,missing,0\n": "2: expected 17 cells",
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
